#pragma once
/// Packets of a network, in a pool that hands out numbers.
#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "routing.hpp"

namespace mm::model {

struct Packet {
  std::uint32_t next = kNone;  ///< in its queue, or in the pool
  std::uint32_t about = 0;     ///< for the sender's use
  std::uint32_t target = 0;    ///< endpoint
  std::uint16_t flits = 1;
  std::uint8_t klass = 0;              ///< message class: a later one never waits for an earlier one
  std::uint8_t channel = 0;            ///< virtual channel, global number
  std::uint8_t escape_class = kFresh;  ///< escape class on which it arrived straight, or kFresh
  std::uint8_t what = 0;               ///< for the sender's use
  std::uint16_t hops = 0;
  Time born = 0;
};

class PacketPool {
 public:
  std::uint32_t packet() {
    if (free_ == kNone) {
      packets_.emplace_back();
      return static_cast<std::uint32_t>(packets_.size() - 1);
    }
    const std::uint32_t p = free_;
    free_ = packets_[p].next;
    packets_[p] = Packet{};
    return p;
  }
  Packet& at(std::uint32_t p) { return packets_[p]; }
  const Packet& at(std::uint32_t p) const { return packets_[p]; }
  void release(std::uint32_t p) {
    packets_[p].next = free_;
    free_ = p;
  }
  std::size_t bytes() const { return packets_.capacity() * sizeof(Packet); }

 private:
  std::vector<Packet> packets_;
  std::uint32_t free_ = kNone;
};

}  // namespace mm::model

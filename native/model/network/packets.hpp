#pragma once
/// Packets of a network.
#include <cstdint>

#include "model/network/graph.hpp"
#include "model/network/pool.hpp"
#include "model/network/routing.hpp"

namespace mm::model {

struct Packet {
  std::uint32_t next = kNone;  ///< next packet in its queue, or in the pool
  std::uint32_t about = 0;     ///< for the sender's use
  std::uint32_t target = 0;    ///< endpoint
  std::uint16_t flits = 1;
  std::uint8_t klass = 0;              ///< message class; progress of a class never depends on a lower class
  std::uint8_t channel = 0;            ///< virtual channel, global number
  std::uint8_t escape_class = kFresh;  ///< class of the escape channel on which it arrived, or kFresh
  std::uint8_t what = 0;               ///< for the sender's use
  std::uint16_t hops = 0;
  Time born = 0;
};

using PacketPool = Pool<Packet>;

}  // namespace mm::model

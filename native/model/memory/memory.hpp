#pragma once
/// Memory controllers: channels whose data buses serialise lines, and banks with one open page each.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/memory/node_rules.hpp"
#include "model/network/graph.hpp"
#include "model/trial.hpp"

namespace mm::model {

class MemoryControllers {
 public:
  MemoryControllers(const Graph& graph, const NodeRules& rules) : rules_(rules.memory) {
    for (const Endpoint& e : graph.endpoints) {
      if (e.kind != EndpointKind::memory) continue;
      const int channels = rules_.node_channels.empty() ? rules_.channels : rules_.node_channels[e.node];
      const double share = rules_.node_share.empty() ? 1 : rules_.node_share[e.node];
      const double occupancy = static_cast<double>(rules_.occupancy_fs) / 1000 + static_cast<double>(rules_.gap);
      controllers_.push_back({static_cast<std::uint32_t>(channels), static_cast<std::uint32_t>(channels_.size()),
                              static_cast<Time>(std::llround(occupancy / share))});
      channels_.resize(channels_.size() + static_cast<std::size_t>(channels));
    }
    if (rules_.page_bytes > 0) banks_.resize(channels_.size() * static_cast<std::size_t>(rules_.banks));
  }

  std::size_t size() const { return controllers_.size(); }
  std::uint32_t channels(std::size_t controller) const { return controllers_[controller].channels; }

  /// Returns how many bytes a controller reads per second in which all its channels are busy.
  double bytes_per_s(std::size_t controller) const {
    const Controller& m = controllers_[controller];
    return m.occupancy > 0 ? 1e12 * rules_.line_bytes * m.channels / static_cast<double>(m.occupancy) : 0;
  }

  /// Accepts an access at time `at`; `stripe` numbers the lines of the controller. Returns when its first data is
  /// available, or when the write is accepted.
  Time serve(std::size_t controller, std::uint64_t stripe, Op op, Time at) {
    const Controller& m = controllers_[controller];
    const std::size_t c = m.first + stripe % m.channels;
    Channel& channel = channels_[c];
    const Time ready = rules_.page_bytes > 0 ? open_page(c, stripe / m.channels, at) : at;
    const Time start = std::max(channel.free_from, ready);
    Time spent = m.occupancy;
    if (op == Op::write && ++channel.writes >= rules_.write_batch) {
      channel.writes = 0;
      spent += 2 * rules_.turnaround;
    }
    channel.free_from = std::max(channel.free_from, at) + spent;
    channel.busy += spent;
    return op == Op::write ? channel.free_from : start + rules_.access;
  }

  /// Returns the busy time of a controller's channels up to `now`, total in ps.
  double busy(std::size_t controller, Time now) const {
    double all = 0;
    const Controller& m = controllers_[controller];
    for (std::uint32_t c = m.first; c < m.first + m.channels; ++c)
      all += static_cast<double>(channels_[c].busy - std::max<Time>(0, channels_[c].free_from - now));
    return all;
  }

 private:
  struct Controller {
    std::uint32_t channels, first;
    Time occupancy;  ///< time that one line occupies one channel, including the gap after it
  };
  struct Channel {
    Time free_from = 0;  ///< time from which the data bus is free: completion time of all accepted accesses
    Time busy = 0;
    int writes = 0;  ///< writes of the current batch
  };
  struct Bank {
    std::uint64_t page = ~std::uint64_t{0};
    Time free_from = 0;
  };

  /// Returns when the bank of `line` on the channel has this line's page open.
  Time open_page(std::size_t channel, std::uint64_t line, Time at) {
    const std::uint64_t page =
        line * static_cast<std::uint64_t>(rules_.line_bytes) / static_cast<std::uint64_t>(rules_.page_bytes);
    // Consecutive pages map to different banks; the hash separates arrays of equal alignment.
    const std::uint64_t number = (page ^ (page >> 7) ^ (page >> 13)) % static_cast<std::uint64_t>(rules_.banks);
    Bank& bank = banks_[channel * static_cast<std::size_t>(rules_.banks) + number];
    Time ready = std::max(at, bank.free_from);
    if (bank.page != page) {
      ready += rules_.activate;
      bank.page = page;
      bank.free_from = ready;
    }
    return ready;
  }

  const MemoryRules& rules_;
  std::vector<Controller> controllers_;  ///< by Endpoint::index
  std::vector<Channel> channels_;
  std::vector<Bank> banks_;
};

}  // namespace mm::model

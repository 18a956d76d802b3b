#pragma once
/// Possible next hops of a packet: one table of minimal outputs, and one escape output with its class.
///
/// Deadlocks are avoided as follows. Each message class has separate virtual channels. Within a class, a blocked packet
/// may use the escape channel of its router, and the dependencies between escape channels have no cycle (Duato, IEEE
/// TPDS 4(12), 1993). Only direct dependencies matter: with virtual cut-through because a packet holds one buffer, and
/// in dimension order, also flit by flit, because all channels are escape channels. `find_cycle` checks a given table;
/// it checks the minimal outputs instead if there are no escape channels.
#include <cstdint>
#include <string>
#include <vector>

#include "model/network/graph.hpp"

namespace mm::model {

/// Partition of the virtual channels of a message class: adaptive ones first, then `escape` classes of `width` each.
struct Channels {
  int adaptive = 1;
  int escape = 2;
  int width = 1;
  int classes = 3;  ///< message classes: request, forward, response
  int per_class() const { return adaptive + escape * width; }
  int all() const { return per_class() * classes; }
};

constexpr std::uint8_t kEither = 2;   ///< escape class: either one, whichever is free
constexpr std::uint8_t kNoHop = 255;  ///< output of a hop that does not exist
constexpr std::uint8_t kFresh = 255;  ///< the packet did not arrive on an escape channel whose class it keeps

struct Hop {
  std::uint8_t output;  ///< output of the router, local number
  std::uint8_t escape;  ///< escape class: 0, 1 or kEither
};

class Routing {
 public:
  Routing() = default;
  Routing(const Graph& graph, const Channels& channels);

  /// Returns the minimal outputs of `router` towards `target` (another router), as bits of local numbers.
  std::uint64_t minimal(std::uint32_t router, std::uint32_t target) const {
    return minimal_[entry(router, target_[target])];
  }
  /// Returns the escape hop. `escape_class`: class of the escape channel on which the packet arrived if it keeps this
  /// class (`keeps_class`), or kFresh.
  Hop escape(std::uint32_t router, std::uint32_t target, std::uint8_t escape_class) const {
    const std::size_t at = entry(router, target_[target]);
    if (down_.empty()) {
      Hop hop = escape_[at];
      if (escape_class != kFresh) hop.escape = escape_class;
      return hop;
    }
    return escape_class == 1 ? down_[at] : escape_[at];
  }
  /// Returns the hop in the other direction if `target` is on the opposite side of a ring; kNoHop otherwise.
  Hop other_way(const Graph& graph, std::uint32_t router, std::uint32_t target) const;
  /// Makes each router of `path` send packets for the last router of it to the next router of it, instead of along the
  /// shortest paths. Blocked packets still leave by their escape hop. `distance` stays the shortest one. `taken` holds
  /// the last routers of earlier routes. Throws UsageError with what is wrong with the path.
  void set_route(const Graph& graph, const std::vector<std::uint32_t>& path, std::vector<std::uint32_t>& taken);
  int distance(std::uint32_t router, std::uint32_t target) const { return distance_[entry(router, target_[target])]; }

  /// Returns whether a packet that arrived by `in` keeps its escape class when it leaves by `out`.
  bool keeps_class(const Graph& g, const Output& in, const Output& out) const {
    return g.rule == EscapeRule::up_down ||
           (in.dimension >= 0 && in.dimension == out.dimension && in.direction == out.direction);
  }

  /// Returns a cycle of channels that wait for each other, as text; empty if the routing has no cycle.
  std::string find_cycle(const Graph& graph, const Channels& channels) const;

  std::size_t bytes() const {
    return minimal_.size() * 8 + (escape_.size() + down_.size()) * sizeof(Hop) + distance_.size() * 2;
  }

 private:
  /// Tables are grouped by target, the order of their construction.
  std::size_t entry(std::uint32_t router, std::size_t target) const { return target * routers_ + router; }

  std::size_t routers_ = 0;
  int classes_ = 0;                    ///< escape classes
  std::vector<std::uint32_t> target_;  ///< compressed number of each router that has endpoints
  std::vector<std::uint64_t> minimal_;
  std::vector<Hop> escape_, down_;
  std::vector<std::uint16_t> distance_;
};

/// Returns "router 3 (1,0) to router 7 (1,1), by cable", for messages.
std::string name_of(const Graph& graph, std::uint32_t output);

}  // namespace mm::model

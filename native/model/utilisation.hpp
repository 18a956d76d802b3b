#pragma once
/// Utilisation of links, I/O ports, memory controllers and cores, over the measured time, and per window as frames.
#include <cstdint>
#include <functional>
#include <vector>

#include "base/json.hpp"
#include "model/memory/core.hpp"
#include "model/memory/memory.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"

namespace mm::model {

using FrameSink = std::function<void(const json&)>;

/// Busy time up to a point in time, ps.
struct BusyTimes {
  std::vector<Time> outputs;
  std::vector<double> memories;  ///< channels of a controller summed
};

BusyTimes busy_times(const Network& network, const MemoryControllers& memories, Time now);

/// Emits a frame (docs/reference/frames.md) at the end of each window.
class Frames {
 public:
  Frames(const Graph& graph, const NodeRules& rules, Time window, const FrameSink& sink);
  void emit(const Network& network, const MemoryControllers& memories, const Cores& cores, Time now);

 private:
  const Graph& graph_;
  const int outstanding_;
  const Time window_;
  const FrameSink& sink_;
  const std::vector<std::uint32_t> cpus_, memories_, ios_;  ///< endpoints in the order of a frame
  BusyTimes last_;
  std::uint64_t number_ = 0;
};

}  // namespace mm::model

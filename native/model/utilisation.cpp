#include "model/utilisation.hpp"

#include <algorithm>
#include <cmath>

namespace mm::model {

BusyTimes busy_times(const Network& network, const MemoryControllers& memories, Time now) {
  BusyTimes busy;
  for (std::uint32_t o = 0; o < network.graph().outputs.size(); ++o) busy.outputs.push_back(network.busy(o, now));
  for (std::size_t m = 0; m < memories.size(); ++m) busy.memories.push_back(memories.busy(m, now));
  return busy;
}

Frames::Frames(const Graph& graph, const NodeRules& rules, Time window, const FrameSink& sink)
    : graph_(graph),
      outstanding_(std::max(1, rules.core.outstanding)),
      window_(window),
      sink_(sink),
      cpus_(by_node(graph, EndpointKind::cpu)),
      memories_(by_node(graph, EndpointKind::memory)),
      ios_(by_node(graph, EndpointKind::io)) {}

void Frames::emit(const Network& network, const MemoryControllers& memories, const Cores& cores, Time now) {
  if (!sink_) return;
  BusyTimes busy = busy_times(network, memories, now);
  if (last_.outputs.empty()) {
    last_.outputs.assign(busy.outputs.size(), 0);
    last_.memories.assign(busy.memories.size(), 0);
  }
  const auto window = static_cast<double>(window_);
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  const auto share = [&](std::size_t o) {
    return rounded(static_cast<double>(busy.outputs[o] - last_.outputs[o]) / window);
  };
  json cpu = json::array(), memory = json::array(), links = json::array(), io = json::array();
  for (const std::uint32_t e : memories_) {
    const std::uint32_t m = graph_.endpoints[e].index;
    memory.push_back(rounded((busy.memories[m] - last_.memories[m]) / window / memories.channels(m)));
  }
  for (const std::uint32_t e : cpus_) cpu.push_back(rounded(1.0 * cores.outstanding_reads(e) / outstanding_));
  for (const std::uint32_t e : ios_) io.push_back(share(graph_.endpoints[e].output));
  for (std::uint32_t o = 0; o < graph_.outputs.size(); ++o)
    if (graph_.outputs[o].to_router != kNone) links.push_back(share(o));
  last_ = std::move(busy);
  sink_(json{{"type", "frame"},
             {"seq", ++number_},
             {"t_s", static_cast<double>(now) * 1e-12},
             {"window_s", window * 1e-12},
             {"values", {{"cpu.busy", cpu}, {"memory.busy", memory}, {"link.busy", links}, {"io.busy", io}}}});
}

}  // namespace mm::model

#include "model/machine.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.hpp"
#include "model/memory/coherence.hpp"
#include "model/memory/core.hpp"
#include "model/memory/memory.hpp"

namespace mm::model {
namespace {

/// Returns a width of buckets with a few events per bucket for any machine size; the horizon exceeds a memory access.
int bucket_shift(const Graph& graph) {
  return std::clamp(11 - static_cast<int>(std::bit_width(graph.endpoints.size() / 3)), 4, 9);
}

class SimulatedMachine {
 public:
  SimulatedMachine(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
                   const Trial& trial, const FrameSink& frames)
      : trial_(trial),
        calendar_(bucket_shift(graph)),
        network_(graph, routing, routers, calendar_),
        memories_(graph, rules),
        results_(trial, rules.memory.line_bytes),
        protocol_(graph, rules, trial, network_, memories_, directory_, calendar_),
        cores_(graph, rules, trial, directory_, protocol_, calendar_, results_),
        frames_(graph, rules, trial.window, frames) {}

  TrialResult run() {
    cores_.start();
    if (trial_.window > 0) calendar_.push(trial_.window, event_of(kWindow, 0), 0);
    const Time end = trial_.measure > 0 ? trial_.warm + trial_.measure : kNever;
    bool warm = trial_.warm == 0;
    Time now = 0;
    while (!calendar_.empty()) {
      const Event event = calendar_.pop();
      now = std::min(event.at, end);
      if (event.at >= end) return result(now);
      if (!warm && now >= trial_.warm) {
        warm = true;
        before_ = busy_times(network_, memories_, trial_.warm);
        protocol_.forget_pairs();
      }
      handle(event);
      if (trial_.measure == 0 && cores_.unfinished() == 0 && protocol_.open() == 0) break;
    }
    if (calendar_.empty() && protocol_.open() > 0)
      throw Failure("no progress: " + std::to_string(protocol_.open()) +
                    " requests are outstanding without progress: " + network_.waits());
    return result(now);
  }

 private:
  void handle(const Event& event) {
    const std::uint32_t target = event.what & 0x0fffffff;
    switch (event.what >> 28) {
      case kArrive:
        return network_.arrive(event.with, target, event.at);
      case kArbitrate:
        return network_.arbitrate(target, event.at);
      case kDeliver:
        return protocol_.deliver(target, event.with, event.at);
      case kIssue:
        return cores_.issue(target, event.at);
      case kSend:
        return network_.inject(target, event.with, event.at);
      case kLocal:
        return protocol_.request_at_home(event.with, 0, event.at);
      case kMemory:
        return protocol_.served(event.with, target, event.at);
      case kProbed:
        return protocol_.probed(event.with, target, event.at);
      case kDone:
        return cores_.retire(protocol_.finish(event.with, event.at), event.at);
      default:
        frames_.emit(network_, memories_, cores_, event.at);
        // Windows alone are not progress: if no other event is left, the run ends, and fails if requests are
        // outstanding.
        if (!calendar_.empty()) calendar_.push(event.at + trial_.window, event_of(kWindow, 0), 0);
    }
  }

  TrialResult result(Time now) {
    TrialResult r;
    r.groups = results_.take();
    r.pairs = protocol_.pairs();
    r.measured = now - trial_.warm;
    r.packet_hops = network_.packet_hops();
    r.requested = protocol_.requested();
    r.answered = protocol_.answered();
    r.hits = cores_.hits();
    const double span = static_cast<double>(std::max<Time>(r.measured, 1));
    const BusyTimes busy = busy_times(network_, memories_, now);
    // Without a warm-up, nothing was busy at the start.
    const BusyTimes start = before_.value_or(
        BusyTimes{std::vector<Time>(busy.outputs.size(), 0), std::vector<double>(busy.memories.size(), 0)});
    for (std::size_t o = 0; o < busy.outputs.size(); ++o)
      r.output_busy.push_back(static_cast<double>(busy.outputs[o] - start.outputs[o]) / span);
    for (std::size_t m = 0; m < busy.memories.size(); ++m)
      r.memory_busy.push_back((busy.memories[m] - start.memories[m]) / span / memories_.channels(m));
    if (protocol_.open() == 0) r.credits_back = network_.inside() == 0 && network_.all_credits_back(kNever - 1);
    return r;
  }

  const Trial& trial_;
  Calendar calendar_;
  Network network_;
  MemoryControllers memories_;
  Directory directory_;
  Results results_;
  Protocol protocol_;
  Cores cores_;
  Frames frames_;
  std::optional<BusyTimes> before_;  ///< busy times at the end of the warm-up
};

}  // namespace

TrialResult simulate(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
                     const Trial& trial, const FrameSink& frames) {
  return SimulatedMachine(graph, routing, routers, rules, trial, frames).run();
}

}  // namespace mm::model

#pragma once
/// Requests to meshmark-model, and their answers.
#include "base/json.hpp"
#include "model/machine.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/network/routing.hpp"

namespace mm::model {

/// A machine that is ready for requests. The constructor throws UsageError if it is inconsistent, unconnected or prone
/// to deadlock.
struct Ready {
  explicit Ready(const json& machine);
  Graph graph;
  RouterRules routers;
  Routing routing;
  NodeRules nodes;
  bool has_memory = false;
};

/// Answers one run of a request; passes frames to `frames` as they are produced.
json answer(const Ready& machine, const json& run, std::size_t number, const FrameSink& frames);

}  // namespace mm::model

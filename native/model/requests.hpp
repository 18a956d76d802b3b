#pragma once
/// What meshmark-model is asked, and its answers.
#include "base/json.hpp"
#include "graph.hpp"
#include "machine.hpp"
#include "network.hpp"
#include "routing.hpp"

namespace mm::model {

/// A machine ready to be asked. The constructor refuses, by UsageError, what is inconsistent, unconnected or can
/// deadlock.
struct Ready {
  explicit Ready(const json& machine);
  Graph graph;
  RouterRules routers;
  Routing routing;
  NodeRules nodes;
  bool has_memory = false;
};

/// Answers one run of a request; frames go to `frames` as they come.
json answer(const Ready& machine, const json& run, std::size_t number, const FrameSink& frames);

}  // namespace mm::model

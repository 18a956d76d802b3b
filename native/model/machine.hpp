#pragma once
/// The whole machine: cores with a limited number of outstanding misses, memory controllers with channels, banks and
/// open pages, coherence by directory, broadcast or snoop, and I/O ports, connected by the network.
#include "model/memory/node_rules.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/results.hpp"
#include "model/trial.hpp"
#include "model/utilisation.hpp"

namespace mm::model {

/// Simulates one trial. Throws Failure if requests are outstanding and no event is left; the message lists the packets
/// and what they wait for.
TrialResult simulate(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
                     const Trial& trial, const FrameSink& frames = {});

}  // namespace mm::model

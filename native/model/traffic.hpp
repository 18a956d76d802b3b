#pragma once
/// Open-loop traffic through the network alone: packets of one size, from every CPU port at a given rate. The network's
/// own test bench: queueing theory and other network simulators speak this language.
#include "base/json.hpp"
#include "graph.hpp"
#include "network.hpp"
#include "table.hpp"

namespace mm::model {

/// Answers {"load", "accepted", "latency_s", …}; UsageError for a wrong word of `workload`.
json run_traffic(const Graph& graph, const Routing& routing, const RouterRules& rules, const Table& workload,
                 std::uint64_t seed);

}  // namespace mm::model

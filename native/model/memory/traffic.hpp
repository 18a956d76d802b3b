#pragma once
/// Open-loop traffic through the network alone: packets of one size from every CPU port at a given rate. Results are
/// comparable with queueing theory and other network simulators.
#include "base/json.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/network/table.hpp"

namespace mm::model {

/// Returns {"load", "accepted", "latency_s", …}. Throws UsageError for an invalid value in `workload`.
json run_traffic(const Graph& graph, const Routing& routing, const RouterRules& rules, const Table& workload,
                 std::uint64_t seed);

}  // namespace mm::model

#pragma once
/// The closed form: latency without queueing, and upper bounds of throughput. It is implemented independently of the
/// event-driven simulator (without events and credits), so that each verifies the other.
/// event-driven simulator (it knows no events and no credits) so that each can prove the other.
#include <vector>

#include "graph.hpp"
#include "machine.hpp"
#include "network.hpp"
#include "routing.hpp"

namespace mm::model {

/// Time from sending a packet's head at one endpoint to its arrival at the other, ps, in an empty network.
Time path_time(const Graph& graph, const Routing& routing, const RouterRules& rules, std::uint32_t from,
               std::uint32_t to);

/// Latency of one read by CPU endpoint `cpu` of a line whose home is `node`, ps; `owner`: node that holds it dirty.
Time zero_load(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
               std::uint32_t cpu, std::uint32_t node, std::uint32_t controller, State state, std::uint32_t owner,
               bool page_open);

/// Share of all packets that each output carries under uniform traffic (including to the node itself), with ties split
/// evenly. Its maximum bounds the throughput: packets per node and time <= rate of the output / (share x nodes).
std::vector<double> uniform_loads(const Graph& graph, const Routing& routing);

}  // namespace mm::model

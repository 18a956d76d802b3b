#pragma once
/// The closed form: latency without queueing, and upper bounds of throughput. It is implemented independently of the
/// event-driven simulator (without events and credits), so that each verifies the other.
#include <vector>

#include "model/machine.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/network/routing.hpp"

namespace mm::model {

/// Returns the time from sending a packet's head at one endpoint to its arrival at the other, ps, in an empty network.
Time path_time(const Graph& graph, const Routing& routing, const RouterRules& rules, std::uint32_t from,
               std::uint32_t to);

/// Returns the latency of one read by CPU endpoint `cpu` of a line whose home is `node`, ps; `owner`: node that holds
/// it dirty.
Time zero_load(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
               std::uint32_t cpu, std::uint32_t node, std::uint32_t controller, State state, std::uint32_t owner,
               bool page_open);

/// Returns the share of all packets that each output carries if every node sends equally many packets to every node,
/// itself included, and packets are split evenly over minimal outputs. Each output limits the throughput: packets per
/// node and time <= rate of the output / (share x nodes).
std::vector<double> uniform_loads(const Graph& graph, const Routing& routing);

}  // namespace mm::model

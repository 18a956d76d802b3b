#pragma once
/// The closed form: what the machine does where nothing queues, and what it can never exceed. Written apart from the
/// event-driven simulator (it knows no events and no credits) so that each can prove the other.
#include <vector>

#include "graph.hpp"
#include "machine.hpp"
#include "network.hpp"
#include "routing.hpp"

namespace mm::model {

/// Time of a packet's head from one endpoint's sending it to its arrival at the other, ps, in an empty network.
Time path_time(const Graph& graph, const Routing& routing, const RouterRules& rules, std::uint32_t from,
               std::uint32_t to);

/// Latency of one read by CPU endpoint `cpu` of a line at home of `node`, ps; `owner`: node that has it dirty.
Time zero_load(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
               std::uint32_t cpu, std::uint32_t node, std::uint32_t controller, State state, std::uint32_t owner,
               bool page_open);

/// Share of all packets that each output carries when every node sends to every node alike (itself included) and ties
/// are split evenly; its largest value bounds the throughput: packets a node and time <= rate of the output / (share x
/// nodes).
std::vector<double> uniform_loads(const Graph& graph, const Routing& routing);

}  // namespace mm::model

#include "model/closed.hpp"

#include <algorithm>
#include <bit>

namespace mm::model {

Time path_time(const Graph& g, const Routing& routing, const RouterRules& rules, std::uint32_t from, std::uint32_t to) {
  const Endpoint& a = g.endpoints[from];
  const Endpoint& b = g.endpoints[to];
  const auto pipeline = [&](std::uint32_t r) {
    return g.is_bus(r) ? 0 : rules.pipeline + (rules.exclusive ? rules.allocation : 0);
  };
  Time time = a.delay + pipeline(a.router);
  std::uint32_t router = a.router, incoming = kNone;
  while (router != b.router) {
    std::uint32_t local;
    if (rules.channels.adaptive > 0) {
      const std::uint64_t minimal = routing.minimal(router, b.router);
      local = static_cast<std::uint32_t>(std::countr_zero(minimal));
      if (incoming != kNone && g.outputs[incoming].dimension >= 0)
        for (std::uint64_t m = minimal; m; m &= m - 1) {
          const auto k = static_cast<std::uint32_t>(std::countr_zero(m));
          const Output& candidate = g.outputs[g.first_output[router] + k];
          if (candidate.dimension == g.outputs[incoming].dimension &&
              candidate.direction == g.outputs[incoming].direction)
            local = k;
        }
    } else {
      local = routing.escape(router, b.router, kFresh).output;
    }
    incoming = g.first_output[router] + local;
    router = g.outputs[incoming].to_router;
    time += g.outputs[incoming].delay + pipeline(router);
  }
  return time + g.outputs[b.output].delay;
}

Time zero_load(const Graph& g, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
               std::uint32_t cpu, std::uint32_t node, std::uint32_t controller, State state, std::uint32_t owner,
               bool page_open) {
  const std::uint32_t home = g.memories_of[node][controller];
  const std::uint32_t requester_node = g.endpoints[cpu].node;
  const auto between = [&](std::uint32_t a, std::uint32_t b) {
    return rules.bypass && g.endpoints[a].node == g.endpoints[b].node ? 0 : path_time(g, routing, routers, a, b);
  };
  const auto tail = [&](std::uint32_t from, std::uint32_t flits) {
    const bool near = rules.bypass && g.endpoints[from].node == requester_node;
    return near || rules.core.critical_word ? 0 : (g.outputs[g.endpoints[cpu].output].fs_per_flit * flits + 500) / 1000;
  };
  const Time to_home = rules.core.request + between(cpu, home);
  const Time memory = rules.memory.access + (page_open || rules.memory.page_bytes == 0 ? 0 : rules.memory.activate);
  const auto data = static_cast<std::uint32_t>(rules.packets.data_flits),
             ack = static_cast<std::uint32_t>(rules.packets.ack_flits);
  if (state == State::dirty && rules.coherence != Coherence::broadcast) {
    const std::uint32_t holder = g.cpus_of[owner].back() != cpu ? g.cpus_of[owner].back() : g.cpus_of[owner].front();
    return to_home + rules.directory + between(home, holder) + rules.core.probe + between(holder, cpu) +
           tail(holder, data) + rules.core.fill;
  }
  Time last = to_home + memory + between(home, cpu) + tail(home, data);
  if (rules.coherence == Coherence::broadcast)
    for (std::uint32_t n = 0; n < g.nodes(); ++n) {
      if (n == requester_node || g.cpus_of[n].empty()) continue;
      const std::uint32_t probed = g.cpus_of[n].front();
      last =
          std::max(last, to_home + between(home, probed) + rules.core.probe + between(probed, cpu) + tail(probed, ack));
    }
  return last + rules.core.fill;
}

std::vector<double> uniform_loads(const Graph& g, const Routing& routing) {
  // For each target, the flow from all nodes, propagated in order of decreasing distance and split evenly over minimal
  // outputs.
  std::vector<double> load(g.outputs.size(), 0);
  const double pairs = static_cast<double>(g.nodes()) * g.nodes();
  std::vector<std::uint32_t> order(g.routers());
  for (std::uint32_t t = 0; t < g.nodes(); ++t) {
    const std::uint32_t target = g.node_router[t];
    std::vector<double> flow(g.routers(), 0);
    for (std::uint32_t n = 0; n < g.nodes(); ++n) flow[g.node_router[n]] += 1;
    for (std::uint32_t r = 0; r < g.routers(); ++r) order[r] = r;
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return routing.distance(a, target) > routing.distance(b, target);
    });
    // A second pass is needed only if a route of the machine file leads away from its target.
    for (bool done = false; !done;) {
      done = true;
      for (const std::uint32_t r : order) {
        if (r == target || flow[r] == 0) continue;
        const std::uint64_t minimal = routing.minimal(r, target);
        const double flow_per_output = flow[r] / std::popcount(minimal);
        flow[r] = 0;
        for (std::uint64_t m = minimal; m; m &= m - 1) {
          const std::uint32_t o = g.first_output[r] + static_cast<std::uint32_t>(std::countr_zero(m));
          const std::uint32_t to = g.outputs[o].to_router;
          load[o] += flow_per_output / pairs;
          flow[to] += flow_per_output;
          if (to != target && routing.distance(to, target) >= routing.distance(r, target)) done = false;
        }
      }
    }
  }
  return load;
}

}  // namespace mm::model

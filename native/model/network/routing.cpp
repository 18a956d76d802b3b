#include "model/network/routing.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/error.hpp"

namespace mm::model {

namespace {

std::string router_name(const Graph& g, std::uint32_t router) {
  std::string text = g.is_bus(router) ? "bus " : "router ";
  text += std::to_string(router);
  if (!g.shape.empty() && !g.is_bus(router)) {
    text += " (";
    for (std::size_t d = 0; d < g.shape.size(); ++d)
      text += (d ? "," : "") + std::to_string(g.coordinate(router, static_cast<int>(d)));
    text += ")";
  }
  return text;
}

/// Returns the output of `router` in a dimension and direction, as a local number.
int output_towards(const Graph& g, std::uint32_t router, int dimension, int direction) {
  for (std::uint32_t o = g.first_output[router]; o < g.first_output[router + 1]; ++o)
    if (g.outputs[o].dimension == dimension && g.outputs[o].direction == direction)
      return static_cast<int>(o - g.first_output[router]);
  return -1;
}

/// Returns a step from coordinate `a` towards `b` of a dimension. Escape classes follow the balanced date lines of
/// Scott and Thorson (HOTI 1996): packets that will cross the wrap link use class 1, packets that will cross the middle
/// use class 0, and others use either. Minimal paths cover at most half a ring, so neither class can form a cycle.
Hop step(const Graph& g, std::uint32_t at, std::uint32_t to, int d, int direction, int classes) {
  const int n = g.shape[static_cast<std::size_t>(d)], a = g.coordinate(at, d), b = g.coordinate(to, d);
  int output = output_towards(g, at, d, direction);
  if (output < 0) output = output_towards(g, at, d, -direction);  // a ring of two has a single link
  std::uint8_t escape = kEither;
  if (g.wraps && n > 2) {
    const bool crosses = direction > 0 ? a > b : a < b;
    const int middle = (n - 1) / 2;
    const bool mid = direction > 0 ? a <= middle && b > middle : a > middle && b <= middle;
    escape = crosses ? 1 : mid ? 0 : kEither;
  }
  if (classes < 2) escape = 0;
  return {static_cast<std::uint8_t>(output), escape};
}

/// Returns the hop in dimension order: in the first dimension that differs, in the shorter direction; at equal
/// distance, even routers go up.
Hop dimension_hop(const Graph& g, std::uint32_t at, std::uint32_t to, const Channels& channels) {
  for (int d = 0; d < static_cast<int>(g.shape.size()); ++d) {
    const int n = g.shape[static_cast<std::size_t>(d)], a = g.coordinate(at, d), b = g.coordinate(to, d);
    if (a == b) continue;
    int direction = b > a ? 1 : -1;
    if (g.wraps) {
      const int ahead = ((b - a) % n + n) % n;
      direction = 2 * ahead < n || (2 * ahead == n && a % 2 == 0) ? 1 : -1;
    }
    return step(g, at, to, d, direction, channels.escape);
  }
  return {0, 0};
}

}  // namespace

std::string name_of(const Graph& g, std::uint32_t output) {
  const Output& o = g.outputs[output];
  if (o.to_endpoint != kNone) {
    static const char* const kinds[] = {"CPU ", "memory ", "I/O "};
    const Endpoint& e = g.endpoints[o.to_endpoint];
    return router_name(g, o.router) + " to " + kinds[static_cast<int>(e.kind)] + std::to_string(e.index);
  }
  return router_name(g, o.router) + " to " + router_name(g, o.to_router) + ", by " + g.kinds[o.kind].name;
}

Routing::Routing(const Graph& g, const Channels& channels) : target_(g.routers(), kNone) {
  std::vector<std::uint32_t> targets;
  for (const Endpoint& e : g.endpoints)
    if (target_[e.router] == kNone) {
      target_[e.router] = static_cast<std::uint32_t>(targets.size());
      targets.push_back(e.router);
    }
  routers_ = g.routers();
  classes_ = channels.escape;
  const std::size_t entries = routers_ * targets.size();
  minimal_.assign(entries, 0);
  distance_.assign(entries, 0xffff);
  escape_.assign(entries, Hop{0, 0});
  const bool up_down = g.rule == EscapeRule::up_down && channels.escape > 0;
  if (up_down) down_.assign(entries, Hop{255, 1});

  // Up*/down* order: levels of a breadth-first tree from router 0, ties by number (Schroeder et al., Autonet, 1991).
  std::vector<std::uint32_t> rank(g.routers());
  if (up_down) {
    std::vector<std::uint32_t> order{0};
    std::vector<char> visited(g.routers(), 0);
    visited[0] = 1;
    for (std::size_t i = 0; i < order.size(); ++i) {
      rank[order[i]] = static_cast<std::uint32_t>(i);
      for (std::uint32_t o = g.first_output[order[i]]; o < g.first_output[order[i] + 1]; ++o)
        if (g.outputs[o].to_router != kNone && !visited[g.outputs[o].to_router]) {
          visited[g.outputs[o].to_router] = 1;
          order.push_back(g.outputs[o].to_router);
        }
    }
  }

  std::vector<std::uint32_t> queue;
  std::vector<std::uint16_t> steps;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const std::uint32_t target = targets[t];
    // Distances by a backward search; links come in pairs, so the outputs of a router lead to its predecessors.
    queue.assign(1, target);
    distance_[entry(target, t)] = 0;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const std::uint32_t r = queue[i];
      for (std::uint32_t in = g.first_input[r]; in < g.first_input[r + 1]; ++in) {
        if (g.inputs[in].from_output == kNone) continue;
        const std::uint32_t from = g.outputs[g.inputs[in].from_output].router;
        if (distance_[entry(from, t)] != 0xffff) continue;
        distance_[entry(from, t)] = static_cast<std::uint16_t>(distance_[entry(r, t)] + 1);
        queue.push_back(from);
      }
    }
    for (std::uint32_t r = 0; r < g.routers(); ++r) {
      if (r == target) continue;
      const std::size_t index = entry(r, t);
      std::uint64_t mask = 0;
      for (std::uint32_t o = g.first_output[r]; o < g.first_output[r + 1]; ++o)
        if (g.outputs[o].to_router != kNone && distance_[entry(g.outputs[o].to_router, t)] + 1 == distance_[index])
          mask |= std::uint64_t{1} << (o - g.first_output[r]);
      minimal_[index] = mask;
      const auto first = static_cast<std::uint8_t>(std::countr_zero(mask));
      if (g.rule != EscapeRule::dimension) continue;
      if (g.is_bus(r) || g.anchor[r] == g.anchor[target])
        escape_[index] = {first, 0};
      else
        escape_[index] = dimension_hop(g, r, g.anchor[target], channels);
    }
    if (!up_down) continue;
    // Steps to the target by down moves only, then by up moves followed by down moves.
    steps.assign(g.routers(), 0xffff);
    steps[target] = 0;
    queue.assign(1, target);
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const std::uint32_t r = queue[i];
      for (std::uint32_t in = g.first_input[r]; in < g.first_input[r + 1]; ++in) {
        const std::uint32_t o = g.inputs[in].from_output;
        if (o == kNone || rank[g.outputs[o].router] > rank[r] || steps[g.outputs[o].router] != 0xffff) continue;
        const std::uint32_t from = g.outputs[o].router;
        steps[from] = static_cast<std::uint16_t>(steps[r] + 1);
        down_[entry(from, t)] = {static_cast<std::uint8_t>(o - g.first_output[from]), 1};
        queue.push_back(from);
      }
    }
    std::vector<std::uint32_t> up_order(g.routers());
    for (std::uint32_t r = 0; r < g.routers(); ++r) up_order[rank[r]] = r;
    std::vector<std::uint16_t> best = steps;
    for (const std::uint32_t r : up_order) {  // a router's upper neighbours are processed before it
      const std::size_t index = entry(r, t);
      if (steps[r] != 0xffff) {
        escape_[index] = down_[index];
        escape_[index].escape = 1;
      }
      for (std::uint32_t o = g.first_output[r]; o < g.first_output[r + 1]; ++o) {
        const std::uint32_t to = g.outputs[o].to_router;
        if (to == kNone || rank[to] > rank[r] || best[to] == 0xffff || best[to] + 1 >= best[r]) continue;
        best[r] = static_cast<std::uint16_t>(best[to] + 1);
        escape_[index] = {static_cast<std::uint8_t>(o - g.first_output[r]), 0};
      }
    }
  }
}

Hop Routing::other_way(const Graph& g, std::uint32_t router, std::uint32_t target) const {
  if (g.rule != EscapeRule::dimension || !g.wraps) return {kNoHop, 0};
  for (int d = 0; d < static_cast<int>(g.shape.size()); ++d) {
    const int n = g.shape[static_cast<std::size_t>(d)], a = g.coordinate(router, d), b = g.coordinate(target, d);
    if (a == b) continue;
    if (n <= 2 || 2 * std::abs(b - a) != n) return {kNoHop, 0};
    return step(g, router, target, d, a % 2 == 0 ? -1 : 1, classes_);
  }
  return {kNoHop, 0};
}

void Routing::set_route(const Graph& g, const std::vector<std::uint32_t>& path, std::vector<std::uint32_t>& taken) {
  const auto refuse = [](const std::string& found, const std::string& allowed) {
    throw UsageError("router.routes", "found " + found, allowed);
  };
  if (path.size() < 2) refuse("a route with fewer than two routers", "[router, next router, ..., last router]");
  for (const std::uint32_t r : path) {
    if (r >= g.routers() || g.is_bus(r))
      refuse("router " + std::to_string(r), "routers of the topology, which meshmark watch --on shows");
    if (std::count(path.begin(), path.end(), r) > 1)
      refuse("router " + std::to_string(r) + " twice in a route", "routers that differ");
  }
  const std::uint32_t last = path.back();
  if (std::find(taken.begin(), taken.end(), last) != taken.end())
    refuse("two routes to router " + std::to_string(last), "one route to each router");
  taken.push_back(last);
  bool has_endpoint = false;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    std::uint64_t mask = 0;
    for (std::uint32_t o = g.first_output[path[i]]; o < g.first_output[path[i] + 1]; ++o)
      if (g.outputs[o].to_router == path[i + 1]) mask |= std::uint64_t{1} << (o - g.first_output[path[i]]);
    if (mask == 0)
      refuse("no link from router " + std::to_string(path[i]) + " to router " + std::to_string(path[i + 1]),
             "routers that links connect");
    for (std::uint32_t t = 0; t < g.routers(); ++t) {
      if (target_[t] == kNone || g.anchor[t] != last) continue;  // the router itself and the buses behind it
      has_endpoint = true;
      minimal_[entry(path[i], target_[t])] = mask;
    }
  }
  if (!has_endpoint) refuse("a route to router " + std::to_string(last) + ", which has no node", "routers of nodes");
}

std::string Routing::find_cycle(const Graph& g, const Channels& channels) const {
  // A vertex is an output and a class on it; an edge means that a packet in one may wait for the other.
  const bool adaptive = channels.escape == 0;
  constexpr std::size_t kWide = 2, kMaxNamed = 8;
  std::vector<std::vector<std::uint32_t>> next(g.outputs.size() * kWide);
  std::vector<std::uint32_t> targets;
  for (std::uint32_t r = 0; r < g.routers(); ++r)
    if (target_[r] != kNone) targets.push_back(r);
  const auto link = [&](std::uint32_t from, std::uint8_t a, std::uint32_t to, std::uint8_t b) {
    auto& list = next[from * kWide + a];
    const auto vertex = static_cast<std::uint32_t>(to * kWide + b);
    if (std::find(list.begin(), list.end(), vertex) == list.end()) list.push_back(vertex);
  };
  const auto classes = [](std::uint8_t c, auto&& each) {
    if (c == kEither)
      each(std::uint8_t{0}), each(std::uint8_t{1});
    else
      each(c);
  };
  for (const std::uint32_t target : targets)
    for (std::uint32_t r = 0; r < g.routers(); ++r) {
      if (r == target) continue;
      const auto follow = [&](std::uint32_t out, std::uint8_t c) {
        const std::uint32_t next_router = g.outputs[out].to_router;
        if (next_router == target || next_router == kNone) return;
        if (adaptive) {
          for (std::uint64_t m = minimal(next_router, target); m; m &= m - 1)
            link(out, 0, g.first_output[next_router] + static_cast<std::uint32_t>(std::countr_zero(m)), 0);
          return;
        }
        const Hop fresh = escape(next_router, target, kFresh);
        const std::uint32_t next_output = g.first_output[next_router] + fresh.output;
        if (!down_.empty()) {
          const Hop hop = escape(next_router, target, c);
          link(out, c, g.first_output[next_router] + hop.output, hop.escape);
        } else if (keeps_class(g, g.outputs[out], g.outputs[next_output]) && channels.escape > 1) {
          link(out, c, next_output, c);
        } else {
          classes(fresh.escape, [&](std::uint8_t k) { link(out, c, next_output, k); });
        }
      };
      if (adaptive) {
        for (std::uint64_t m = minimal(r, target); m; m &= m - 1)
          follow(g.first_output[r] + static_cast<std::uint32_t>(std::countr_zero(m)), 0);
        continue;
      }
      const Hop hop = escape(r, target, kFresh);
      classes(hop.escape, [&](std::uint8_t c) { follow(g.first_output[r] + hop.output, c); });
    }

  std::vector<char> state(next.size(), 0);  // 1: in progress, 2: done
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;
  for (std::uint32_t start = 0; start < next.size(); ++start) {
    if (state[start]) continue;
    stack.assign(1, {start, 0});
    state[start] = 1;
    while (!stack.empty()) {
      auto& [vertex, edge] = stack.back();
      if (edge == next[vertex].size()) {
        state[vertex] = 2;
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = next[vertex][edge++];
      if (state[to] == 2) continue;
      if (state[to] == 0) {
        state[to] = 1;
        stack.push_back({to, 0});
        continue;
      }
      std::string text;
      std::size_t i = stack.size();
      while (stack[i - 1].first != to) --i;
      const std::size_t end = std::min(stack.size(), i - 1 + kMaxNamed);
      for (std::size_t k = i - 1; k < end; ++k)
        text += (text.empty() ? "" : " -> ") + std::string("[") +
                name_of(g, static_cast<std::uint32_t>(stack[k].first / kWide)) + "]";
      if (end < stack.size()) text += " -> ...";
      return text;
    }
  }
  return {};
}

}  // namespace mm::model

#include "model/network/topologies.hpp"

#include "base/error.hpp"

namespace mm::model {

Kinds::Kinds(const Table& links, int flit_bytes) {
  for (const auto& [name, unused] : links.object().items()) {
    const Table kind = links.table(name.c_str());
    LinkKind link;
    link.name = name;
    link.fs_per_flit = fs_per_flit(kind.number("bandwidth_gb_per_s", 1e-6, 1e6), flit_bytes);
    link.latency = ps(kind.number("latency_ns", 0, 1e9));
    number_[name] = static_cast<std::uint16_t>(list.size());
    list.push_back(link);
  }
}

std::uint16_t Kinds::find(const json& name, const Table& where, const std::string& key) const {
  std::string names;
  for (const auto& k : list) names += (names.empty() ? "" : ", ") + k.name;
  if (!name.is_string() || !number_.contains(name.get<std::string>()))
    where.refuse(key, brief(name), names.empty() ? "a kind of [links], which the file lacks" : "one of " + names);
  return number_.at(name.get<std::string>());
}

namespace {

std::vector<int> shape_of(const Table& topology) {
  const json& value = topology.at("shape");
  std::vector<int> shape;
  if (value.is_array())
    for (const json& n : value)
      if (n.is_number_integer() && n.get<std::int64_t>() >= 1 && n.get<std::int64_t>() <= 65536)
        shape.push_back(n.get<int>());
  if (!value.is_array() || shape.size() != value.size() || shape.empty() || shape.size() > 6)
    topology.refuse("shape", brief(value), "1 to 6 whole numbers from 1 to 65536");
  double all = 1;
  for (const int n : shape) all *= n;
  if (all > 65536) topology.refuse("shape", brief(value), "at most 65536 nodes");
  return shape;
}

/// Returns the kinds of the links of each dimension, repeated along it: entry i is the link from i to i + 1.
std::vector<std::vector<std::uint16_t>> patterns(const Table& topology, const Kinds& kinds, std::size_t dimensions) {
  std::vector<std::vector<std::uint16_t>> all(dimensions);
  if (!topology.has("links")) {
    if (kinds.list.size() != 1) topology.refuse("links", "nothing", "the kind of the links, one list per dimension");
    for (auto& pattern : all) pattern = {0};
    return all;
  }
  const json& value = topology.at("links");
  if (value.is_string()) {
    for (auto& pattern : all) pattern = {kinds.find(value, topology, "links")};
    return all;
  }
  if (!value.is_array() || value.size() != dimensions)
    topology.refuse("links", brief(value), "one list of kinds per dimension (" + std::to_string(dimensions) + ")");
  for (std::size_t d = 0; d < dimensions; ++d) {
    const json list = value[d].is_string() ? json::array({value[d]}) : value[d];
    if (!list.is_array() || list.empty()) topology.refuse("links", brief(value), "kinds, by name");
    for (const json& name : list) all[d].push_back(kinds.find(name, topology, "links"));
  }
  return all;
}

TopologyPlan grid(const Table& topology, const Kinds& kinds, bool wraps) {
  TopologyPlan plan;
  plan.shape = shape_of(topology);
  plan.wraps = wraps;
  plan.rule = EscapeRule::dimension;
  const std::size_t dimensions = plan.shape.size();
  const auto kind = patterns(topology, kinds, dimensions);
  const bool twice = topology.flag("double_links_of_two", false);
  plan.routers = 1;
  for (const int n : plan.shape) plan.routers *= static_cast<std::uint32_t>(n);
  for (std::uint32_t r = 0; r < plan.routers; ++r) {
    std::uint32_t remaining = r, stride = 1;
    plan.node_router.push_back(r);
    for (std::size_t d = 0; d < dimensions; ++d) {
      const auto n = static_cast<std::uint32_t>(plan.shape[d]);
      const std::uint32_t position = remaining % n;
      remaining /= n;
      plan.coordinates.push_back(static_cast<int>(position));
      const auto dimension = static_cast<std::int8_t>(d);
      const bool up = position + 1 < n || (wraps && (n > 2 || (n == 2 && twice)));
      const bool down = position > 0 || (wraps && (n > 2 || (n == 2 && twice)));
      if (n > 1 && up) {
        const std::uint32_t to = r - position * stride + (position + 1) % n * stride;
        plan.edges.push_back({r, to, kind[d][position % kind[d].size()], dimension, 1});
      }
      if (n > 1 && down) {
        const std::uint32_t previous = (position + n - 1) % n;
        plan.edges.push_back(
            {r, r - position * stride + previous * stride, kind[d][previous % kind[d].size()], dimension, -1});
      }
      stride *= n;
    }
  }
  return plan;
}

TopologyPlan hypercube(const Table& topology, const Kinds& kinds) {
  TopologyPlan plan;
  const int dimensions = topology.integer("dimensions", 1, 16);
  plan.shape.assign(static_cast<std::size_t>(dimensions), 2);
  plan.rule = EscapeRule::dimension;
  plan.routers = 1U << dimensions;
  const auto kind = patterns(topology, kinds, plan.shape.size());
  for (std::uint32_t r = 0; r < plan.routers; ++r) {
    plan.node_router.push_back(r);
    for (int d = 0; d < dimensions; ++d) {
      const bool set = (r >> d & 1U) != 0;
      plan.coordinates.push_back(set);
      plan.edges.push_back({r, r ^ (1U << d), kind[static_cast<std::size_t>(d)][0], static_cast<std::int8_t>(d),
                            static_cast<std::int8_t>(set ? -1 : 1)});
    }
  }
  return plan;
}

/// Returns the children of a switch, one number per level.
std::vector<int> radix_of(const Table& topology) {
  const json& value = topology.at("radix");
  std::vector<int> radix;
  if (value.is_array())
    for (const json& n : value)
      if (n.is_number_integer() && n.get<std::int64_t>() >= 1 && n.get<std::int64_t>() < kMaxLinks)
        radix.push_back(n.get<int>());
  if (!value.is_array() || radix.empty() || radix.size() != value.size())
    topology.refuse("radix", brief(value), "children of a switch, one number from 1 to 63 per level");
  return radix;
}

/// Lays out levels of switches above the nodes' routers; a switch of level i + 1 has radix[i] children, and each child
/// has one parent.
TopologyPlan switches(const Table& topology, const Kinds& kinds, std::uint32_t nodes, const std::vector<int>& radix) {
  TopologyPlan plan;
  const auto kind = patterns(topology, kinds, radix.size());
  plan.routers = nodes;
  std::vector<std::uint32_t> lower_level(nodes);
  for (std::uint32_t r = 0; r < nodes; ++r) plan.node_router.push_back(lower_level[r] = r);
  for (std::size_t l = 0; l < radix.size(); ++l) {
    std::vector<std::uint32_t> upper_level;
    for (std::size_t i = 0; i < lower_level.size(); ++i) {
      if (i % static_cast<std::size_t>(radix[l]) == 0) upper_level.push_back(plan.routers++);
      plan.edges.push_back({lower_level[i], upper_level.back(), kind[l][0]});
      plan.edges.push_back({upper_level.back(), lower_level[i], kind[l][0]});
    }
    lower_level = upper_level;
  }
  if (lower_level.size() != 1)
    topology.refuse("radix", brief(topology.object().value("radix", json())),
                    "a product that covers all " + std::to_string(nodes) + " nodes: the topology is not connected");
  return plan;
}

/// Lays out a k-ary n-tree: `levels` levels of switches with `arity` children and `parents` parents (fewer: a thinner
/// tree). Source: Petrini, Vanneschi, "k-ary n-trees", IPPS 1997.
TopologyPlan fat_tree(const Table& topology, const Kinds& kinds) {
  TopologyPlan plan;
  const int arity = topology.integer("arity", 2, 32), levels = topology.integer("levels", 1, 8);
  const int parents = topology.integer("parents", 1, arity, arity);
  double leaves = 1;
  for (int l = 0; l < levels; ++l) leaves *= arity;
  if (leaves > 65536) topology.refuse("levels", std::to_string(levels), "at most 65536 nodes");
  const auto nodes = static_cast<std::uint32_t>(leaves);
  const auto kind = patterns(topology, kinds, static_cast<std::size_t>(levels));
  plan.routers = nodes;
  for (std::uint32_t r = 0; r < nodes; ++r) plan.node_router.push_back(r);
  const auto a = static_cast<std::uint32_t>(arity), p = static_cast<std::uint32_t>(parents);
  // Switches of one level form groups (subtrees) with `copies` switches each; copies multiply by `parents` per level.
  std::vector<std::uint32_t> first{0};
  std::uint32_t copies = 1, span = 1, base = 0;
  for (int l = 0; l < levels; ++l) {
    span *= a;
    const std::uint32_t groups = nodes / span;
    const std::uint32_t start = plan.routers;
    const std::uint32_t next_copies = l == 0 ? 1 : copies * p;
    plan.routers += groups * next_copies;
    const auto k = kind[static_cast<std::size_t>(l)][0];
    for (std::uint32_t g = 0; g < groups; ++g)
      for (std::uint32_t child = 0; child < a; ++child)
        for (std::uint32_t c = 0; c < copies; ++c)
          for (std::uint32_t u = 0; u < (l == 0 ? 1 : p); ++u) {
            const std::uint32_t low = base + (g * a + child) * copies + c;
            const std::uint32_t high = start + g * next_copies + c * (l == 0 ? 1 : p) + u;
            plan.edges.push_back({low, high, k});
            plan.edges.push_back({high, low, k});
          }
    copies = next_copies;
    base = start;
  }
  return plan;
}

TopologyPlan explicit_graph(const Table& topology, const Kinds& kinds) {
  TopologyPlan plan;
  plan.routers = static_cast<std::uint32_t>(topology.integer("routers", 1, 65536));
  const json& edges = topology.at("edges");
  if (!edges.is_array()) topology.refuse("edges", brief(edges), "a list of [from, to] or [from, to, kind]");
  for (const json& e : edges) {
    const bool valid = e.is_array() && (e.size() == 2 || e.size() == 3) && e[0].is_number_integer() &&
                       e[1].is_number_integer() && e[0].get<std::int64_t>() >= 0 && e[1].get<std::int64_t>() >= 0 &&
                       e[0].get<std::int64_t>() < plan.routers && e[1].get<std::int64_t>() < plan.routers &&
                       e[0] != e[1];
    if (!valid)
      topology.refuse(
          "edges", brief(e),
          "[from, to] or [from, to, kind], two different routers from 0 to " + std::to_string(plan.routers - 1));
    if (e.size() == 2 && kinds.list.size() != 1) topology.refuse("edges", brief(e), "[from, to, kind]");
    const std::uint16_t kind = e.size() == 3 ? kinds.find(e[2], topology, "edges") : std::uint16_t{0};
    plan.edges.push_back({e[0].get<std::uint32_t>(), e[1].get<std::uint32_t>(), kind});
    plan.edges.push_back({e[1].get<std::uint32_t>(), e[0].get<std::uint32_t>(), kind});
  }
  if (topology.has("hosts")) {
    const json& hosts = topology.at("hosts");
    for (const json& h : hosts) {
      if (!h.is_number_integer() || h.get<std::int64_t>() < 0 || h.get<std::int64_t>() >= plan.routers)
        topology.refuse("hosts", brief(hosts), "routers, one for each node");
      plan.node_router.push_back(h.get<std::uint32_t>());
    }
    if (plan.node_router.empty()) topology.refuse("hosts", brief(hosts), "at least one router");
  } else {
    for (std::uint32_t r = 0; r < plan.routers; ++r) plan.node_router.push_back(r);
  }
  return plan;
}

TopologyPlan lay_out(const Table& topology, const Kinds& kinds) {
  const std::string kind = topology.text("kind", "");
  if (kind == "torus") return grid(topology, kinds, true);
  if (kind == "mesh") return grid(topology, kinds, false);
  if (kind == "ring") {
    if (shape_of(topology).size() != 1) topology.refuse("shape", brief(topology.at("shape")), "one number for a ring");
    return grid(topology, kinds, true);
  }
  if (kind == "hypercube") return hypercube(topology, kinds);
  if (kind == "fat_tree") return fat_tree(topology, kinds);
  if (kind == "crossbar") {
    const int nodes = topology.integer("nodes", 1, kMaxLinks);
    return switches(topology, kinds, static_cast<std::uint32_t>(nodes), {nodes});
  }
  if (kind == "switches") {
    const std::vector<int> radix = radix_of(topology);
    double nodes = 1;
    for (const int n : radix) nodes *= n;
    if (nodes > 65536) topology.refuse("radix", brief(topology.at("radix")), "at most 65536 nodes");
    return switches(topology, kinds,
                    static_cast<std::uint32_t>(topology.integer("nodes", 1, 65536, static_cast<int>(nodes))), radix);
  }
  if (kind == "single") {
    TopologyPlan plan;
    plan.routers = 1;
    plan.node_router = {0};
    return plan;
  }
  if (kind == "graph") return explicit_graph(topology, kinds);
  topology.refuse("kind", topology.has("kind") ? brief(topology.at("kind")) : "nothing",
                  "torus, mesh, ring, hypercube, fat_tree, crossbar, switches, single, graph");
}

/// Returns the routers that are unreachable from router 0.
std::vector<std::uint32_t> unreached(const TopologyPlan& plan) {
  std::vector<std::vector<std::uint32_t>> next(plan.routers);
  for (const Edge& e : plan.edges) next[e.from].push_back(e.to);
  std::vector<char> visited(plan.routers, 0);
  std::vector<std::uint32_t> pending{0};
  visited[0] = 1;
  while (!pending.empty()) {
    const std::uint32_t r = pending.back();
    pending.pop_back();
    for (const std::uint32_t n : next[r])
      if (!visited[n]) visited[n] = 1, pending.push_back(n);
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t r = 0; r < plan.routers; ++r)
    if (!visited[r]) missing.push_back(r);
  return missing;
}

}  // namespace

TopologyPlan plan_topology(const Table& topology, const Kinds& kinds) {
  TopologyPlan plan = lay_out(topology, kinds);
  if (const auto missing = unreached(plan); !missing.empty())
    topology.refuse("kind", "an unconnected topology",
                    "every router reachable from router 0; router " + std::to_string(missing.front()) + " is not");
  return plan;
}

}  // namespace mm::model

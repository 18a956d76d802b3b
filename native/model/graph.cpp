#include "graph.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"

namespace mm::model {

std::vector<std::uint32_t> by_node(const Graph& graph, EndpointKind kind) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == kind) found.push_back(e);
  std::stable_sort(found.begin(), found.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return graph.endpoints[a].node < graph.endpoints[b].node; });
  return found;
}

std::string brief(const json& value) { return shown_json(value); }

namespace {

const json kEmpty = json::object();

std::string shown(double value) {
  json number =
      value == std::floor(value) && std::abs(value) < 1e15 ? json(static_cast<std::int64_t>(value)) : json(value);
  return number.dump();
}

}  // namespace

void Table::refuse(const std::string& key, const std::string& found, const std::string& allowed) const {
  throw UsageError(path(key), "found " + found, allowed);
}

const json& Table::at(const char* key) const {
  if (!object_.contains(key)) refuse(key, "nothing", "a value is needed");
  return object_.at(key);
}

double Table::number(const char* key, double least, double most) const {
  const json& value = at(key);
  const bool good = value.is_number() && std::isfinite(value.get<double>());
  if (!good || value.get<double>() < least || value.get<double>() > most)
    refuse(key, brief(value), "a number from " + shown(least) + " to " + shown(most));
  return value.get<double>();
}

double Table::number(const char* key, double least, double most, double fallback) const {
  return has(key) ? number(key, least, most) : fallback;
}

int Table::integer(const char* key, int least, int most) const {
  const double value = number(key, least, most);
  if (value != std::floor(value)) refuse(key, shown(value), "a whole number");
  return static_cast<int>(value);
}

int Table::integer(const char* key, int least, int most, int fallback) const {
  return has(key) ? integer(key, least, most) : fallback;
}

bool Table::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) refuse(key, brief(at(key)), "true or false");
  return at(key).get<bool>();
}

std::string Table::text(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_string()) refuse(key, brief(at(key)), "a text");
  return at(key).get<std::string>();
}

std::size_t Table::choice(const char* key, std::initializer_list<const char*> allowed) const {
  if (!has(key)) return 0;
  std::string words;
  std::size_t number = 0;
  for (const char* word : allowed) {
    if (at(key) == word) return number;
    words += (words.empty() ? "" : ", ") + std::string(word);
    ++number;
  }
  refuse(key, brief(at(key)), words);
}

Table Table::table(const char* key) const {
  if (!has(key)) return Table(kEmpty, path(key));
  if (!at(key).is_object()) refuse(key, brief(at(key)), "a table");
  return Table(at(key), path(key));
}

Time ps(double ns) { return static_cast<Time>(std::llround(ns * 1000.0)); }

std::int64_t fs_per_flit(double gb_per_s, int flit_bytes) {
  const double fs = gb_per_s <= 0 ? 0 : flit_bytes / gb_per_s * 1e6;
  // A second: much more would leave the range of times, and no wire is as slow.
  if (fs > 1e15) throw UsageError("bandwidth", "found " + shown(gb_per_s) + " GB/s", "0 or at least 1e-6 GB/s");
  return std::llround(fs);
}

namespace {

struct Edge {
  std::uint32_t from, to;
  std::uint16_t kind;
  std::int8_t dimension = -1, direction = 0;
};

/// What a topology says: routers, directed edges in the order of the outputs, and which router each node is at.
struct Plan {
  std::uint32_t routers = 0;
  std::vector<Edge> edges;
  std::vector<std::uint32_t> node_router;
  std::vector<int> coordinates, shape;
  bool wraps = false;
  EscapeRule rule = EscapeRule::up_down;
};

class Kinds {
 public:
  Kinds(const Table& links, int flit_bytes) {
    for (const auto& [name, unused] : links.object().items()) {
      const Table kind = links.table(name.c_str());
      LinkKind made;
      made.name = name;
      made.fs_per_flit = fs_per_flit(kind.number("bandwidth_gb_per_s", 1e-6, 1e6), flit_bytes);
      made.latency = ps(kind.number("latency_ns", 0, 1e9));
      number_[name] = static_cast<std::uint16_t>(list.size());
      list.push_back(made);
    }
  }
  std::uint16_t find(const json& name, const Table& where, const std::string& key) const {
    std::string known;
    for (const auto& k : list) known += (known.empty() ? "" : ", ") + k.name;
    if (!name.is_string() || !number_.contains(name.get<std::string>()))
      where.refuse(key, brief(name), known.empty() ? "a kind of [links], of which there is none" : "one of " + known);
    return number_.at(name.get<std::string>());
  }
  std::vector<LinkKind> list;

 private:
  std::map<std::string, std::uint16_t> number_;
};

std::vector<int> shape_of(const Table& topology, int least_dimensions = 1) {
  const json& given = topology.at("shape");
  std::vector<int> shape;
  if (given.is_array())
    for (const json& n : given)
      if (n.is_number_integer() && n.get<std::int64_t>() >= 1 && n.get<std::int64_t>() <= 65536)
        shape.push_back(n.get<int>());
  if (!given.is_array() || shape.size() != given.size() || static_cast<int>(shape.size()) < least_dimensions ||
      shape.size() > 6)
    topology.refuse("shape", brief(given), "1 to 6 whole numbers from 1 to 65536");
  double all = 1;
  for (const int n : shape) all *= n;
  if (all > 65536) topology.refuse("shape", brief(given), "at most 65536 nodes");
  return shape;
}

/// Kinds of the links of one dimension, repeated along it: entry i is the link from i to i + 1.
std::vector<std::vector<std::uint16_t>> patterns(const Table& topology, const Kinds& kinds, std::size_t dimensions) {
  std::vector<std::vector<std::uint16_t>> all(dimensions);
  if (!topology.has("links")) {
    if (kinds.list.size() != 1) topology.refuse("links", "nothing", "the kind of the links, one list a dimension");
    for (auto& pattern : all) pattern = {0};
    return all;
  }
  const json& given = topology.at("links");
  if (given.is_string()) {
    for (auto& pattern : all) pattern = {kinds.find(given, topology, "links")};
    return all;
  }
  if (!given.is_array() || given.size() != dimensions)
    topology.refuse("links", brief(given), "one list of kinds a dimension (" + std::to_string(dimensions) + ")");
  for (std::size_t d = 0; d < dimensions; ++d) {
    const json list = given[d].is_string() ? json::array({given[d]}) : given[d];
    if (!list.is_array() || list.empty()) topology.refuse("links", brief(given), "kinds, by name");
    for (const json& name : list) all[d].push_back(kinds.find(name, topology, "links"));
  }
  return all;
}

Plan grid(const Table& topology, const Kinds& kinds, bool wraps) {
  Plan plan;
  plan.shape = shape_of(topology);
  plan.wraps = wraps;
  plan.rule = EscapeRule::dimension;
  const std::size_t dimensions = plan.shape.size();
  const auto kind = patterns(topology, kinds, dimensions);
  const bool twice = topology.flag("double_links_of_two", false);
  plan.routers = 1;
  for (const int n : plan.shape) plan.routers *= static_cast<std::uint32_t>(n);
  for (std::uint32_t r = 0; r < plan.routers; ++r) {
    std::uint32_t rest = r, stride = 1;
    plan.node_router.push_back(r);
    for (std::size_t d = 0; d < dimensions; ++d) {
      const auto n = static_cast<std::uint32_t>(plan.shape[d]);
      const std::uint32_t at = rest % n;
      rest /= n;
      plan.coordinates.push_back(static_cast<int>(at));
      const auto here = static_cast<std::int8_t>(d);
      const bool up = at + 1 < n || (wraps && (n > 2 || (n == 2 && twice)));
      const bool down = at > 0 || (wraps && (n > 2 || (n == 2 && twice)));
      if (n > 1 && up) {
        const std::uint32_t to = r - at * stride + (at + 1) % n * stride;
        plan.edges.push_back({r, to, kind[d][at % kind[d].size()], here, 1});
      }
      if (n > 1 && down) {
        const std::uint32_t before = (at + n - 1) % n;
        plan.edges.push_back({r, r - at * stride + before * stride, kind[d][before % kind[d].size()], here, -1});
      }
      stride *= n;
    }
  }
  return plan;
}

Plan hypercube(const Table& topology, const Kinds& kinds) {
  Plan plan;
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

/// Levels of switches above the nodes' own routers; radix[i] children a switch of level i + 1, one parent each.
Plan switches(const Table& topology, const Kinds& kinds, std::uint32_t nodes, const std::vector<int>& radix) {
  Plan plan;
  const auto kind = patterns(topology, kinds, radix.size());
  plan.routers = nodes;
  std::vector<std::uint32_t> below(nodes);
  for (std::uint32_t r = 0; r < nodes; ++r) plan.node_router.push_back(below[r] = r);
  for (std::size_t l = 0; l < radix.size(); ++l) {
    std::vector<std::uint32_t> here;
    for (std::size_t i = 0; i < below.size(); ++i) {
      if (i % static_cast<std::size_t>(radix[l]) == 0) here.push_back(plan.routers++);
      plan.edges.push_back({below[i], here.back(), kind[l][0]});
      plan.edges.push_back({here.back(), below[i], kind[l][0]});
    }
    below = here;
  }
  if (below.size() != 1)
    topology.refuse("radix", brief(topology.object().value("radix", json())),
                    "a product that covers all " + std::to_string(nodes) + " nodes: the topology is not connected");
  return plan;
}

/// k-ary n-tree: `levels` levels of switches with `arity` children and `parents` parents (fewer: a thinner tree).
/// Source: Petrini, Vanneschi, "k-ary n-trees", IPPS 1997.
Plan fat_tree(const Table& topology, const Kinds& kinds) {
  Plan plan;
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
  // Switches of one level: groups (subtrees) with `copies` switches each; copies multiply by `parents` a level.
  std::vector<std::uint32_t> first{0};
  std::uint32_t copies = 1, span = 1, base = 0;
  for (int l = 0; l < levels; ++l) {
    span *= a;
    const std::uint32_t groups = nodes / span;
    const std::uint32_t start = plan.routers;
    const std::uint32_t above = l == 0 ? 1 : copies * p;
    plan.routers += groups * above;
    const auto k = kind[static_cast<std::size_t>(l)][0];
    for (std::uint32_t g = 0; g < groups; ++g)
      for (std::uint32_t child = 0; child < a; ++child)
        for (std::uint32_t c = 0; c < copies; ++c)
          for (std::uint32_t u = 0; u < (l == 0 ? 1 : p); ++u) {
            const std::uint32_t low = base + (g * a + child) * copies + c;
            const std::uint32_t high = start + g * above + c * (l == 0 ? 1 : p) + u;
            plan.edges.push_back({low, high, k});
            plan.edges.push_back({high, low, k});
          }
    copies = above;
    base = start;
  }
  return plan;
}

Plan explicit_graph(const Table& topology, const Kinds& kinds) {
  Plan plan;
  plan.routers = static_cast<std::uint32_t>(topology.integer("routers", 1, 65536));
  const json& edges = topology.at("edges");
  if (!edges.is_array()) topology.refuse("edges", brief(edges), "a list of [from, to] or [from, to, kind]");
  for (const json& e : edges) {
    const bool good = e.is_array() && (e.size() == 2 || e.size() == 3) && e[0].is_number_integer() &&
                      e[1].is_number_integer() && e[0].get<std::int64_t>() >= 0 && e[1].get<std::int64_t>() >= 0 &&
                      e[0].get<std::int64_t>() < plan.routers && e[1].get<std::int64_t>() < plan.routers &&
                      e[0] != e[1];
    if (!good)
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

Plan make_plan(const Table& topology, const Kinds& kinds) {
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
    const int nodes = topology.integer("nodes", 1, kMaxPorts);
    return switches(topology, kinds, static_cast<std::uint32_t>(nodes), {nodes});
  }
  if (kind == "switches") {
    const json& given = topology.at("radix");
    std::vector<int> radix;
    if (given.is_array())
      for (const json& n : given)
        if (n.is_number_integer() && n.get<std::int64_t>() >= 1 && n.get<std::int64_t>() < kMaxPorts)
          radix.push_back(n.get<int>());
    if (!given.is_array() || radix.empty() || radix.size() != given.size())
      topology.refuse("radix", brief(given), "children a switch, one number from 1 to 63 a level");
    double nodes = 1;
    for (const int n : radix) nodes *= n;
    if (nodes > 65536) topology.refuse("radix", brief(given), "at most 65536 nodes");
    return switches(topology, kinds,
                    static_cast<std::uint32_t>(topology.integer("nodes", 1, 65536, static_cast<int>(nodes))), radix);
  }
  if (kind == "single") {
    Plan plan;
    plan.routers = 1;
    plan.node_router = {0};
    return plan;
  }
  if (kind == "graph") return explicit_graph(topology, kinds);
  topology.refuse("kind", topology.has("kind") ? brief(topology.at("kind")) : "nothing",
                  "torus, mesh, ring, hypercube, fat_tree, crossbar, switches, single, graph");
}

/// Routers that cannot be reached from router 0, by any path.
std::vector<std::uint32_t> unreached(const Plan& plan) {
  std::vector<std::vector<std::uint32_t>> next(plan.routers);
  for (const Edge& e : plan.edges) next[e.from].push_back(e.to);
  std::vector<char> seen(plan.routers, 0);
  std::vector<std::uint32_t> todo{0};
  seen[0] = 1;
  while (!todo.empty()) {
    const std::uint32_t r = todo.back();
    todo.pop_back();
    for (const std::uint32_t n : next[r])
      if (!seen[n]) seen[n] = 1, todo.push_back(n);
  }
  std::vector<std::uint32_t> left;
  for (std::uint32_t r = 0; r < plan.routers; ++r)
    if (!seen[r]) left.push_back(r);
  return left;
}

}  // namespace

Graph build_graph(const json& machine) {
  const Table all(machine, "");
  const Table topology = all.table("topology"), node = all.table("node"), router = all.table("router");
  const int flit_bytes = router.integer("flit_bytes", 1, 1024, 8);
  const Kinds kinds(all.table("links"), flit_bytes);
  Plan plan = make_plan(topology, kinds);
  if (const auto left = unreached(plan); !left.empty())
    topology.refuse("kind", "an unconnected topology",
                    "every router reachable from router 0; router " + std::to_string(left.front()) + " is not");

  Graph g;
  g.kinds = kinds.list;
  g.coordinates = plan.coordinates;
  g.shape = plan.shape;
  g.wraps = plan.wraps;
  g.rule = plan.rule;
  g.anchor.resize(plan.routers);
  for (std::uint32_t r = 0; r < plan.routers; ++r) g.anchor[r] = r;
  g.node_router = plan.node_router;

  // CPUs behind buses: every bus is a router of its own, all of whose outputs share one server.
  const int cpus = node.integer("cpus", 0, kMaxPorts, 1), memories = node.integer("controllers", 0, kMaxPorts, 1);
  const Table bus = node.table("bus");
  const bool has_bus = node.has("bus");
  const int per_bus = has_bus ? bus.integer("cpus_per_bus", 1, kMaxPorts) : 0;
  const auto port_fs = fs_per_flit(node.number("port_gb_per_s", 0, 1e6, 0), flit_bytes);
  const Time leave = ps(node.number("leave_ns", 0, 1e6, 0)), reach = ps(node.number("arrive_ns", 0, 1e6, 0));
  const auto bus_fs = has_bus ? fs_per_flit(bus.number("bandwidth_gb_per_s", 1e-6, 1e6), flit_bytes) : 0;
  const Time bus_delay = has_bus ? ps(bus.number("latency_ns", 0, 1e6, 0)) : 0;
  const Time bus_turn = has_bus ? ps(bus.number("turnaround_ns", 0, 1e6, 0)) : 0;
  const Time bus_gap = has_bus ? ps(bus.number("gap_ns", 0, 1e6, 0)) : 0;
  const auto bus_kind = static_cast<std::uint16_t>(g.kinds.size());
  const auto port_kind = static_cast<std::uint16_t>(g.kinds.size() + 1);
  g.kinds.push_back({"bus", bus_fs, bus_delay});
  g.kinds.push_back({"port", port_fs, 0});

  std::vector<std::vector<Edge>> edges_of(plan.routers);
  for (const Edge& e : plan.edges) edges_of[e.from].push_back(e);
  std::vector<std::vector<std::uint32_t>> cpus_at(plan.routers);  // node of each CPU, by router
  for (std::uint32_t n = 0; n < g.nodes(); ++n) {
    const std::uint32_t home = plan.node_router[n];
    if (!has_bus) {
      cpus_at[home].insert(cpus_at[home].end(), static_cast<std::size_t>(cpus), n);
      continue;
    }
    for (int c = 0; c < cpus; c += per_bus) {
      const std::uint32_t b = plan.routers++;
      edges_of.emplace_back();
      cpus_at.emplace_back();
      edges_of[home].push_back({home, b, port_kind});
      edges_of[b].push_back({b, home, bus_kind});
      cpus_at[b].insert(cpus_at[b].end(), static_cast<std::size_t>(std::min(per_bus, cpus - c)), n);
      g.anchor.push_back(home);
    }
  }
  std::vector<std::vector<std::uint32_t>> nodes_at(plan.routers);
  for (std::uint32_t n = 0; n < g.nodes(); ++n) nodes_at[plan.node_router[n]].push_back(n);

  const Table io = all.table("io");
  std::vector<int> io_ports(g.nodes(), 0);
  if (all.has("io")) {
    const json& given = io.has("nodes") ? io.at("nodes") : kEmpty;
    if (io.has("nodes") && !given.is_array()) io.refuse("nodes", brief(given), "nodes that have an I/O port");
    if (io.has("nodes")) {
      for (const json& n : given) {
        if (!n.is_number_integer() || n.get<std::int64_t>() < 0 || n.get<std::int64_t>() >= g.nodes())
          io.refuse("nodes", brief(n), "nodes from 0 to " + std::to_string(g.nodes() - 1));
        ++io_ports[n.get<std::size_t>()];
      }
    } else {
      const int per_node = io.integer("ports_per_node", 0, 16, 1);
      io_ports.assign(g.nodes(), per_node);
    }
  }
  const auto io_fs = all.has("io") ? fs_per_flit(io.number("port_gb_per_s", 1e-6, 1e6), flit_bytes) : 0;

  g.cpus_of.resize(g.nodes());
  g.memories_of.resize(g.nodes());
  g.ios_of.resize(g.nodes());
  std::vector<std::uint32_t> input_of_edge;
  std::uint32_t cpu_count = 0, memory_count = 0, io_count = 0;
  g.first_output = {0};
  for (std::uint32_t r = 0; r < plan.routers; ++r) {
    std::uint32_t bus_server = kNone;
    const auto server_for = [&] {
      if (!g.is_bus(r)) {
        g.servers.push_back({});
      } else if (bus_server == kNone) {
        g.servers.push_back(Server{bus_turn, bus_gap});
        bus_server = static_cast<std::uint32_t>(g.servers.size() - 1);
      }
      return g.is_bus(r) ? bus_server : static_cast<std::uint32_t>(g.servers.size() - 1);
    };
    for (const Edge& e : edges_of[r]) {
      Output o;
      o.router = r;
      o.to_router = e.to;
      o.kind = e.kind;
      o.fs_per_flit = g.kinds[e.kind].fs_per_flit;
      o.delay = g.kinds[e.kind].latency;
      o.dimension = e.dimension;
      o.direction = e.direction;
      o.server = server_for();
      g.outputs.push_back(o);
    }
    const auto attach = [&](EndpointKind kind, std::uint32_t n, std::uint32_t index, std::int64_t fs, Time delay) {
      Endpoint e;
      e.kind = kind;
      e.node = n;
      e.index = index;
      e.router = r;
      e.fs_per_flit = g.is_bus(r) ? 0 : fs;
      e.delay = delay;
      e.output = static_cast<std::uint32_t>(g.outputs.size());
      Output o;
      o.router = r;
      o.to_endpoint = static_cast<std::uint32_t>(g.endpoints.size());
      o.kind = g.is_bus(r) ? bus_kind : port_kind;
      o.fs_per_flit = g.is_bus(r) ? bus_fs : fs;
      o.delay = g.is_bus(r) ? bus_delay : reach;
      o.server = server_for();
      g.outputs.push_back(o);
      auto& list = kind == EndpointKind::cpu ? g.cpus_of : kind == EndpointKind::memory ? g.memories_of : g.ios_of;
      list[n].push_back(static_cast<std::uint32_t>(g.endpoints.size()));
      g.endpoints.push_back(e);
    };
    for (const std::uint32_t n : cpus_at[r])
      attach(EndpointKind::cpu, n, cpu_count++, port_fs, g.is_bus(r) ? 0 : leave);
    for (const std::uint32_t n : nodes_at[r]) {
      for (int m = 0; m < memories; ++m) attach(EndpointKind::memory, n, memory_count++, port_fs, leave);
      for (int i = 0; i < io_ports[n]; ++i) attach(EndpointKind::io, n, io_count++, io_fs, leave);
    }
    g.first_output.push_back(static_cast<std::uint32_t>(g.outputs.size()));
    const std::uint32_t ports = g.first_output[r + 1] - g.first_output[r];
    if (ports > kMaxPorts)
      topology.refuse("kind", "a router with " + std::to_string(ports) + " ports",
                      "at most 64; use levels of switches");
  }

  // Inputs: in each router first the links that lead to it, in the order of the outputs, then its endpoints.
  std::vector<std::vector<std::uint32_t>> arriving(plan.routers);
  for (std::uint32_t o = 0; o < g.outputs.size(); ++o)
    if (g.outputs[o].to_router != kNone) arriving[g.outputs[o].to_router].push_back(o);
  std::vector<std::vector<std::uint32_t>> endpoints_at(plan.routers);
  for (std::uint32_t e = 0; e < g.endpoints.size(); ++e) endpoints_at[g.endpoints[e].router].push_back(e);
  g.first_input = {0};
  for (std::uint32_t r = 0; r < plan.routers; ++r) {
    for (const std::uint32_t o : arriving[r]) {
      g.outputs[o].to_input = static_cast<std::uint32_t>(g.inputs.size());
      g.inputs.push_back({r, o, kNone});
    }
    for (const std::uint32_t e : endpoints_at[r]) {
      g.endpoints[e].input = static_cast<std::uint32_t>(g.inputs.size());
      g.inputs.push_back({r, kNone, e});
    }
    g.first_input.push_back(static_cast<std::uint32_t>(g.inputs.size()));
  }
  return g;
}

}  // namespace mm::model

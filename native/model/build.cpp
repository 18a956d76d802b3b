/// Converts a machine file to the graph: routers and links of the topology, buses between nodes and their CPUs, and
/// endpoints.
#include <algorithm>

#include "model/network/graph.hpp"
#include "model/network/table.hpp"
#include "model/network/topologies.hpp"

namespace mm::model {

std::vector<std::uint32_t> by_node(const Graph& graph, EndpointKind kind) {
  std::vector<std::uint32_t> matches;
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == kind) matches.push_back(e);
  std::stable_sort(matches.begin(), matches.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return graph.endpoints[a].node < graph.endpoints[b].node; });
  return matches;
}

namespace {

/// The ports and buses of a node, as the machine file specifies them.
struct NodePorts {
  int cpus, memories;
  std::int64_t fs_per_flit;  ///< rate of a port
  Time leave, arrive;
  bool has_bus;
  int cpus_per_bus = 0;
  std::int64_t bus_fs = 0;
  Time bus_delay = 0;
  Server bus{};
};

NodePorts node_ports(const Table& node, int flit_bytes) {
  NodePorts p{.cpus = node.integer("cpus", 0, kMaxCpus, 1),
              .memories = node.integer("controllers", 0, kMaxLinks, 1),
              .fs_per_flit = 0,
              .leave = 0,
              .arrive = 0,
              .has_bus = node.has("bus")};
  const Table bus = node.table("bus");
  if (p.has_bus) p.cpus_per_bus = bus.integer("cpus_per_bus", 1, kMaxCpus);
  p.fs_per_flit = fs_per_flit(node.number("port_gb_per_s", 0, 1e6, 0), flit_bytes);
  p.leave = ps(node.number("leave_ns", 0, 1e6, 0));
  p.arrive = ps(node.number("arrive_ns", 0, 1e6, 0));
  if (!p.has_bus) return p;
  p.bus_fs = fs_per_flit(bus.number("bandwidth_gb_per_s", 1e-6, 1e6), flit_bytes);
  p.bus_delay = ps(bus.number("latency_ns", 0, 1e6, 0));
  p.bus.turnaround = ps(bus.number("turnaround_ns", 0, 1e6, 0));
  p.bus.gap = ps(bus.number("gap_ns", 0, 1e6, 0));
  return p;
}

/// Returns the number of I/O ports of each node.
std::vector<int> io_ports(const Table& io, std::uint32_t nodes) {
  if (!io.has("nodes")) return std::vector<int>(nodes, io.integer("ports_per_node", 0, 16, 1));
  const json& list = io.at("nodes");
  if (!list.is_array()) io.refuse("nodes", brief(list), "nodes that have an I/O port");
  std::vector<int> ports(nodes, 0);
  for (const json& n : list) {
    if (!n.is_number_integer() || n.get<std::int64_t>() < 0 || n.get<std::int64_t>() >= nodes)
      io.refuse("nodes", brief(n), "nodes from 0 to " + std::to_string(nodes - 1));
    ++ports[n.get<std::size_t>()];
  }
  return ports;
}

class Builder {
 public:
  explicit Builder(const json& machine)
      : all_(machine, ""),
        topology_(all_.table("topology")),
        node_(all_.table("node")),
        flit_bytes_(all_.table("router").integer("flit_bytes", 1, 1024, 8)) {
    const Kinds kinds(all_.table("links"), flit_bytes_);
    plan_ = plan_topology(topology_, kinds);
    g_.kinds = kinds.list;
    g_.coordinates = plan_.coordinates;
    g_.shape = plan_.shape;
    g_.wraps = plan_.wraps;
    g_.rule = plan_.rule;
    g_.anchor.resize(plan_.routers);
    for (std::uint32_t r = 0; r < plan_.routers; ++r) g_.anchor[r] = r;
    g_.node_router = plan_.node_router;
  }

  Graph build() {
    ports_ = node_ports(node_, flit_bytes_);
    bus_kind_ = static_cast<std::uint16_t>(g_.kinds.size());
    port_kind_ = static_cast<std::uint16_t>(g_.kinds.size() + 1);
    g_.kinds.push_back({"bus", ports_.bus_fs, ports_.bus_delay});
    g_.kinds.push_back({"port", ports_.fs_per_flit, 0});
    place_cpus();
    add_outputs();
    add_inputs();
    return std::move(g_);
  }

 private:
  /// CPUs attach to their node's router, or to buses: a bus is a router whose outputs share one server.
  void place_cpus() {
    edges_of_.resize(plan_.routers);
    for (const Edge& e : plan_.edges) edges_of_[e.from].push_back(e);
    cpus_at_.resize(plan_.routers);
    for (std::uint32_t n = 0; n < g_.nodes(); ++n) {
      const std::uint32_t home = plan_.node_router[n];
      if (!ports_.has_bus) {
        cpus_at_[home].insert(cpus_at_[home].end(), static_cast<std::size_t>(ports_.cpus), n);
        continue;
      }
      for (int c = 0; c < ports_.cpus; c += ports_.cpus_per_bus) {
        const std::uint32_t bus = plan_.routers++;
        const int cpus_on_bus = std::min(ports_.cpus_per_bus, ports_.cpus - c);
        edges_of_.emplace_back();
        cpus_at_.emplace_back(static_cast<std::size_t>(cpus_on_bus), n);
        edges_of_[home].push_back({home, bus, port_kind_});
        edges_of_[bus].push_back({bus, home, bus_kind_});
        g_.anchor.push_back(home);
      }
    }
  }

  void add_outputs() {
    std::vector<std::vector<std::uint32_t>> nodes_at(plan_.routers);
    for (std::uint32_t n = 0; n < g_.nodes(); ++n) nodes_at[plan_.node_router[n]].push_back(n);
    const bool has_io = all_.has("io");
    const Table io = all_.table("io");
    const std::vector<int> io_of = has_io ? io_ports(io, g_.nodes()) : std::vector<int>(g_.nodes(), 0);
    const auto io_fs = has_io ? fs_per_flit(io.number("port_gb_per_s", 1e-6, 1e6), flit_bytes_) : 0;

    g_.cpus_of.resize(g_.nodes());
    g_.memories_of.resize(g_.nodes());
    g_.ios_of.resize(g_.nodes());
    g_.first_output = {0};
    for (std::uint32_t r = 0; r < plan_.routers; ++r) {
      bus_server_ = kNone;
      for (const Edge& e : edges_of_[r]) add_link(e);
      for (const std::uint32_t n : cpus_at_[r])
        attach({.kind = EndpointKind::cpu,
                .node = n,
                .index = cpus_++,
                .router = r,
                .fs_per_flit = ports_.fs_per_flit,
                .delay = g_.is_bus(r) ? 0 : ports_.leave});
      for (const std::uint32_t n : nodes_at[r]) {
        for (int m = 0; m < ports_.memories; ++m)
          attach({.kind = EndpointKind::memory,
                  .node = n,
                  .index = memories_++,
                  .router = r,
                  .fs_per_flit = ports_.fs_per_flit,
                  .delay = ports_.leave});
        for (int i = 0; i < io_of[n]; ++i)
          attach({.kind = EndpointKind::io,
                  .node = n,
                  .index = ios_++,
                  .router = r,
                  .fs_per_flit = io_fs,
                  .delay = ports_.leave});
      }
      g_.first_output.push_back(static_cast<std::uint32_t>(g_.outputs.size()));
      const std::uint32_t ports = g_.first_output[r + 1] - g_.first_output[r];
      if (edges_of_[r].size() > kMaxLinks)
        topology_.refuse("kind", "a router with " + std::to_string(edges_of_[r].size()) + " links",
                         "at most " + std::to_string(kMaxLinks) + "; use levels of switches");
      if (ports > kMaxPorts)
        topology_.refuse("kind", "a router with " + std::to_string(ports) + " ports",
                         "at most " + std::to_string(kMaxPorts));
    }
  }

  /// Returns the server of a router's next output; all outputs of a bus share one server.
  std::uint32_t server_of(std::uint32_t router) {
    if (g_.is_bus(router) && bus_server_ != kNone) return bus_server_;
    g_.servers.push_back(g_.is_bus(router) ? ports_.bus : Server{});
    const auto server = static_cast<std::uint32_t>(g_.servers.size() - 1);
    if (g_.is_bus(router)) bus_server_ = server;
    return server;
  }

  void add_link(const Edge& e) {
    Output o;
    o.router = e.from;
    o.to_router = e.to;
    o.kind = e.kind;
    o.fs_per_flit = g_.kinds[e.kind].fs_per_flit;
    o.delay = g_.kinds[e.kind].latency;
    o.dimension = e.dimension;
    o.direction = e.direction;
    o.server = server_of(e.from);
    g_.outputs.push_back(o);
  }

  /// Adds an endpoint and the output that leads to it. On a bus, both have the rate of the bus.
  void attach(Endpoint e) {
    const bool on_bus = g_.is_bus(e.router);
    const auto number = static_cast<std::uint32_t>(g_.endpoints.size());
    Output o;
    o.router = e.router;
    o.to_endpoint = number;
    o.kind = on_bus ? bus_kind_ : port_kind_;
    o.fs_per_flit = on_bus ? ports_.bus_fs : e.fs_per_flit;
    o.delay = on_bus ? ports_.bus_delay : ports_.arrive;
    o.server = server_of(e.router);
    e.output = static_cast<std::uint32_t>(g_.outputs.size());
    if (on_bus) e.fs_per_flit = 0;
    g_.outputs.push_back(o);
    auto& by_kind = e.kind == EndpointKind::cpu      ? g_.cpus_of
                    : e.kind == EndpointKind::memory ? g_.memories_of
                                                     : g_.ios_of;
    by_kind[e.node].push_back(number);
    g_.endpoints.push_back(e);
  }

  /// Adds the inputs of each router: first the inputs of links, in the order of the outputs, then the inputs of its
  /// endpoints.
  void add_inputs() {
    std::vector<std::vector<std::uint32_t>> arriving(plan_.routers);
    for (std::uint32_t o = 0; o < g_.outputs.size(); ++o)
      if (g_.outputs[o].to_router != kNone) arriving[g_.outputs[o].to_router].push_back(o);
    std::vector<std::vector<std::uint32_t>> endpoints_at(plan_.routers);
    for (std::uint32_t e = 0; e < g_.endpoints.size(); ++e) endpoints_at[g_.endpoints[e].router].push_back(e);
    g_.first_input = {0};
    for (std::uint32_t r = 0; r < plan_.routers; ++r) {
      for (const std::uint32_t o : arriving[r]) {
        g_.outputs[o].to_input = static_cast<std::uint32_t>(g_.inputs.size());
        g_.inputs.push_back({r, o, kNone});
      }
      for (const std::uint32_t e : endpoints_at[r]) {
        g_.endpoints[e].input = static_cast<std::uint32_t>(g_.inputs.size());
        g_.inputs.push_back({r, kNone, e});
      }
      g_.first_input.push_back(static_cast<std::uint32_t>(g_.inputs.size()));
    }
  }

  const Table all_, topology_, node_;
  const int flit_bytes_;
  TopologyPlan plan_;
  Graph g_;
  NodePorts ports_{};
  std::uint16_t bus_kind_ = 0, port_kind_ = 0;
  std::vector<std::vector<Edge>> edges_of_;          ///< by router
  std::vector<std::vector<std::uint32_t>> cpus_at_;  ///< node of each CPU, by router
  std::uint32_t bus_server_ = kNone;                 ///< server of the current router, once it has one
  std::uint32_t cpus_ = 0, memories_ = 0, ios_ = 0;
};

}  // namespace

Graph build_graph(const json& machine) { return Builder(machine).build(); }

}  // namespace mm::model

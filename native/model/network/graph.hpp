#pragma once
/// A machine as a graph of servers: routers with inputs and outputs, and their endpoints (CPUs, memory controllers, I/O
/// ports). Every output is a server with a rate, a delay and a buffer at its far end. Topologies differ only here.
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/network/calendar.hpp"

namespace mm::model {

constexpr std::uint32_t kNone = 0xffffffff;
constexpr int kMaxLinks = 64;    ///< maximum between one router and others, in each direction: their masks are one word
constexpr int kMaxPorts = 1024;  ///< maximum inputs or outputs of one router, a power of two
constexpr int kMaxCpus = 512;    ///< maximum of one node

enum class EndpointKind : std::uint8_t { cpu, memory, io };

struct LinkKind {
  std::string name;
  std::int64_t fs_per_flit = 0;
  Time latency = 0;
};

struct Output {
  std::uint32_t router = 0;         ///< the router that it belongs to
  std::uint32_t to_router = kNone;  ///< kNone: leads to an endpoint
  std::uint32_t to_input = kNone;   ///< input of `to_router`, global number
  std::uint32_t to_endpoint = kNone;
  std::uint32_t server = 0;      ///< outputs of a bus share one server
  std::int64_t fs_per_flit = 0;  ///< 0: no time
  Time delay = 0;                ///< from grant to the far end, without the far router's pipeline
  std::uint16_t kind = 0;        ///< index in Graph::kinds
  std::int8_t dimension = -1;    ///< dimension of a torus, mesh or hypercube; -1: none
  std::int8_t direction = 0;     ///< +1, -1
};

struct Input {
  std::uint32_t router = 0;
  std::uint32_t from_output = kNone;  ///< kNone: injection by an endpoint
  std::uint32_t from_endpoint = kNone;
};

struct Endpoint {
  EndpointKind kind = EndpointKind::cpu;
  std::uint32_t node = 0, index = 0;  ///< index: among the machine's endpoints of its kind
  std::uint32_t router = 0, input = 0, output = 0;
  std::int64_t fs_per_flit = 0;  ///< rate of its injection; 0: no time
  Time delay = 0;                ///< delay of its injection
};

struct Server {
  Time turnaround = 0;  ///< time lost on a change of sender
  Time gap = 0;         ///< time lost per packet
};

/// Rule that selects the escape channel of a packet, so that channel dependencies have no cycle; see routing.hpp.
enum class EscapeRule : std::uint8_t { none, dimension, up_down };

struct Graph {
  std::vector<LinkKind> kinds;
  std::vector<Output> outputs;                           ///< grouped by router, links first
  std::vector<Input> inputs;                             ///< grouped by router
  std::vector<std::uint32_t> first_output, first_input;  ///< routers + 1
  std::vector<Server> servers;
  std::vector<Endpoint> endpoints;
  std::vector<std::uint32_t> node_router;                                ///< router of each node
  std::vector<std::vector<std::uint32_t>> cpus_of, memories_of, ios_of;  ///< endpoints of each node
  std::vector<int> coordinates;  ///< routers x dimensions, for torus, mesh, hypercube
  std::vector<int> shape;        ///< empty without coordinates
  bool wraps = false;
  std::vector<std::uint32_t> anchor;  ///< for a bus, the router of its node; for other routers, themselves
  EscapeRule rule = EscapeRule::up_down;

  std::uint32_t routers() const { return static_cast<std::uint32_t>(first_output.size() - 1); }
  bool is_bus(std::uint32_t router) const { return anchor[router] != router; }
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(node_router.size()); }
  int coordinate(std::uint32_t router, int dimension) const {
    return coordinates[router * shape.size() + static_cast<std::size_t>(dimension)];
  }
};

/// Builds the graph of a resolved machine (docs/reference/machine-files.md). Throws UsageError with the key.
Graph build_graph(const json& machine);

/// Returns the endpoints of a kind, ordered by node: CPU n in requests and frames is element n.
std::vector<std::uint32_t> by_node(const Graph& graph, EndpointKind kind);

}  // namespace mm::model

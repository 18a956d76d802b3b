#pragma once
/// A machine as a graph of servers: routers with inputs and outputs, and the endpoints (CPUs, memory controllers, I/O
/// ports) at them. Every output is a server: a rate, a delay, a capacity at its far end. Topologies differ only here.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "calendar.hpp"

namespace mm::model {

constexpr std::uint32_t kNone = 0xffffffff;
constexpr int kMaxPorts = 64;  ///< inputs, and outputs, of one router: masks are one word

enum class EndpointKind : std::uint8_t { cpu, memory, io };

struct LinkKind {
  std::string name;
  std::int64_t fs_per_flit = 0;
  Time latency = 0;
};

struct Output {
  std::uint32_t router = 0;         ///< whose output it is
  std::uint32_t to_router = kNone;  ///< kNone: leads to an endpoint
  std::uint32_t to_input = kNone;   ///< input of `to_router`, global number
  std::uint32_t to_endpoint = kNone;
  std::uint32_t server = 0;      ///< outputs of a bus share one
  std::int64_t fs_per_flit = 0;  ///< 0: takes no time
  Time delay = 0;                ///< from grant to the far end, without the far router's pipeline
  std::uint16_t kind = 0;        ///< of Graph::kinds
  std::int8_t dimension = -1;    ///< of a torus, mesh or hypercube
  std::int8_t direction = 0;     ///< +1, -1
};

struct Input {
  std::uint32_t router = 0;
  std::uint32_t from_output = kNone;  ///< kNone: an endpoint injects here
  std::uint32_t from_endpoint = kNone;
};

struct Endpoint {
  EndpointKind kind = EndpointKind::cpu;
  std::uint32_t node = 0, index = 0;  ///< index: among those of its kind, in the machine
  std::uint32_t router = 0, input = 0, output = 0;
  std::int64_t fs_per_flit = 0;  ///< of its injection
  Time delay = 0;                ///< of its injection
};

struct Server {
  Time turnaround = 0;  ///< lost when the sender changes
  Time gap = 0;         ///< lost a packet
};

/// Where a packet may go; see routing.hpp.
enum class EscapeRule : std::uint8_t { none, dimension, up_down };

struct Graph {
  std::vector<LinkKind> kinds;
  std::vector<Output> outputs;                           ///< those of one router are neighbours, links first
  std::vector<Input> inputs;                             ///< likewise
  std::vector<std::uint32_t> first_output, first_input;  ///< routers + 1
  std::vector<Server> servers;
  std::vector<Endpoint> endpoints;
  std::vector<std::uint32_t> node_router;                                ///< router of each node
  std::vector<std::vector<std::uint32_t>> cpus_of, memories_of, ios_of;  ///< endpoints of each node
  std::vector<int> coordinates;  ///< routers x dimensions, for torus, mesh, hypercube
  std::vector<int> shape;        ///< empty where there are no coordinates
  bool wraps = false;
  std::vector<std::uint32_t> anchor;  ///< of a bus its node's router, of others themselves
  EscapeRule rule = EscapeRule::up_down;

  std::uint32_t routers() const { return static_cast<std::uint32_t>(first_output.size() - 1); }
  bool is_bus(std::uint32_t router) const { return anchor[router] != router; }
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(node_router.size()); }
  int coordinate(std::uint32_t router, int dimension) const {
    return coordinates[router * shape.size() + static_cast<std::size_t>(dimension)];
  }
};

/// Builds the graph of a resolved machine (docs/reference/machine-files.md). UsageError names the key.
Graph build_graph(const json& machine);

Time ps(double ns);                                         ///< rounds to whole picoseconds
std::int64_t fs_per_flit(double gb_per_s, int flit_bytes);  ///< of a rate in GB/s; 0 for an unlimited one

/// Endpoints of a kind in the order of their nodes: CPU number n of a machine is the n-th, and so in its frames.
std::vector<std::uint32_t> by_node(const Graph& graph, EndpointKind kind);

/// A value as messages show it: at most 60 characters, and plain ASCII, so that none is cut in two.
std::string brief(const json& value);

/// Reads keys of one table; every error names the dotted key.
class Table {
 public:
  Table(const json& object, std::string path) : object_(object), path_(std::move(path)) {}
  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key, double least, double most) const;
  double number(const char* key, double least, double most, double fallback) const;
  int integer(const char* key, int least, int most) const;
  int integer(const char* key, int least, int most, int fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// Which of the allowed words stands there, by number; the first where the key is missing.
  std::size_t choice(const char* key, std::initializer_list<const char*> allowed) const;
  Table table(const char* key) const;  ///< an empty one where it is missing
  const json& at(const char* key) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& found, const std::string& allowed) const;
  std::string path(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const json& object() const { return object_; }

 private:
  const json& object_;
  std::string path_;
};

}  // namespace mm::model

#pragma once
/// Topologies: convert [topology] of a machine file to routers, links, and the router of each node.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/network/graph.hpp"
#include "model/network/table.hpp"

namespace mm::model {

struct Edge {
  std::uint32_t from, to;
  std::uint16_t kind;
  std::int8_t dimension = -1, direction = 0;
};

/// Routers, directed edges in the order of the outputs, and the router of each node.
struct TopologyPlan {
  std::uint32_t routers = 0;
  std::vector<Edge> edges;
  std::vector<std::uint32_t> node_router;
  std::vector<int> coordinates, shape;
  bool wraps = false;
  EscapeRule rule = EscapeRule::up_down;
};

/// The kinds of links that a machine file defines.
class Kinds {
 public:
  Kinds(const Table& links, int flit_bytes);
  /// Returns the index of a kind by name. Throws UsageError for `key` of `where` if it is unknown.
  std::uint16_t find(const json& name, const Table& where, const std::string& key) const;
  std::vector<LinkKind> list;

 private:
  std::map<std::string, std::uint16_t> number_;
};

/// Lays out a topology. Throws UsageError with what is inconsistent, or with an unreachable router.
TopologyPlan plan_topology(const Table& topology, const Kinds& kinds);

}  // namespace mm::model

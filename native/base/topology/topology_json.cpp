#include "base/topology/topology_json.hpp"

#include <cmath>

#include "sys/id_sets.hpp"

namespace mm {
namespace {

json known(std::int64_t value) { return value > 0 ? json(value) : json(nullptr); }
json known(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json number(int value, bool is_known) { return is_known ? json(value) : json(nullptr); }

json cpu_json(const Cpu& cpu) {
  return {{"os_index", cpu.id},
          {"core", cpu.core},
          {"core_id", number(cpu.core_id, cpu.core_id >= 0)},
          {"package", number(cpu.package, cpu.has_package)},
          {"package_id", number(cpu.package_id, cpu.package_id >= 0)},
          {"node", number(cpu.node, cpu.has_node)},
          {"kind", number(cpu.kind, cpu.kind >= 0)}};
}

/// Returns the distances as JSON. Distances of the firmware are whole numbers; XML may contain other numbers.
json distances_json(const Machine& machine) {
  if (machine.distance_from.empty()) return nullptr;
  json rows = json::array();
  for (const auto& row : machine.distance) {
    json values = json::array();
    for (const double value : row)
      values.push_back(std::floor(value) == value && std::abs(value) < 0x1p53 ? json(static_cast<std::int64_t>(value))
                                                                              : json(value));
    rows.push_back(std::move(values));
  }
  return rows;
}

}  // namespace

json topology_json(const Machine& machine) {
  json cpus = json::array(), nodes = json::array(), caches = json::array(), kinds = json::array();
  const std::vector<int> online = machine.ids();
  for (const Cpu& cpu : machine.cpus) cpus.push_back(cpu_json(cpu));
  for (const Node& node : machine.nodes)
    nodes.push_back({{"os_index", node.id},
                     {"memory_bytes", node.bytes ? json(*node.bytes) : json(nullptr)},
                     {"cpus", common_ids(node.cpus, online)},
                     {"near_cpus", node.near}});
  for (const Cache& cache : machine.all_caches)
    caches.push_back({{"level", cache.level},
                      {"kind", cache.kind},
                      {"size_bytes", known(static_cast<std::int64_t>(cache.bytes))},
                      {"line_bytes", known(static_cast<std::int64_t>(cache.line_bytes))},
                      {"ways", known(static_cast<std::int64_t>(cache.ways))},
                      {"cpus", cache.cpus}});
  for (const CoreKind& kind : machine.kinds)
    kinds.push_back({{"name", kind.name},
                     {"cpus", kind.cpus},
                     {"capacity", known(kind.capacity)},
                     {"max_hz", known(kind.max_hz)},
                     {"pmu", known(kind.pmu)},
                     {"model", known(kind.model)}});
  return {{"origin", machine.origin},
          {"cpus", std::move(cpus)},
          {"nodes", std::move(nodes)},
          {"caches", std::move(caches)},
          {"core_kinds", std::move(kinds)},
          {"allowed_cpus", machine.allowed},
          {"offline_cpus", machine.offline},
          {"unlisted_cpus", machine.unlisted},
          {"distances", distances_json(machine)},
          {"kernel_memory_bytes", machine.kernel_bytes ? json(*machine.kernel_bytes) : json(nullptr)},
          {"doubts", machine.doubts}};
}

}  // namespace mm

/// Contradictions and gaps within the description of a machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "base/topology/topology.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

template <class Predicate>
std::vector<int> cpus_where(const Machine& machine, Predicate is_so) {
  std::vector<int> ids;
  for (const Cpu& cpu : machine.cpus)
    if (is_so(cpu)) ids.push_back(cpu.id);
  return ids;
}

std::string gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / 0x1p30);
  return text;
}

void doubt_parts(Machine& machine) {
  if (const auto ids = cpus_where(machine, [](const Cpu& c) { return !c.has_core; }); !ids.empty())
    machine.doubts.push_back("CPUs " + id_list(ids) + " are in no core: each is treated as a separate core");
  if (const auto ids = cpus_where(machine, [](const Cpu& c) { return !c.has_package; }); !ids.empty())
    machine.doubts.push_back("the package of CPUs " + id_list(ids) + " is unknown");
  if (const auto ids = cpus_where(machine, [](const Cpu& c) { return !c.has_node; }); !ids.empty())
    machine.doubts.push_back("no node has CPUs " + id_list(ids));
}

void doubt_nodes(Machine& machine) {
  std::vector<int> earlier_cpus;
  for (const Node& node : machine.nodes) {
    if (const auto shared_cpus = common_ids(node.cpus, earlier_cpus); !shared_cpus.empty())
      machine.doubts.push_back("CPUs " + id_list(shared_cpus) + " are in node " + std::to_string(node.id) +
                               " and an earlier one, which is used");
    earlier_cpus = all_ids(earlier_cpus, node.cpus);
  }
  if (machine.distance_from.empty()) return;
  for (std::size_t i = 0; i < machine.nodes.size(); ++i)
    if (const auto& row = machine.distance[i]; row[i] > *std::min_element(row.begin(), row.end())) {
      machine.doubts.emplace_back("according to the distances, a node is nearer to another node than to itself");
      return;
    }
}

void doubt_memory(Machine& machine) {
  if (!machine.kernel_bytes || *machine.kernel_bytes == 0) return;
  std::uint64_t sum = 0;
  for (const Node& node : machine.nodes) {
    if (!node.bytes) return;
    sum += *node.bytes;
  }
  const auto nodes = static_cast<double>(sum), kernel = static_cast<double>(*machine.kernel_bytes);
  if (std::abs(nodes - kernel) > 0.02 * std::max(nodes, kernel))
    machine.doubts.push_back("the nodes report " + gib(sum) + " in total, the kernel " + gib(*machine.kernel_bytes) +
                             ": the smaller value is used");
}

/// A cache that spans nodes of one package is normal (sub-NUMA clusters); a cache that spans packages does not exist.
void doubt_caches(Machine& machine) {
  std::map<int, const Cpu*> by_id;
  for (const Cpu& cpu : machine.cpus) by_id[cpu.id] = &cpu;
  std::set<int> levels;
  for (const Cache& cache : machine.all_caches) {
    std::set<int> packages;
    for (const int id : cache.cpus)
      if (by_id.contains(id) && by_id[id]->has_package) packages.insert(by_id[id]->package);
    if (packages.size() > 1 && levels.insert(cache.level).second)
      machine.doubts.push_back("an L" + std::to_string(cache.level) + " cache of CPUs " + id_list(cache.cpus) +
                               " spans " + std::to_string(packages.size()) + " packages");
  }
}

}  // namespace

void add_doubts(Machine& machine) {
  doubt_parts(machine);
  doubt_nodes(machine);
  doubt_memory(machine);
  doubt_caches(machine);
}

}  // namespace mm

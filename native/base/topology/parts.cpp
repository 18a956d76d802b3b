#include "base/topology/parts.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace mm {
namespace {

/// Returns a number that identifies the part of one kind to which a CPU belongs; see `PartKind::stated`.
using PartOf = int (*)(const Cpu&);
struct PartKind {
  const char* name;
  PartOf part;
  bool (*stated)(const Cpu&);
};

enum PartIndex { kCore, kCache, kNode, kSocket };  ///< indices into `kKinds`

const PartKind kKinds[] = {
    // from small to large
    {"core", [](const Cpu& c) { return c.core; }, [](const Cpu& c) { return c.has_core; }},
    {"cache", [](const Cpu& c) { return c.l3; }, [](const Cpu& c) { return c.has_l3; }},
    {"node", [](const Cpu& c) { return c.node; }, [](const Cpu& c) { return c.has_node; }},
    {"socket", [](const Cpu& c) { return c.package; }, [](const Cpu& c) { return c.has_package; }},
    {"machine", [](const Cpu&) { return 0; }, [](const Cpu&) { return true; }},
};

std::vector<Cpu> described(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<Cpu> out;
  for (const Cpu& cpu : machine.cpus)
    if (std::find(cpus.begin(), cpus.end(), cpu.id) != cpus.end()) out.push_back(cpu);
  return out;
}

bool all_state(const std::vector<Cpu>& cpus, const PartKind& kind) {
  return std::all_of(cpus.begin(), cpus.end(), kind.stated);
}

std::set<int> parts(const std::vector<Cpu>& cpus, PartOf part) {
  std::set<int> out;
  for (const Cpu& cpu : cpus) out.insert(part(cpu));
  return out;
}

/// Returns the largest number of `cpus` in one part.
std::size_t most_in_one(const std::vector<Cpu>& cpus, PartOf part) {
  std::map<int, std::size_t> counts;
  std::size_t largest = 0;
  for (const Cpu& cpu : cpus) largest = std::max(largest, ++counts[part(cpu)]);
  return largest;
}

}  // namespace

std::string smallest_part(const Machine& machine, const std::vector<int>& cpus) {
  const std::vector<Cpu> used_cpus = described(machine, cpus);
  if (used_cpus.empty()) return "";
  if (used_cpus.size() == 1) return "cpu";
  // If the source does not state the sockets or cores, a larger part would be a guess.
  for (const PartKind& kind : kKinds) {
    if (!all_state(used_cpus, kind)) {
      if (&kind == &kKinds[kCache]) continue;  // a machine may have no shared cache
      return "";
    }
    if (parts(used_cpus, kind.part).size() == 1) return kind.name;
  }
  return "";
}

std::string filled_part(const Machine& machine, const std::vector<int>& cpus) {
  const std::vector<Cpu> used_cpus = described(machine, cpus);
  if (used_cpus.empty()) return "";
  const auto core = kKinds[kCore].part;
  const std::set<int> cores = parts(used_cpus, core);
  for (auto kind = std::rbegin(kKinds); kind != std::rend(kKinds); ++kind) {
    if (!all_state(used_cpus, *kind)) continue;
    const std::set<int> used_parts = parts(used_cpus, kind->part);
    std::vector<Cpu> part_cpus;
    for (const Cpu& cpu : machine.cpus)
      if (used_parts.contains(kind->part(cpu))) part_cpus.push_back(cpu);
    if (used_parts.size() == 1 && parts(part_cpus, core) == cores) return kind->name;
  }
  return "";
}

std::string memory_place(const Machine& machine, const std::vector<int>& cpus, int node) {
  const std::vector<Cpu> used_cpus = described(machine, cpus);
  const auto at = std::find_if(machine.nodes.begin(), machine.nodes.end(), [&](const Node& n) { return n.id == node; });
  if (used_cpus.empty() || at == machine.nodes.end() || !all_state(used_cpus, kKinds[kNode])) return "";
  const std::set<int> nodes = parts(used_cpus, kKinds[kNode].part);
  if (nodes.size() != 1) return "";
  if (*nodes.begin() == node) return "local";
  if (at->cpus.empty()) return "without CPUs";
  const std::vector<Cpu> node_cpus = described(machine, at->cpus);
  if (!all_state(used_cpus, kKinds[kSocket]) || node_cpus.empty() || !all_state(node_cpus, kKinds[kSocket])) return "";
  const std::set<int> sockets = parts(used_cpus, kKinds[kSocket].part);
  return sockets == parts(node_cpus, kKinds[kSocket].part) ? "same socket" : "other socket";
}

std::string level_of(const Machine& machine, const std::vector<int>& cpus, std::size_t bytes) {
  const std::vector<Cpu> used_cpus = described(machine, cpus);
  if (used_cpus.empty() || bytes == 0 || machine.caches.empty()) return "";
  const std::size_t last = machine.caches.size() - 1;
  bool beyond_former = true;
  for (std::size_t i = 0; i <= last; ++i) {
    const CacheLevel& cache = machine.caches[i];
    // CPUs with the same `Cpu::l3` share the last of several levels; CPUs of one core share the other levels.
    const auto shared_part = i == last && last > 0 ? kKinds[kCache].part : kKinds[kCore].part;
    const std::size_t used_bytes = bytes * most_in_one(used_cpus, shared_part);
    if (used_bytes <= cache.bytes) return beyond_former ? "L" + std::to_string(cache.level) : "";
    beyond_former = used_bytes >= 2 * cache.bytes;
  }
  return beyond_former ? "memory" : "";
}

}  // namespace mm

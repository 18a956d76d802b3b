/// Reads from a tree of /sys what `machine_of_tree` leaves out: caches, and the CPUs near each node.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/topology/topology.hpp"
#include "sys/files.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::int64_t kMaxIndex = 16;  // limit of the indices of a CPU's caches
constexpr std::int64_t kMaxNode = 1 << 16;

std::string cpu_folder(const std::string& root, int cpu) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
}

/// Reads a size such as 32K and returns it in bytes; 0 if the file contains anything else.
std::uint64_t size_in(const std::string& path) {
  std::string text = first_line(path);
  std::uint64_t unit = 1;
  for (const auto& [letter, bytes] : {std::pair{'K', 1u << 10}, std::pair{'M', 1u << 20}, std::pair{'G', 1u << 30}})
    if (text.ends_with(letter)) unit = bytes;
  if (unit > 1) text.pop_back();
  const std::int64_t number = whole_number(text, 0);
  return number <= 0 || number > std::int64_t{1} << 31 ? 0 : unit * static_cast<std::uint64_t>(number);
}

std::uint64_t positive_in(const std::string& path) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(number_in(path, 0), 0));
}

/// Returns the number of ways of a cache. Linux kernels state 0 or -1 for a fully associative or unknown cache; then
/// the number follows from the sizes, unless the cache has only one set.
std::uint64_t ways_in(const std::string& at, const Cache& cache) {
  if (const std::int64_t stated_ways = number_in(at + "ways_of_associativity", 0); stated_ways > 0)
    return static_cast<std::uint64_t>(stated_ways);
  const std::uint64_t sets = positive_in(at + "number_of_sets");
  const std::uint64_t lines = std::max<std::uint64_t>(positive_in(at + "physical_line_partition"), 1);
  return sets < 2 || cache.line_bytes == 0 ? 0 : cache.bytes / cache.line_bytes / lines / sets;
}

std::string kind_of(const std::string& type) {
  return type == "Data" ? "data" : type == "Instruction" ? "instruction" : type == "Unified" ? "unified" : "";
}

/// Returns the CPUs of the nodes in `nodeN/accessCLASS/initiators`. Initiators of class 1 are always CPUs; initiators
/// of class 0 may be devices.
std::vector<int> cpus_of_initiators(const std::string& node_folder, int node, const Machine& machine) {
  for (const char* access : {"access1", "access0"}) {
    const auto initiators = numbered_names(node_folder + access + "/initiators", "node", kMaxNode);
    std::vector<int> cpus;
    for (const Node& other : machine.nodes)
      if (other.id != node && std::binary_search(initiators.begin(), initiators.end(), other.id))
        cpus = all_ids(cpus, other.cpus);
    if (!initiators.empty()) return cpus;
  }
  return {};
}

/// Returns the CPUs of the nodes that are nearest to a memory-only node by the firmware's distances.
std::vector<int> nearest_cpus(const Machine& machine, std::size_t node) {
  if (machine.distance_from.empty()) return {};
  double shortest = std::numeric_limits<double>::infinity();
  std::vector<int> cpus;
  for (std::size_t other = 0; other < machine.nodes.size(); ++other) {
    const double distance = machine.distance[node][other];
    if (machine.nodes[other].cpus.empty() || distance > shortest) continue;
    if (distance < shortest) cpus.clear();
    shortest = distance;
    cpus = all_ids(cpus, machine.nodes[other].cpus);
  }
  return cpus;
}

void read_near_cpus(const std::string& root, Machine& machine) {
  const std::vector<int> online = machine.ids();
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    Node& node = machine.nodes[i];
    const std::string folder = root + "/sys/devices/system/node/node" + std::to_string(node.id) + "/";
    node.near = all_ids(node.cpus, cpus_of_initiators(folder, node.id, machine));
    if (node.near.empty()) node.near = nearest_cpus(machine, i);
    node.near = common_ids(node.near, online);
  }
}

using CacheKey = std::tuple<int, std::string, std::vector<int>>;

/// Adds the caches of a SPARC machine, whose tree has their sizes in the folder of each CPU. It does not state which
/// CPUs share them, so they are attributed to the core.
void add_sparc_caches(const std::string& folder, const std::vector<int>& core, std::map<CacheKey, Cache>& caches) {
  struct Names {
    int level;
    const char *kind, *prefix;
  };
  for (const auto& [level, kind, prefix] :
       {Names{1, "data", "l1_dcache_"}, Names{1, "instruction", "l1_icache_"}, Names{2, "unified", "l2_cache_"}})
    if (const std::uint64_t bytes = size_in(folder + prefix + "size"); bytes > 0)
      caches.try_emplace({level, kind, core},
                         Cache{level, kind, bytes, positive_in(folder + prefix + "line_size"), 0, core});
}

}  // namespace

std::vector<Cache> caches_of_tree(const std::string& root, const Machine& machine) {
  const std::vector<int> online = machine.ids();
  std::map<int, std::vector<int>> cores;  // CPUs by the dense number of their core
  for (const Cpu& cpu : machine.cpus) cores[cpu.core].push_back(cpu.id);
  // CPUs whose cache of a level and kind was read. Indices differ between cores if some of them lack a level.
  std::map<std::pair<std::int64_t, std::string>, std::set<int>> covered_by_kind;
  std::map<CacheKey, Cache> caches;
  for (const Cpu& cpu : machine.cpus) {
    const std::string folder = cpu_folder(root, cpu.id) + "cache/";
    const std::vector<int> indices = numbered_names(folder, "index", kMaxIndex);
    if (indices.empty()) add_sparc_caches(cpu_folder(root, cpu.id), cores[cpu.core], caches);
    for (const int index : indices) {
      const std::string at = folder + "index" + std::to_string(index) + "/";
      const std::int64_t level = number_in(at + "level", -1);
      const std::string kind = kind_of(first_line(at + "type"));
      if (level < 1 || level > 9 || kind.empty()) continue;
      std::set<int>& covered_cpus = covered_by_kind[{level, kind}];
      if (covered_cpus.contains(cpu.id)) continue;
      const auto listed_cpus = ids_in(at, {kCacheCpus}, [&](const std::vector<int>& ids) {
        return ids.empty() || (std::binary_search(ids.begin(), ids.end(), cpu.id) &&
                               std::none_of(ids.begin(), ids.end(), [&](int id) { return covered_cpus.contains(id); }));
      });
      if (!listed_cpus) continue;  // which CPUs share it is unknown
      // Linux on Itanium has empty sets for some caches, which belong to one core.
      const std::vector<int> cpus = listed_cpus->empty() ? cores[cpu.core] : common_ids(*listed_cpus, online);
      covered_cpus.insert(cpus.begin(), cpus.end());
      Cache cache{
          static_cast<int>(level), kind, size_in(at + "size"), positive_in(at + "coherency_line_size"), 0, cpus};
      cache.ways = ways_in(at, cache);
      caches.try_emplace({cache.level, kind, cpus}, std::move(cache));
    }
  }
  std::vector<Cache> all;
  all.reserve(caches.size());
  for (auto& [key, cache] : caches) all.push_back(std::move(cache));
  return all;
}

Machine described_tree(const std::string& root) {
  Machine machine = machine_of_tree(root);
  if (machine.cpus.empty()) return machine;
  machine.all_caches = caches_of_tree(root, machine);
  read_near_cpus(root, machine);
  set_kinds(machine, kinds_of_tree(root, machine));
  add_doubts(machine);
  return machine;
}

}  // namespace mm

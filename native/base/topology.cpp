#include "topology.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "error.hpp"
#include "hwloc_handle.hpp"
#include "team.hpp"

namespace mm {

hwloc_topology_t hwloc_handle() {
  static const hwloc_topology_t handle = [] {
    hwloc_topology_t t = nullptr;
    if (hwloc_topology_init(&t) != 0 || hwloc_topology_load(t) != 0)
      throw Failure("hwloc cannot read this machine's topology");
    return t;
  }();
  return handle;
}

namespace {

int index_of(hwloc_obj_t pu, hwloc_obj_type_t type) {
  const hwloc_obj_t o = hwloc_get_ancestor_obj_by_type(hwloc_handle(), type, pu);
  return o != nullptr ? static_cast<int>(o->logical_index) : 0;
}

Topology read() {
  Topology result;
  const auto t = hwloc_handle();
  const std::vector<int> allowed = allowed_cpus();
  std::map<int, int> seen_on_core;
  for (int id : allowed) {
    const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(t, static_cast<unsigned>(id));
    if (pu == nullptr) continue;
    Cpu cpu{id, index_of(pu, HWLOC_OBJ_CORE), index_of(pu, HWLOC_OBJ_PACKAGE), 0, 0};
    hwloc_obj_t node = nullptr;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)) != nullptr)
      if (hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(id))) {
        cpu.node = static_cast<int>(node->os_index);
        if (node->attr->numanode.local_memory > 0) break;
      }
    cpu.smt = seen_on_core[cpu.core]++;
    result.cpus.push_back(cpu);
  }
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)) != nullptr)
    if (node->attr->numanode.local_memory > 0) result.memory_nodes.push_back(static_cast<int>(node->os_index));
  std::sort(result.memory_nodes.begin(), result.memory_nodes.end());
  if (!allowed.empty())
    for (hwloc_obj_t o = hwloc_get_pu_obj_by_os_index(t, static_cast<unsigned>(allowed.front())); o != nullptr;
         o = o->parent)
      if (hwloc_obj_type_is_dcache(o->type))
        result.caches.push_back({static_cast<int>(o->attr->cache.depth), static_cast<std::size_t>(o->attr->cache.size),
                                 hwloc_bitmap_weight(o->cpuset), o->attr->cache.linesize});
  if (!result.caches.empty()) {
    const int depth =
        hwloc_get_cache_type_depth(t, static_cast<unsigned>(result.caches.back().level), HWLOC_OBJ_CACHE_UNIFIED);
    const int instances = depth >= 0 ? static_cast<int>(hwloc_get_nbobjs_by_depth(t, depth)) : 1;
    result.all_last_level_bytes = result.caches.back().bytes * static_cast<std::size_t>(std::max(1, instances));
  }
  return result;
}

}  // namespace

const Topology& topology() {
  static const Topology t = read();
  return t;
}

const Cpu& Topology::cpu(int id) const {
  for (const Cpu& c : cpus)
    if (c.id == id) return c;
  throw UsageError("cpus", "cpu " + std::to_string(id) + " is not available to this process");
}

std::size_t Topology::cache_bytes(int level) const {
  for (const CacheLevel& c : caches)
    if (c.level == level) return c.bytes;
  return 0;
}

std::size_t Topology::last_level_bytes() const { return caches.empty() ? 0 : caches.back().bytes; }

std::vector<int> fill_order(const std::string& how, const std::vector<int>& among) {
  const Topology& t = topology();
  std::vector<Cpu> order;
  for (int id : among) order.push_back(t.cpu(id));
  std::map<int, std::map<int, int>> rank;  // package → core → its place within the package
  for (const Cpu& c : order) rank[c.package].emplace(c.core, 0);
  for (auto& [package, cores] : rank) {
    int i = 0;
    for (auto& [core, place] : cores) place = i++;
  }
  const auto key = [&](const Cpu& c) {
    const int place = rank[c.package][c.core];
    if (how == "compact") return std::tuple{c.package, place, c.smt, c.id};
    if (how == "cores") return std::tuple{c.smt, c.package, place, c.id};
    if (how == "spread") return std::tuple{c.smt, place, c.package, c.id};
    throw UsageError("fill", "found " + quote(how), "compact, cores, spread");
  };
  std::stable_sort(order.begin(), order.end(), [&](const Cpu& a, const Cpu& b) { return key(a) < key(b); });
  std::vector<int> ids;
  for (const Cpu& c : order) ids.push_back(c.id);
  return ids;
}

}  // namespace mm

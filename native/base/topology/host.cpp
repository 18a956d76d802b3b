#include <algorithm>

#include "error.hpp"
#include "hwloc_reader.hpp"
#include "team.hpp"

namespace mm {
namespace {

/// Data and unified caches around the first CPU that may be used, the nearest first.
void read_caches(hwloc_topology_t t, Machine& machine) {
  if (machine.allowed.empty()) return;
  hwloc_obj_t last = nullptr;
  for (hwloc_obj_t o = hwloc_get_pu_obj_by_os_index(t, static_cast<unsigned>(machine.allowed.front())); o != nullptr;
       o = o->parent)
    if (hwloc_obj_type_is_dcache(o->type)) {
      machine.caches.push_back({static_cast<int>(o->attr->cache.depth), static_cast<std::size_t>(o->attr->cache.size)});
      last = o;
    }
  if (last == nullptr) return;
  std::size_t instances = 0;
  const hwloc_const_cpuset_t group = hwloc_topology_get_allowed_cpuset(t);
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(t, last->type, o)) != nullptr;)
    if (hwloc_bitmap_intersects(o->cpuset, group) != 0) ++instances;
  machine.all_last_level_bytes = machine.caches.back().bytes * std::max<std::size_t>(1, instances);
}

Machine read_host(hwloc_topology_t t) {
  Machine machine = read_machine(t, "host");
  machine.allowed = online_of(machine, allowed_cpus());
  machine.group = online_of(machine, ids(hwloc_topology_get_allowed_cpuset(t)));
  return machine;
}

}  // namespace

hwloc_topology_t hwloc_handle() {
  static const hwloc_topology_t handle = load_host({.caches = true}).release();
  return handle;
}

const Machine& topology() {
  static const Machine machine = [] {
    Machine host = read_host(hwloc_handle());
    read_caches(hwloc_handle(), host);
    return host;
  }();
  return machine;
}

Machine host_machine() {
  const HwlocHandle handle = load_host({});
  Machine machine = read_host(handle.get());
  if (machine.allowed.empty()) throw Failure("hwloc shows no CPU that this process may use: HWLOC_* variables set?");
  return machine;
}

std::vector<Device> host_devices() {
  const HwlocHandle handle = load_host({.devices = true});
  return read_devices(handle.get());
}

std::vector<int> fill_order(const std::string& how, const std::vector<int>& among) {
  return fill_order(topology(), how, among);
}

}  // namespace mm

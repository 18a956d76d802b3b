#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/resources/team.hpp"
#include "base/topology/readers/hwloc_reader.hpp"
#include "sys/id_sets.hpp"

namespace mm {
namespace {

/// Sets the data and unified caches of the first allowed CPU, for a machine that hwloc did not read.
void take_caches(Machine& machine) {
  if (machine.allowed.empty()) return;
  for (const Cache& cache : machine.all_caches) {
    if (cache.kind == "instruction" || cache.bytes == 0 ||
        !std::binary_search(cache.cpus.begin(), cache.cpus.end(), machine.allowed.front()))
      continue;
    machine.caches.push_back({cache.level, cache.bytes});
  }
  if (machine.caches.empty()) return;
  std::size_t instances = 0;
  for (const Cache& cache : machine.all_caches)
    if (cache.level == machine.caches.back().level && cache.kind != "instruction") ++instances;
  machine.all_last_level_bytes = machine.caches.back().bytes * std::max<std::size_t>(1, instances);
}

/// Sets the data and unified caches of the first allowed CPU, the nearest first.
void read_caches(hwloc_topology_t t, Machine& machine) {
  if (machine.allowed.empty()) return;
  if (!machine.all_caches.empty()) {
    take_caches(machine);
    return;
  }
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
  for (const hwloc_obj_t o : cache_objects(t))
    if (o->type == last->type && hwloc_bitmap_intersects(o->cpuset, group) != 0) ++instances;
  machine.all_last_level_bytes = machine.caches.back().bytes * std::max<std::size_t>(1, instances);
}

/// Returns the root of the tree that hwloc reads as this host; "" if it reads the files of this host itself.
std::string root_of_hwloc() {
  const char* root = std::getenv("HWLOC_FSROOT");
  return root == nullptr || std::string(root) == "/" ? "" : root;
}

/// Returns whether hwloc describes the machine of `root_of_hwloc()` rather than XML or a description from its
/// environment.
bool is_from_tree() { return std::getenv("HWLOC_XMLFILE") == nullptr && std::getenv("HWLOC_SYNTHETIC") == nullptr; }

/// Reads this host from the files of the Linux kernel alone, for hosts whose files hwloc does not read.
Machine host_by_tree() {
  const std::string root = root_of_hwloc();
  Machine machine = described_tree(root);
  machine.origin = "host";
  machine.offline.clear();
  std::map<int, int> l3;
  for (const Cache& cache : machine.all_caches)
    if (cache.level == 3 && cache.kind == "unified")
      for (const int cpu : cache.cpus) l3.emplace(cpu, cache.cpus.front());
  const bool has_l3 = l3.size() == machine.cpus.size();
  for (Cpu& cpu : machine.cpus) cpu.has_l3 = has_l3, cpu.l3 = has_l3 ? l3[cpu.id] : cpu.package;
  for (const Node& node : machine.nodes)
    if (!node.bytes || *node.bytes > 0) machine.memory_nodes.push_back(node.id);
  machine.group = machine.ids();
  return machine;
}

Machine read_host(hwloc_topology_t t) {
  Machine machine = read_machine(t, "host");
  const std::vector<int> usable = allowed_cpus();
  // hwloc omits CPUs that the list of online CPUs lacks, as in containers with LXCFS.
  const bool lacks_cpus = root_of_hwloc().empty() && !ids_without(usable, machine.ids()).empty();
  Machine by_tree;
  if (is_from_tree() && (lacks_cpus || has_empty_node_folder())) by_tree = host_by_tree();
  if (!by_tree.cpus.empty()) {
    machine = std::move(by_tree);
  } else {
    machine.group = online_of(machine, ids(hwloc_topology_get_allowed_cpuset(t)));
    if (is_from_tree()) set_kinds(machine, kinds_of_tree(root_of_hwloc(), machine));
  }
  machine.allowed = online_of(machine, usable);
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
  Machine machine;
  if (has_empty_node_folder()) {
    machine = host_by_tree();
    machine.allowed = online_of(machine, allowed_cpus());
  } else {
    machine = read_host(load_host({}).get());
  }
  if (machine.allowed.empty())
    throw Failure("the topology has none of the CPUs that this process may use (" + cpu_list(allowed_cpus()) +
                  "): are HWLOC_* variables set, or does a container's file system such as LXCFS replace the list of "
                  "online CPUs?");
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

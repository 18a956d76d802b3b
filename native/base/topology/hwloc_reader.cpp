#include "hwloc_reader.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "error.hpp"
#include "numbering.hpp"

namespace mm {
namespace {

constexpr std::size_t kMaxNodes = 1024;

using Matrix = std::vector<std::vector<double>>;

/// Objects of NUMA nodes, and the nodes, in the same order.
std::vector<hwloc_obj_t> read_nodes(hwloc_topology_t t, Machine& machine) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o)) != nullptr;)
    objects.push_back(o);
  if (objects.size() > kMaxNodes)
    throw UsageError("topology", "found " + std::to_string(objects.size()) + " NUMA nodes", "up to 1024");
  std::sort(objects.begin(), objects.end(), [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(t);
  for (const hwloc_obj_t o : objects) {
    machine.nodes.push_back({static_cast<int>(o->os_index), o->attr->numanode.local_memory, {}});
    if (o->attr->numanode.local_memory > 0 && hwloc_bitmap_isset(allowed, o->os_index) != 0)
      machine.memory_nodes.push_back(static_cast<int>(o->os_index));
  }

  // Memory of another kind (CXL, HBM) hangs at the same CPUs as the node that owns them, so each CPU belongs to the
  // smallest node around it, and among equals to the first.
  std::vector<std::size_t> order(objects.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return hwloc_bitmap_weight(objects[a]->cpuset) < hwloc_bitmap_weight(objects[b]->cpuset);
  });
  std::map<int, int> owner;
  for (const std::size_t i : order)
    for (const int cpu : ids(objects[i]->cpuset))
      if (owner.emplace(cpu, machine.nodes[i].id).second) machine.nodes[i].cpus.push_back(cpu);
  return objects;
}

std::optional<Matrix> read_distances(hwloc_topology_t t, const std::vector<hwloc_obj_t>& nodes) {
  const std::size_t count = nodes.size();
  unsigned found = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(t, "NUMALatency", &found, &matrix, 0) != 0 || found == 0) return std::nullopt;
  std::vector<int> at;
  if (matrix->nbobjs == count)
    for (const hwloc_obj_t node : nodes) at.push_back(hwloc_distances_obj_index(matrix, node));
  std::optional<Matrix> distance;
  if (!at.empty() && std::all_of(at.begin(), at.end(), [](int i) { return i >= 0; })) {
    distance.emplace(count, std::vector<double>(count));
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count; ++j)
        (*distance)[i][j] = static_cast<double>(
            matrix->values[static_cast<std::size_t>(at[i]) * count + static_cast<std::size_t>(at[j])]);
  }
  hwloc_distances_release(t, matrix);
  return distance;
}

/// XML states what is unique among objects, so only their addresses are sure to be.
std::uint64_t key(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

int os_index(hwloc_obj_t object) {
  return object == nullptr || object->os_index == HWLOC_UNKNOWN_INDEX ? -1 : static_cast<int>(object->os_index);
}

}  // namespace

HwlocHandle empty_hwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Failure("hwloc cannot start");
  HwlocHandle handle(raw, hwloc_topology_destroy);
  hwloc_topology_set_flags(
      raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
  return handle;
}

HwlocHandle empty_hwloc_without_plugins() {
  constexpr const char* kPlugins = "HWLOC_PLUGINS_PATH";
  const char* before = std::getenv(kPlugins);
  const std::optional<std::string> saved = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
  setenv(kPlugins, "/proc/nonexistent", 1);
  HwlocHandle handle = empty_hwloc();
  saved ? setenv(kPlugins, saved->c_str(), 1) : unsetenv(kPlugins);
  return handle;
}

HwlocHandle load_host(const Wanted& wanted) {
  HwlocHandle handle = empty_hwloc_without_plugins();
  hwloc_topology_t t = handle.get();
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const auto type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE})
    hwloc_topology_set_type_filter(t, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);  // NUMA nodes hang at them
  if (wanted.devices) hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (wanted.caches)
    for (const auto type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE})
      hwloc_topology_set_type_filter(t, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  else  // binds this thread to every CPU in turn to read its CPUID; sysfs states all but some guests' caches
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(t) != 0) throw Failure("hwloc cannot read this machine's topology");
  return handle;
}

std::vector<int> ids(hwloc_const_bitmap_t set) {
  std::vector<int> found;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) found.push_back(i);
  return found;
}

std::vector<int> online_of(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<int> both;
  for (const Cpu& c : machine.cpus)
    if (std::binary_search(cpus.begin(), cpus.end(), c.id)) both.push_back(c.id);
  return both;
}

std::vector<Device> read_devices(hwloc_topology_t t) {
  std::vector<Device> devices;
  const auto add = [&](const std::string& name, hwloc_obj_t object) {
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(t, object);
    if (near != nullptr && near->cpuset != nullptr) devices.push_back({name, ids(near->cpuset)});
  };
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(t, o)) != nullptr;)
    if (o->name != nullptr) add(o->name, o);
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_pcidev(t, o)) != nullptr;) {
    const auto& a = o->attr->pcidev;
    char name[32];
    std::snprintf(name, sizeof name, "%04x:%02x:%02x.%01x", static_cast<unsigned>(a.domain),
                  static_cast<unsigned>(a.bus), static_cast<unsigned>(a.dev), static_cast<unsigned>(a.func));
    add(name, o);
  }
  return devices;
}

Machine read_machine(hwloc_topology_t t, const std::string& origin) {
  Machine machine;
  machine.origin = origin;
  Numbering numbering;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, pu);
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_CORE, pu);
    const hwloc_obj_t l3 = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_L3CACHE, pu);
    Cpu cpu = numbering.add(static_cast<int>(pu->os_index),
                            {key(core != nullptr ? core : pu), key(package), key(l3 != nullptr ? l3 : package)});
    cpu.core_id = os_index(core);
    cpu.package_id = os_index(package);
    machine.cpus.push_back(cpu);
  }
  if (machine.cpus.empty() || machine.cpus.size() > kMaxCpus)
    throw UsageError("topology", "found " + std::to_string(machine.cpus.size()) + " CPUs", "1 to 65536");
  const std::vector<hwloc_obj_t> nodes = read_nodes(t, machine);
  finish(machine, read_distances(t, nodes));
  return machine;
}

}  // namespace mm

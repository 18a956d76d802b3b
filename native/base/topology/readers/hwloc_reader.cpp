#include "base/topology/readers/hwloc_reader.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/error.hpp"
#include "base/topology/kinds.hpp"
#include "base/topology/numbering.hpp"
#include "sys/files.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::size_t kMaxNodes = 1024;

using Matrix = std::vector<std::vector<double>>;

/// Adds the NUMA nodes to the machine. Returns their objects in the same order.
std::vector<hwloc_obj_t> read_nodes(hwloc_topology_t t, Machine& machine) {
  std::vector<hwloc_obj_t> objects;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o)) != nullptr;)
    objects.push_back(o);
  if (objects.size() > kMaxNodes)
    throw UsageError("topology", "found " + std::to_string(objects.size()) + " NUMA nodes", "up to 1024");
  std::sort(objects.begin(), objects.end(), [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  const hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(t);
  for (const hwloc_obj_t o : objects) {
    machine.nodes.push_back({static_cast<int>(o->os_index), o->attr->numanode.local_memory, {}, ids(o->cpuset)});
    if (o->attr->numanode.local_memory > 0 && hwloc_bitmap_isset(allowed, o->os_index) != 0)
      machine.memory_nodes.push_back(static_cast<int>(o->os_index));
  }

  // Memory of another kind (CXL, HBM) is attached to the same CPUs as the node that owns them, so each CPU belongs to
  // the smallest node that contains it, and to the first one of several nodes of that size.
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

/// Returns whether `meshmark export hwloc-xml` added the matrix: its measured latencies are not distances of the
/// machine.
bool is_measured(hwloc_topology_t t, hwloc_distances_s* matrix) {
  const char* name = hwloc_distances_get_name(t, matrix);
  return name != nullptr && std::string(name) == "load_latency_ns";
}

/// Returns the rank of a matrix of latencies between nodes; the lowest rank is preferred. hwloc names the firmware's
/// matrix NUMALatency; in XML of hwloc 1, and after hwloc-annotate, it has no name.
int rank_of_matrix(hwloc_topology_t t, hwloc_distances_s* matrix) {
  const char* name = hwloc_distances_get_name(t, matrix);
  if (name != nullptr && std::string(name) == "NUMALatency") return 0;
  return name == nullptr && (matrix->kind & HWLOC_DISTANCES_KIND_FROM_OS) != 0 ? 1 : 2;
}

std::optional<Matrix> square(hwloc_distances_s* matrix, const std::vector<hwloc_obj_t>& nodes) {
  const std::size_t count = nodes.size();
  if (matrix->nbobjs != count) return std::nullopt;
  std::vector<std::size_t> positions;
  for (const hwloc_obj_t node : nodes) {
    const int index = hwloc_distances_obj_index(matrix, node);
    if (index < 0) return std::nullopt;
    positions.push_back(static_cast<std::size_t>(index));
  }
  Matrix distance(count, std::vector<double>(count));
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < count; ++j)
      distance[i][j] = static_cast<double>(matrix->values[positions[i] * count + positions[j]]);
  return distance;
}

/// Returns the best matrix of latencies that covers all nodes. Adds a doubt if only other matrices exist.
std::optional<Matrix> read_distances(hwloc_topology_t t, const std::vector<hwloc_obj_t>& nodes, Machine& machine) {
  unsigned count = 0;
  const unsigned long kind = HWLOC_DISTANCES_KIND_MEANS_LATENCY;
  if (hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &count, nullptr, kind, 0) != 0 || count == 0)
    return std::nullopt;
  std::vector<hwloc_distances_s*> matrices(count);
  if (hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &count, matrices.data(), kind, 0) != 0) return std::nullopt;
  matrices.resize(std::min<std::size_t>(count, matrices.size()));
  std::optional<Matrix> best;
  int best_rank = 3;
  bool has_matrix = false;
  for (hwloc_distances_s* matrix : matrices) {
    if (!is_measured(t, matrix)) {
      has_matrix = true;
      const int rank = rank_of_matrix(t, matrix);
      if (auto distance = square(matrix, nodes); distance && rank < best_rank)
        best = std::move(distance), best_rank = rank;
    }
    hwloc_distances_release(t, matrix);
  }
  if (!best && has_matrix) {
    const std::string size = std::to_string(nodes.size());
    machine.doubts.push_back("node distances are not a " + size + " x " + size + " matrix: ignored");
  }
  return best;
}

/// Returns a number that is unique among objects: the address, because XML may state any other number wrongly.
std::uint64_t key(const void* object) { return reinterpret_cast<std::uintptr_t>(object); }

int os_index(hwloc_obj_t object) {
  return object == nullptr || object->os_index == HWLOC_UNKNOWN_INDEX ? -1 : static_cast<int>(object->os_index);
}

const char* kind_of(hwloc_obj_cache_type_t type) {
  return type == HWLOC_OBJ_CACHE_DATA ? "data" : type == HWLOC_OBJ_CACHE_INSTRUCTION ? "instruction" : "unified";
}

/// Returns the traits that hwloc states for a kind of CPUs, in the form in which a tree of such a machine states them.
Traits traits_of(const hwloc_info_s* infos, unsigned count) {
  Traits traits;
  for (unsigned i = 0; i < count; ++i) {
    const std::string name = infos[i].name, value = infos[i].value;
    if (name == "CoreType" && value == "IntelCore") traits.pmu = "cpu_core";
    if (name == "CoreType" && value == "IntelAtom") traits.pmu = "cpu_atom", traits.rank = 1;
    if (name == "CoreType" && value == "IntelLowPower") traits.pmu = "cpu_lowpower", traits.rank = 2;
    if (name == "FrequencyMaxMHz") traits.max_hz = whole_number(value, -1) * 1'000'000;
    if (name == "LinuxCapacity") traits.capacity = whole_number(value, -1);
    if (name == "LinuxCPUCompatible" || name == "DarwinCompatible" || name == "ArmMIDR") traits.model = value;
  }
  return traits;
}

std::vector<CoreKind> read_kinds(hwloc_topology_t t, const Machine& machine) {
  TraitsByCpu traits;
  for (const Cpu& cpu : machine.cpus) traits[cpu.id] = {};
  const int count = hwloc_cpukinds_get_nr(t, 0);
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> set(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (int i = 0; i < count; ++i) {
    int efficiency = -1;
    unsigned infos = 0;
    hwloc_info_s* info = nullptr;
    if (hwloc_cpukinds_get_info(t, static_cast<unsigned>(i), set.get(), &efficiency, &infos, &info, 0) != 0) continue;
    Traits kind = traits_of(info, infos);
    if (kind.pmu.empty() && kind.capacity < 0 && kind.max_hz < 0 && efficiency >= 0) kind.rank = count - efficiency;
    for (const int cpu : ids(set.get()))
      if (const auto at = traits.find(cpu); at != traits.end()) at->second = kind;
  }
  return kinds_by_traits(traits);
}

}  // namespace

HwlocHandle empty_hwloc(bool with_kinds) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Failure("hwloc cannot start");
  HwlocHandle handle(raw, hwloc_topology_destroy);
  unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS;
  if (!with_kinds) flags |= HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
  hwloc_topology_set_flags(raw, flags);
  return handle;
}

bool has_empty_node_folder() {
  const char* root = std::getenv("HWLOC_FSROOT");
  const std::string folder = (root == nullptr ? std::string() : std::string(root)) + "/sys/devices/system/node";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return false;
  const auto online = ids_in(folder + "/", {{"online", ""}});
  return online ? online->empty() : numbered_names(folder, "node", kMaxCpus).empty();
}

HwlocHandle empty_hwloc_without_plugins() {
  constexpr const char* kPlugins = "HWLOC_PLUGINS_PATH";
  const char* plugins_path = std::getenv(kPlugins);
  const std::optional<std::string> saved =
      plugins_path != nullptr ? std::optional<std::string>(plugins_path) : std::nullopt;
  setenv(kPlugins, "/proc/nonexistent", 1);
  HwlocHandle handle = empty_hwloc();
  saved ? setenv(kPlugins, saved->c_str(), 1) : unsetenv(kPlugins);
  return handle;
}

HwlocHandle load_host(const Wanted& wanted) {
  HwlocHandle handle = empty_hwloc_without_plugins();
  hwloc_topology_t t = handle.get();
  // With an empty folder of nodes, hwloc's component for Linux would end the process by an assertion.
  if (has_empty_node_folder()) hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux");
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const auto type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE})
    hwloc_topology_set_type_filter(t, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP,
                                 HWLOC_TYPE_FILTER_KEEP_STRUCTURE);  // NUMA nodes are attached to them
  if (wanted.devices) hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (wanted.caches)
    for (const auto type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE})
      hwloc_topology_set_type_filter(t, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  else  // binds this thread to each CPU to read CPUID; sysfs lacks only the caches of some guests
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(t) != 0) throw Failure("hwloc cannot read this machine's topology");
  return handle;
}

std::vector<int> ids(hwloc_const_bitmap_t set) {
  std::vector<int> numbers;
  constexpr int kEnd = static_cast<int>(kMaxCpus);  // XML may contain infinite sets
  for (int i = hwloc_bitmap_first(set); i >= 0 && i < kEnd; i = hwloc_bitmap_next(set, i)) numbers.push_back(i);
  return numbers;
}

std::vector<int> online_of(const Machine& machine, const std::vector<int>& cpus) {
  std::vector<int> online_cpus;
  for (const Cpu& c : machine.cpus)
    if (std::binary_search(cpus.begin(), cpus.end(), c.id)) online_cpus.push_back(c.id);
  return online_cpus;
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
    cpu.has_core = core != nullptr;
    cpu.has_package = package != nullptr;
    cpu.has_l3 = l3 != nullptr;
    machine.cpus.push_back(cpu);
  }
  if (machine.cpus.empty() || machine.cpus.size() > kMaxCpus)
    throw UsageError("topology", "found " + std::to_string(machine.cpus.size()) + " CPUs", "1 to 65536");
  const std::vector<hwloc_obj_t> nodes = read_nodes(t, machine);
  finish(machine, read_distances(t, nodes, machine));
  return machine;
}

std::vector<hwloc_obj_t> cache_objects(hwloc_topology_t t) {
  std::vector<hwloc_obj_t> caches;
  for (int depth = 0; depth < hwloc_topology_get_depth(t); ++depth)
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_depth(t, depth, o)) != nullptr;)
      if (hwloc_obj_type_is_cache(o->type) != 0) caches.push_back(o);
  return caches;
}

void describe_machine(hwloc_topology_t t, Machine& machine) {
  for (const hwloc_obj_t o : cache_objects(t)) {
    const auto& cache = o->attr->cache;
    machine.all_caches.push_back({static_cast<int>(cache.depth), kind_of(cache.type), cache.size, cache.linesize,
                                  static_cast<std::uint64_t>(std::max(cache.associativity, 0)), ids(o->cpuset)});
  }
  std::sort(machine.all_caches.begin(), machine.all_caches.end(), [](const Cache& a, const Cache& b) {
    return std::tie(a.level, a.kind, a.cpus) < std::tie(b.level, b.kind, b.cpus);
  });
  machine.unlisted = ids_without(ids(hwloc_topology_get_complete_cpuset(t)), machine.ids());
  set_kinds(machine, read_kinds(t, machine));
  add_doubts(machine);
}

}  // namespace mm

#pragma once
/// Machines from hwloc's objects.
#include <hwloc.h>

#include <memory>
#include <string>
#include <vector>

#include "base/topology/topology.hpp"

namespace mm {

using HwlocHandle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

inline constexpr std::size_t kMaxCpus = 65536;

/// Objects to load besides packages, cores, L3 and NUMA nodes.
struct Wanted {
  bool caches = false;  ///< all levels, by CPUID if sysfs has none
  bool devices = false;
};

/// Returns a topology that is not loaded yet. Its numbers are absolute, and it includes CPUs outside the cgroup.
HwlocHandle empty_hwloc(bool with_kinds = false);
/// Like empty_hwloc, but without hwloc's plugins (OpenCL, CUDA …), which load the libraries of their vendors before
/// they can be disabled.
HwlocHandle empty_hwloc_without_plugins();
/// Returns whether the Linux kernel's folder of nodes exists and is empty, as in some sandboxes: hwloc cannot read such
/// a host.
bool has_empty_node_folder();
/// Loads this host with the requested objects; without nodes if `has_empty_node_folder()`.
HwlocHandle load_host(const Wanted& wanted);
/// Returns the topology of a machine with all levels, as hwloc's own tools load it: without CPUs and nodes that are not
/// allowed. Throws UsageError for a recorded tree, which hwloc did not read.
HwlocHandle whole_hwloc(const Machine& machine);
/// Returns the topology of this host with its caches, which is loaded once.
hwloc_topology_t hwloc_handle();

/// Returns the machine that `machine_of` returns for "host".
Machine host_machine();

/// Reads CPUs, nodes and distances. The caller adds `allowed`, devices and caches.
Machine read_machine(hwloc_topology_t t, const std::string& origin);
/// Adds what `read_machine` leaves out: caches, kinds of cores, CPUs that are not listed, and doubts.
void describe_machine(hwloc_topology_t t, Machine& machine);
std::vector<Device> read_devices(hwloc_topology_t t);
std::vector<int> ids(hwloc_const_bitmap_t set);
/// Returns the caches of all kinds. hwloc's functions that search by type find no cache of a level whose caches are at
/// several depths.
std::vector<hwloc_obj_t> cache_objects(hwloc_topology_t t);
/// Returns the CPUs in `cpus` that are online in the machine.
std::vector<int> online_of(const Machine& machine, const std::vector<int>& cpus);

}  // namespace mm

#pragma once
/// Machines from hwloc's objects.
#include <hwloc.h>

#include <memory>
#include <string>
#include <vector>

#include "topology.hpp"

namespace mm {

using HwlocHandle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

inline constexpr std::size_t kMaxCpus = 65536;

/// Besides packages, cores, L3 and NUMA nodes.
struct Wanted {
  bool caches = false;  ///< all levels, where sysfs has none by CPUID
  bool devices = false;
};

/// An hwloc that is not loaded yet; numbers stay absolute and CPUs outside the cgroup are known.
HwlocHandle empty_hwloc(bool with_kinds = false);
/// The same without hwloc's plugins (OpenCL, CUDA …), which load their vendors' libraries before one can refuse them.
HwlocHandle empty_hwloc_without_plugins();
/// Whether the kernel's folder of nodes exists and is empty, as in some sandboxes: hwloc cannot read such a host.
bool has_empty_node_folder();
/// This host with what is wanted; without nodes where `has_empty_node_folder()`.
HwlocHandle load_host(const Wanted& wanted);
/// The topology of a machine with all levels, as hwloc's own tools load it: without CPUs and nodes that are not
/// allowed. Throws UsageError for a recorded tree, which hwloc did not read.
HwlocHandle whole_hwloc(const Machine& machine);
/// This host with its caches, loaded once.
hwloc_topology_t hwloc_handle();

/// What `machine_of` gives for "host".
Machine host_machine();

/// CPUs, nodes and distances; `allowed`, devices and caches are left to the caller.
Machine read_machine(hwloc_topology_t t, const std::string& origin);
/// Adds what a description states beyond that: caches, kinds of cores, CPUs that are not listed, and doubts.
void describe_machine(hwloc_topology_t t, Machine& machine);
std::vector<Device> read_devices(hwloc_topology_t t);
std::vector<int> ids(hwloc_const_bitmap_t set);
/// Caches of all kinds; hwloc's own functions by type find none where those of a level are at several depths.
std::vector<hwloc_obj_t> cache_objects(hwloc_topology_t t);
/// Those of the CPUs that are online.
std::vector<int> online_of(const Machine& machine, const std::vector<int>& cpus);

}  // namespace mm

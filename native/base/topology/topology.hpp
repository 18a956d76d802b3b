#pragma once
/// CPUs, cores, packages, NUMA nodes, distances and caches of a machine. Sources are hwloc (this host, a synthetic
/// description, XML) and trees of /proc and /sys. Numbers of CPUs and nodes are the absolute numbers of the operating
/// system, never relative to a cgroup, unless a name says so.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mm {

struct Cpu {
  int id;                             ///< OS index
  int core, package;                  ///< dense from 0, in hwloc's order
  int l3;                             ///< likewise; one per package if `has_l3` is false
  int node;                           ///< OS index of its NUMA node; the first node with CPUs if `has_node` is false
  int smt;                            ///< 0 for the first online CPU of its core, 1 for the second …
  int core_id = -1, package_id = -1;  ///< OS indices, which may repeat in other packages or have gaps; -1: unknown
  int kind = -1;                      ///< index into `Machine::kinds`; -1 if all cores are alike or the kind is unknown
  /// True if the source states its core, package, L3 or node. Otherwise, the number above is a default: a separate
  /// core, one package for all CPUs without a stated package, and so on.
  bool has_core = true, has_package = true, has_l3 = true, has_node = true;
};

struct Node {
  int id;                              ///< OS index
  std::optional<std::uint64_t> bytes;  ///< total memory, B; 0: no memory; empty: the source does not state it
  std::vector<int> cpus;               ///< CPUs of the node, ascending; empty for a memory-only node
  std::vector<int> near;               ///< CPUs for which it is local, or the nearest CPUs; empty if unknown
};

struct CacheLevel {
  int level;
  std::size_t bytes;  ///< size of one instance, as the operating system reports it
};

/// One cache and the CPUs that share it. An unknown size, line size or number of ways is 0.
struct Cache {
  int level;
  std::string kind;  ///< data, instruction, unified
  std::uint64_t bytes, line_bytes, ways;
  std::vector<int> cpus;  ///< ascending
};

/// Cores that are alike, on a machine whose cores differ (P and E cores, big.LITTLE), the fastest kind first.
struct CoreKind {
  std::string name;            ///< performance, efficiency, …; unique
  std::vector<int> cpus;       ///< ascending
  std::int64_t capacity = -1;  ///< capacity of a CPU relative to 1024, as the Linux scheduler uses it; -1: unknown
  std::int64_t max_hz = -1;    ///< highest clock of a CPU, Hz; -1: unknown
  std::string pmu, model;      ///< cpu_core, cpu_atom …; name or number of the processor model; "": unknown
};

/// A network card, disk or accelerator, and the CPUs near it.
struct Device {
  std::string name;  ///< as hwloc names it: eth0, nvme0n1, 0000:3b:00.0
  std::vector<int> cpus;
};

struct Machine {
  /// host, cpuset (a part of the host for a layout, all of which is `allowed`), synthetic, xml, tree
  std::string origin;
  std::string source;        ///< the synthetic description or the XML; otherwise ""
  std::vector<Cpu> cpus;     ///< online CPUs, ascending id
  std::vector<int> offline;  ///< ids, ascending; only a tree states them
  /// CPUs that exist according to the XML but are not described, since they are offline or not allowed; ascending
  std::vector<int> unlisted;
  std::vector<int> allowed;  ///< ids that this process may use (host) or the description allows, ascending
  std::vector<int> group;  ///< ids that the control group of this process allows, regardless of its affinity; host only
  std::vector<Node> nodes;        ///< ascending id
  std::vector<int> memory_nodes;  ///< ids of allowed nodes that have memory, ascending; hwloc only
  std::vector<Device> devices;
  /// Distances [from][to] in the order of `nodes`: the firmware's (10 is local), or the values of `use_matrix` (less is
  /// nearer; infinite if its file has no value for a memory-only node). Never empty.
  std::vector<std::vector<double>> distance;
  /// Links between nodes on the shortest path [from][to], in the order of `nodes`; empty if no source states the graph.
  std::vector<std::vector<int>> link_hops;
  std::string distance_from;       ///< "firmware", "measured latency (s)" …; "" if all distances are assumed equal
  std::vector<CoreKind> kinds;     ///< empty if all cores are alike or the kinds are unknown
  std::vector<CacheLevel> caches;  ///< data or unified caches of the first allowed CPU, L1 first; `topology()` only
  std::size_t all_last_level_bytes = 0;       ///< sum over all allowed instances; `topology()` only
  std::vector<Cache> all_caches;              ///< by level, kind and CPUs; `described_tree()` and descriptions only
  std::optional<std::uint64_t> kernel_bytes;  ///< MemTotal of the machine; trees only
  std::vector<std::string> doubts;            ///< contradictions and gaps of the source, each a readable clause

  std::vector<int> ids() const;              ///< ids of the CPUs, ascending
  const Cpu& cpu(int id) const;              ///< throws UsageError if it is not online
  std::size_t node_at(int id) const;         ///< index into `nodes`; throws UsageError if no node has this id
  std::size_t cache_bytes(int level) const;  ///< 0 if unknown
  std::size_t last_level_bytes() const;
  /// Returns the hops [from][to] in the order of `nodes`: `link_hops`, or else the ranks of the distances among all
  /// distinct distances of different nodes (distances within 2 % count as one). A node is 0 hops from itself.
  std::vector<std::vector<int>> hops() const;
};

/// Returns this host with its caches, as instruments need it. It is read once.
const Machine& topology();
/// Returns the machine of `host`, a synthetic description (`pack:2 [numa] core:4 pu:2`) or a file of hwloc's XML.
/// Throws UsageError for anything else. With XML of this very host, `allowed` contains the CPUs that this process may
/// use. `host` is read with packages, cores, L3 and nodes only, because every job starts through it.
Machine machine_of(const std::string& topology);
/// Returns the devices of this host. `machine_of("host")` leaves them out, because finding them takes longer than all
/// the rest; `place` reads them if a request is `near` a device.
std::vector<Device> host_devices();
/// Returns the machine whose /proc and /sys are below `root`: a recorded tree, or this host if `root` is empty. hwloc
/// does not read it, because hwloc describes this host if a tree has no sysfs. The machine has no CPUs if the tree
/// states none. Caches, near CPUs, kinds of cores and most doubts are left out, because reading them takes longer than
/// the rest.
Machine machine_of_tree(const std::string& root);
/// Like `machine_of_tree`, but with everything that the tree states.
Machine described_tree(const std::string& root);
/// Returns the caches of a machine that was read from the tree below `root`, by level, kind and CPUs.
std::vector<Cache> caches_of_tree(const std::string& root, const Machine& machine);
/// Returns the kinds of cores according to the files below `root`; empty if all cores are alike.
std::vector<CoreKind> kinds_of_tree(const std::string& root, const Machine& machine);
/// Sets `Machine::kinds` and the kind of each CPU.
void set_kinds(Machine& machine, std::vector<CoreKind> kinds);
/// Returns the kinds of cores to which `cpus` belong, each with only these CPUs; empty if all cores are alike.
std::vector<CoreKind> kinds_of(const Machine& machine, const std::vector<int>& cpus);
/// Returns the names of these kinds, separated by commas, for the condition `core_kinds` of a result; "" if all cores
/// are alike.
std::string kind_names(const Machine& machine, const std::vector<int>& cpus);
/// Appends contradictions between the parts of a machine to its doubts.
void add_doubts(Machine& machine);

/// The name of a machine and a hash of its hardware: online CPUs, nodes, distances and processor model. Machines of the
/// same model have the same hash. The hash does not cover properties that vary between boots, such as the memory that
/// the Linux kernel reserves. It changes if a CPU is taken offline, because this changes what is measured.
struct Identity {
  std::string name;        ///< host name, with the characters that are valid in file names
  std::string hash;        ///< 12 hexadecimal digits; "" if no CPU is known
  std::string id() const;  ///< the name and 8 digits of the hash
};
/// Returns the identity of the machine whose /proc and /sys are below `root`; "" is this host.
Identity identity_of_tree(const std::string& root);
Identity identity_of_tree(const std::string& root, const Machine& machine);  ///< `machine` was read from that tree
/// Returns the model of the processor as /proc/cpuinfo below `root` names it; "" if it does not.
std::string processor_of_tree(const std::string& root);
const std::string& machine_id();  ///< the id of this host, as in all records; read once

/// Sets the distances between nodes from a JSON file:
/// {"nodes": [ids], "unit": "s", "what": "measured latency", "values": [[…]]}.
/// With "better": "higher" (bandwidth), it uses the reciprocals. Throws UsageError if the file is not valid.
void use_matrix(Machine& machine, const std::string& file);

/// Returns CPUs in the order in which a team fills the machine: "compact" fills the threads of a core first, then its
/// socket; "cores" uses one CPU per core first, package by package; "spread" distributes over the packages in turn
/// first.
std::vector<int> fill_order(const Machine& machine, const std::string& how, const std::vector<int>& among);
std::vector<int> fill_order(const std::string& how, const std::vector<int>& among);  ///< on this host
/// Returns `count` CPUs for the sharer at `place` (from 0) of `sharers` that share the CPUs in `among`: adjacent CPUs,
/// one of each core first. They repeat if the share has fewer than `count` CPUs.
std::vector<int> share_of_cpus(const Machine& machine, const std::vector<int>& among, std::size_t sharers,
                               std::size_t place, std::size_t count);

}  // namespace mm

#pragma once
/// A machine's CPUs, cores, packages, NUMA nodes, distances and caches, and where they are read from: hwloc (this host,
/// a synthetic description, XML) or a tree of /proc and /sys. Numbers of CPUs and nodes are the operating system's,
/// absolute: never relative to a cgroup, unless a name says so.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mm {

struct Cpu {
  int id;                             ///< OS index
  int core, package;                  ///< dense from 0, in hwloc's order
  int l3;                             ///< likewise; one a package where `has_l3` is false
  int node;                           ///< OS index of its NUMA node; the first one with CPUs where `has_node` is false
  int smt;                            ///< 0 for the first online CPU of its core, 1 for the second …
  int core_id = -1, package_id = -1;  ///< OS indices, which may repeat in other packages or have gaps; -1: unknown
  int kind = -1;                      ///< index into `Machine::kinds`; -1 where all cores are alike or it is unknown
  /// Whether the source states its core, package, L3 or node. Where it does not, the number above is a default: a core
  /// of its own, a package with all CPUs in the same case, and so on.
  bool has_core = true, has_package = true, has_l3 = true, has_node = true;
};

struct Node {
  int id;                              ///< OS index
  std::optional<std::uint64_t> bytes;  ///< as reserved, B; 0: no memory; none: the source does not state it
  std::vector<int> cpus;               ///< its own, ascending; none for a memory-only node
  std::vector<int> near;               ///< CPUs for which it is local, or the nearest ones; empty where that is unknown
};

struct CacheLevel {
  int level;
  std::size_t bytes;  ///< of one instance, as the operating system claims
};

/// One cache and the CPUs that share it. 0 stands for a size, line or number of ways that is unknown.
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
  std::int64_t capacity = -1;  ///< of a CPU relative to 1024, as the Linux kernel's scheduler takes it; -1: unknown
  std::int64_t max_hz = -1;    ///< highest clock of a CPU, Hz; -1: unknown
  std::string pmu, model;      ///< cpu_core, cpu_atom …; name or number of the processor model; "": unknown
};

/// A network card, disk or accelerator, and the CPUs near it.
struct Device {
  std::string name;  ///< as hwloc names it: eth0, nvme0n1, 0000:3b:00.0
  std::vector<int> cpus;
};

struct Machine {
  /// host, cpuset (of the host, made for a layout: `allowed` is all of it), synthetic, xml, tree
  std::string origin;
  std::string source;        ///< the synthetic description or the XML; "" for others
  std::vector<Cpu> cpus;     ///< online ones, ascending id
  std::vector<int> offline;  ///< ids, ascending; only a tree states them
  /// CPUs that exist according to the XML and are not described: offline or not allowed, ascending
  std::vector<int> unlisted;
  std::vector<int> allowed;  ///< ids that this process may use (host) or the description allows, ascending
  std::vector<int> group;    ///< ids that the control group of this process allows, whatever its affinity; host only
  std::vector<Node> nodes;   ///< ascending id
  std::vector<int> memory_nodes;  ///< ids of nodes that have memory and that may be used, ascending; hwloc only
  std::vector<Device> devices;
  /// [from][to] in the order of `nodes`: the firmware's (10 is local), or what `use_matrix` brought (less is nearer;
  /// infinite where that says nothing about a memory-only node). Never empty.
  std::vector<std::vector<double>> distance;
  std::string distance_from;    ///< "firmware", "measured latency (s)" …; "" where all nodes are taken as equally far
  std::vector<CoreKind> kinds;  ///< empty where all cores are alike or where it is unknown
  std::vector<CacheLevel> caches;  ///< data or unified caches of the first allowed CPU, L1 first; `topology()` only
  std::size_t all_last_level_bytes = 0;       ///< of all instances together that may be used; `topology()` only
  std::vector<Cache> all_caches;              ///< by level, kind and CPUs; `described_tree()` and descriptions only
  std::optional<std::uint64_t> kernel_bytes;  ///< MemTotal of the machine; trees only
  std::vector<std::string> doubts;            ///< contradictions and gaps of the source, each a clause for people

  std::vector<int> ids() const;              ///< of the CPUs, ascending
  const Cpu& cpu(int id) const;              ///< UsageError where it is not online
  std::size_t node_at(int id) const;         ///< index into `nodes` of an OS index; UsageError where there is none
  std::size_t cache_bytes(int level) const;  ///< 0 where unknown
  std::size_t last_level_bytes() const;
  /// Rank of the distance from one node to another among all distinct ones (those within 2 % are one), 0 = the node
  /// itself: hops on a torus.
  int hops(int from_node, int to_node) const;
};

/// This host with its caches, as instruments need it; read once.
const Machine& topology();
/// The machine of `host`, a synthetic description (`pack:2 [numa] core:4 pu:2`) or a file of hwloc's XML.
/// UsageError where it is none of them. With XML of this very host, `allowed` is what this process may use.
/// `host` is read with packages, cores, L3 and nodes alone, because every job starts through it.
Machine machine_of(const std::string& topology);
/// Devices of this host. `machine_of("host")` leaves them out, because finding them costs more than all the rest;
/// `place` requests them where a request is `near` one.
std::vector<Device> host_devices();
/// The machine whose /proc and /sys are below `root`: a recorded tree, or this host where that is empty. hwloc does not
/// read it, since hwloc describes this host where a tree has no sysfs. Without CPUs where the tree has none.
/// Caches, near CPUs, kinds of cores and most doubts are left out, because reading them takes longer than the rest.
Machine machine_of_tree(const std::string& root);
/// Like `machine_of_tree`, with all that the tree states.
Machine described_tree(const std::string& root);
/// Caches of a machine that was read from the tree below `root`, by level, kind and CPUs.
std::vector<Cache> caches_of_tree(const std::string& root, const Machine& machine);
/// Kinds of cores by the files below `root`; empty where all cores are alike.
std::vector<CoreKind> kinds_of_tree(const std::string& root, const Machine& machine);
/// Sets `Machine::kinds` and the kind of each CPU.
void set_kinds(Machine& machine, std::vector<CoreKind> kinds);
/// The kinds of cores to which `cpus` belong, each with these of its CPUs; empty where all cores are alike.
std::vector<CoreKind> kinds_of(const Machine& machine, const std::vector<int>& cpus);
/// Their names, separated by commas: the condition `core_kinds` of a result; "" where all cores are alike.
std::string kind_names(const Machine& machine, const std::vector<int>& cpus);
/// Appends contradictions between the parts of a machine to its doubts.
void add_doubts(Machine& machine);

/// The name of a machine and a hash of its hardware: online CPUs, nodes, distances and processor model. Machines of the
/// same model have the same hash. What varies between boots is not part of it, such as memory that the Linux kernel
/// reserves; a CPU that is taken offline is, because it changes what is measured.
struct Identity {
  std::string name;        ///< host name, with characters for file names
  std::string hash;        ///< 12 hexadecimal digits; empty where no CPU is known
  std::string id() const;  ///< the name and 8 digits of the hash
};
/// The identity of the machine whose /proc and /sys are below `root`; "" is this host.
Identity identity_of_tree(const std::string& root);
Identity identity_of_tree(const std::string& root, const Machine& machine);  ///< `machine`: read from that tree already
const std::string& machine_id();  ///< the id of this host, as in all records; read once

/// Distances between nodes from a JSON file {"nodes": [ids], "unit": "s", "what": "measured latency", "values": [[…]]}.
/// With "better": "higher" (bandwidth) the reciprocal is taken. UsageError names what is wrong with it.
void use_matrix(Machine& machine, const std::string& file);

/// CPUs in the order in which a team fills the machine: "compact" fills one core's threads, then one socket;
/// "cores" one CPU a core first, package by package; "spread" deals cores round the packages first.
std::vector<int> fill_order(const Machine& machine, const std::string& how, const std::vector<int>& among);
std::vector<int> fill_order(const std::string& how, const std::vector<int>& among);  ///< of this host
/// `count` CPUs for the one at `place` (from 0) of several that share CPUs: adjacent ones, one of each core first,
/// which repeat if its share is smaller.
std::vector<int> share_of_cpus(const Machine& machine, const std::vector<int>& among, std::size_t sharers,
                               std::size_t place, std::size_t count);

}  // namespace mm

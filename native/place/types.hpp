#pragma once
/// What placement speaks of: a machine's CPUs and nodes, slots, requests, layouts. Every number of a CPU or a node is
/// the operating system's, absolute: never relative to a cgroup, unless a name says so.
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "error.hpp"

namespace mm::place {

/// What counts as one processor: a socket, a core with all its threads, a hardware thread. After EGO_DEFINE_NCPUS.
enum class SlotKind { procs, cores, threads };

struct Cpu {
  int id;                 ///< OS index
  int core, package, l3;  ///< dense from 0, in hwloc's order; a machine without L3 has one a package
  int node;               ///< OS index of its own NUMA node; of the nearest with CPUs where it has none
  int smt;                ///< 0 for the first CPU of its core, 1 for the second …
};

struct Node {
  int id;                 ///< OS index
  std::uint64_t bytes;    ///< as reserved, B; 0: no memory
  std::vector<int> cpus;  ///< its own, ascending; none for a memory-only node
};

/// A network card, disk or accelerator, and the CPUs near it.
struct Device {
  std::string name;  ///< as hwloc names it: eth0, nvme0n1, 0000:3b:00.0
  std::vector<int> cpus;
};

struct Machine {
  std::string origin;        ///< host, cpuset (of the host, made for a layout: `allowed` is all of it), synthetic, xml
  std::vector<Cpu> cpus;     ///< online ones, ascending id
  std::vector<int> allowed;  ///< ids that this process may use (host) or the description allows, ascending
  std::vector<Node> nodes;   ///< ascending id
  std::vector<Device> devices;
  /// [from][to] in the order of `nodes`: the firmware's (10 is local), or what `use_matrix` brought (less is nearer;
  /// infinite where that says nothing about a memory-only node). Never empty.
  std::vector<std::vector<double>> distance;
  std::string distance_from;  ///< "firmware", "measured latency (s)" …; "" where all nodes are taken as equally far

  const Cpu& cpu(int id) const;       ///< UsageError where it is not online
  std::size_t node_at(int id) const;  ///< index into `nodes` of a node's OS index; UsageError where there is none
  /// Rank of the distance from one node to another among all distinct ones (those within 2 % are one), 0 = the node
  /// itself: hops on a torus.
  int hops(int from_node, int to_node) const;
};

/// The machine of `host`, a synthetic description (`pack:2 [numa] core:4 pu:2`) or a file of hwloc's XML.
/// UsageError where it is none of them. With XML of this very host, `allowed` is what this process may use.
Machine machine_of(const std::string& topology);
/// Devices of this host. `machine_of("host")` leaves them out, because finding them costs more than all the rest;
/// `place` asks for them where a request is `near` one.
std::vector<Device> host_devices();
/// Distances between nodes from a JSON file {"nodes": [ids], "unit": "s", "what": "measured latency", "values": [[…]]}.
/// With "better": "higher" (bandwidth) the reciprocal is taken. UsageError names what is wrong with it.
void use_matrix(Machine& machine, const std::string& file);

/// What is taken already: how many jobs hold each CPU (by OS index), and which CPUs no one else may have.
struct Occupancy {
  std::map<int, int> jobs;
  std::map<int, bool> exclusive;
};

/// Traffic and bandwidth demand of the parts, for the policy `sharing`.
struct Sharing {
  std::vector<std::vector<double>> traffic;  ///< [part][part], B or any unit, symmetric after adding its transpose
  std::vector<double> bandwidth_demand;      ///< [part], share of a node's bandwidth, 0 to 1; `hunger` in files
};

struct Request {
  std::string policy = "balance";  ///< balance pack any none list compact scatter sharing
  int slots = 1;
  SlotKind kind = SlotKind::cores;
  std::vector<int> list;        ///< for `list`, in the order given: part i takes its CPUs from here
  std::vector<int> within;      ///< only these CPUs; empty: all that are allowed
  std::string near;             ///< a device's name, or `node:N`
  std::optional<int> max_hops;  ///< no two nodes of the job are farther apart
  bool exclude = false;         ///< nobody else on the CPUs (and on the cores' siblings) that it gets
  bool one_package = false;     ///< pack(socket=1): must fit one socket
  std::optional<Sharing> sharing;
  bool prove = true;  ///< compact: also compute the bounds that only prove a choice optimal, and change none
};

/// Where the parts of a job (ranks or threads) go.
struct Layout {
  std::vector<std::vector<int>> parts;  ///< CPUs of part i, ascending
  std::vector<int> cpus() const;        ///< of all parts, ascending, without repeats
};

struct Placement {
  Layout layout;    ///< empty for `none`
  std::string why;  ///< one sentence for people
  bool oversubscribed = false;
  std::optional<double> mean_distance;  ///< over all pairs of parts, in the machine's unit; absent for one part
  std::optional<double> bound;          ///< no placement has a smaller mean distance (compact)
  bool optimal = false;                 ///< compact: proven
};

/// It would fit, but others hold it: `--wait` may help. Exit status 1.
struct Busy : Failure {
  explicit Busy(const std::string& message)
      : Failure(message, "--wait waits for it; meshmark slots shows who holds what") {}
};

/// Where memory goes. `nodes` of weighted interleave have weights at the same places.
struct Memory {
  std::string policy = "default";  ///< default local bind preferred interleave weighted
  std::vector<int> nodes;          ///< empty: those of the layout's CPUs
  std::vector<int> weights;
  std::string pages = "default";  ///< default 4KiB thp 2MiB 1GiB
};

}  // namespace mm::place

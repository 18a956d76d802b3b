#pragma once
/// Slots, requests and layouts of placement. Every number of a CPU or a node is the operating system's, absolute: never
/// relative to a cgroup, unless a name says so.
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/topology/topology.hpp"

namespace mm::place {

/// What counts as one processor: a socket, a core with all its threads, a hardware thread. After EGO_DEFINE_NCPUS.
enum class SlotKind { procs, cores, threads };

/// CPUs that are taken already: how many jobs hold each CPU (by OS index), which CPUs no other job may use, and which
/// CPUs programs without a reservation use now.
struct Occupancy {
  std::map<int, int> jobs;
  std::map<int, bool> exclusive;
  std::set<int> in_use = {};
};

/// Traffic and bandwidth demand of the parts, for the policy `sharing`.
struct PartDemands {
  std::vector<std::vector<double>> traffic;  ///< [part][part], B or any unit, symmetric after adding its transpose
  std::vector<double> bandwidth_demand;      ///< [part], share of a node's bandwidth, 0 to 1
};

struct Request {
  std::string policy = "balance";  ///< balance pack any none list compact scatter sharing
  int slots = 1;
  SlotKind kind = SlotKind::cores;
  std::vector<int> list;        ///< for `list`, in the order given: part i takes its CPUs from here
  std::vector<int> within;      ///< only these CPUs; empty: all that are allowed
  std::string near;             ///< a device's name, or `node:N`
  std::optional<int> max_hops;  ///< all nodes of the job are within these hops of one node
  std::string core_kind;        ///< only cores of this kind, by its name in `Machine::kinds`; "": of any kind
  bool exclude = false;         ///< no other job may use the CPUs (or their cores' siblings) that it gets
  bool one_package = false;     ///< pack(socket=1): must fit one socket
  std::optional<PartDemands> sharing;
  bool prove =
      true;  ///< compact: also compute the bounds that only prove a choice optimal; they do not change the choice
};

/// Where the parts of a job (ranks or threads) go.
struct Layout {
  std::vector<std::vector<int>> parts;  ///< CPUs of part i, ascending
  std::vector<int> cpus() const;        ///< CPUs of all parts, ascending, without repeats
};

struct Placement {
  Layout layout;    ///< empty for `none`
  std::string why;  ///< one sentence for people
  bool oversubscribed = false;
  std::optional<double> mean_distance;  ///< over all pairs of parts, in the machine's unit; absent for one part
  std::optional<double> bound;          ///< no placement has a smaller mean distance (compact)
  bool optimal = false;                 ///< compact: proven
};

/// The request would fit, but other jobs hold the CPUs: `--wait` may help. Exit status 1.
struct Busy : Failure {
  explicit Busy(const std::string& message)
      : Failure(message, "--wait waits until enough CPUs are free; meshmark slots shows which jobs hold which CPUs") {}
};

/// Where memory goes. The `nodes` of weighted interleave have weights at the same positions.
struct MemoryPolicy {
  std::string policy = "default";  ///< default local bind preferred interleave weighted
  std::vector<int> nodes;          ///< empty: the nodes of the layout's CPUs
  std::vector<int> weights;
  std::string pages = "default";  ///< default 4KiB thp 2MiB 1GiB
  bool all_nodes = false;         ///< `interleave=all`: `nodes` is empty and means all nodes that have memory
};

}  // namespace mm::place

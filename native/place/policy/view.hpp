#pragma once
/// The input of policies: the slots that a request may use, their distances, and their holders.
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place::policy {

using Index = std::size_t;
inline constexpr Index kNone = std::numeric_limits<Index>::max();

struct Slot {
  std::vector<int> cpus;
  int core, l3, package, kind;  // properties of its first CPU; kind 0 is the fastest, -1 if all are alike
  std::vector<std::pair<Index, double>> nodes;  // index of a node → share of the slot's CPUs there
  int load = 0;                                 // maximum number of jobs on one of its CPUs
  bool closed = false;                          // unavailable
};

/// The slots that a request may use, and their distances.
struct View {
  const Machine& machine;
  const Request& request;
  std::vector<Slot> slots;
  std::map<int, Index> node_index;

  Index node(Index slot) const { return slots[slot].nodes.front().first; }
  bool is_free(Index slot) const { return slots[slot].load == 0 && !slots[slot].closed; }
  Index slots_needed() const { return static_cast<Index>(request.slots); }

  /// `apart`: distance of two nodes, the mean of both directions. `distance`: distance of two slots, the mean over
  /// their CPUs.
  double apart(Index from, Index to) const { return (machine.distance[from][to] + machine.distance[to][from]) / 2; }
  double distance(Index a, Index b) const {
    double sum = 0;
    for (const auto& [na, wa] : slots[a].nodes)
      for (const auto& [nb, wb] : slots[b].nodes) sum += wa * wb * apart(na, nb);
    return sum;
  }
  /// Returns what two slots share beyond nodes: 0 a core, 1 an L3, 2 a package, 3 nothing.
  int level(Index a, Index b) const {
    const Slot &x = slots[a], &y = slots[b];
    if (x.core == y.core) return 0;
    if (x.l3 == y.l3) return 1;
    return x.package == y.package ? 2 : 3;
  }
};

struct Pick {
  std::vector<Index> slots = {};  // in the order of the parts
  std::string why = {};
  bool oversubscribed = false;
  std::int64_t cost = 0, floor = 0;  // compact: for comparison; `floor` is a lower bound of any cost
  std::optional<double> bound = {};
  bool optimal = false;
};

using Picked = std::optional<Pick>;

/// Jobs per CPU, and cores with exclusive jobs.
struct Holdings {
  Holdings(const Machine& machine, const Occupancy& taken) : jobs(taken.jobs) {
    for (const Cpu& c : machine.cpus) {
      const auto exclusive = taken.exclusive.find(c.id);
      if (exclusive != taken.exclusive.end() && exclusive->second) alone.insert(c.core);
      if (on(c.id) > 0) used.insert(c.core);
    }
  }
  int on(int cpu) const {
    const auto at = jobs.find(cpu);
    return at != jobs.end() ? at->second : 0;
  }
  const std::map<int, int>& jobs;
  std::set<int> alone, used;  // cores
};

/// Returns the CPUs that a request may use, ascending. Throws UsageError if it requests CPUs that this process may not
/// use, or a kind of cores that the machine does not have.
std::vector<int> allowed_to(const Machine& machine, const Request& request);
View view_of(const Machine& machine, const Request& request, const Occupancy& taken);
std::vector<Index> free_of(const View& view, const std::vector<Index>& among);
std::map<int, Index> socket_sizes(const View& view);  ///< package → number of slots

/// Equivalence classes of slots that no distance, cache or package distinguishes, in order of their first slot.
struct Classes {
  Classes(const View& view, const std::vector<Index>& among);
  void drop_taken();  ///< removes classes without a free slot

  std::vector<Index> first;              // a slot of each class, free or not
  std::vector<std::vector<Index>> free;  // free slots of each class
};

}  // namespace mm::place::policy

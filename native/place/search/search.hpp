#pragma once
/// Compact sets: which `count` of many units have the minimum sum of distances over all pairs.
///
/// Indistinguishable units (CPUs of one node that share the same L3) form one class, so the search determines how many
/// units each class contributes. This is the minimum-weight k-clique problem (NP-hard). Small problems are solved
/// exactly by branch and bound, larger ones by greedy growth and exchange, with a proven lower bound (bounds.hpp).
#include <cstdint>
#include <vector>

namespace mm::place {

struct ClusterProblem {
  std::vector<std::vector<std::int64_t>> weight;  ///< [class][class], symmetric, ≥ 0; diagonal: two units of the class
  std::vector<int> capacity;                      ///< free units of each class; may be 0
  std::vector<int> cell;  ///< position (node) of each class from 0, in an order that may be a grid's
  int count = 0;          ///< units requested, 1 to the sum of the capacities
  double effort = 1;      ///< share of the work limit, if several searches share it
  bool prove = true;      ///< also compute bounds that suggest no choice (linear programme, spectrum)
};

struct Cluster {
  std::vector<int> counts;  ///< units of each class
  std::int64_t cost = 0;    ///< sum of the weights of all pairs
  std::int64_t bound = 0;   ///< no choice costs less
  bool optimal = false;     ///< proven: cost == bound
};

/// Finds a choice of low cost and a bound. The result is deterministic: limits are in counted work, not in time (about
/// half a second for 1024 units).
Cluster least_cluster(const ClusterProblem& problem);

/// Solves the problem by branch and bound only, from the first units in order and without a limit of work; tests
/// compare it with brute force. The result is not marked `optimal` if possibly every optimum has several partly used
/// classes.
Cluster by_branch_and_bound(const ClusterProblem& problem);

/// Computes for each unit the sum of the distances to its `count` - 1 nearest units, and returns half the total of the
/// `count` smallest of these sums: no choice costs less.
std::int64_t degree_bound(const ClusterProblem& problem);

/// Returns a lower bound from a grid of the cells in one or more dimensions (row by row; each dimension a ring or a
/// path). The weights are bounded from below by a sum of one increasing function of the distance per dimension. For
/// such a sum, some best set is a corner set (a Young diagram, a plane partition …), so only corner sets of `count`
/// cells are searched. Returns 0 if there is no such grid or the search would take too long. Sums of rearrangements:
/// Hardy, Littlewood, Pólya, Inequalities, theorem 371; on rings A. R. Pruss, Duke Math. J. 91 (1998); compressions:
/// Bollobás, Leader, Combinatorica 11 (1991).
std::int64_t grid_bound(const ClusterProblem& problem);

}  // namespace mm::place

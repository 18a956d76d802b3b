#pragma once
/// Lower bounds for compact sets (search.hpp): no choice costs less than any of them, including rounding.
#include <cstdint>
#include <limits>
#include <vector>

#include "place/search/search.hpp"

namespace mm::place {

/// A bound and, if it suggests one, a choice (units of each class) as a start for exchanges.
struct Bounded {
  std::int64_t bound = 0;
  std::vector<int> counts = {};
};

/// Minimum weight between the classes of any two cells (the maximum value if a cell has none), and units by cell.
struct CellWeights {
  std::vector<std::vector<std::int64_t>> weight;
  std::vector<int> capacity;
};
CellWeights cells_of(const ClusterProblem& problem, std::size_t cells);

/// Returns a lower bound from a tree of the classes (average linkage), for hierarchical machines, including measured
/// ones. Between two branches with s and t units, the cost is at least the sum of the t smallest distances of each unit
/// to the other branch, for the s units where this sum is minimal; dynamic programming then finds how many units each
/// branch contributes. The bound is exact if the distances between any two branches are uniform.
Bounded tree_bound(const ClusterProblem& problem);

/// Returns a lower bound from the symmetry of tori, rings and hypercubes: Delsarte's linear programme (Philips Res.
/// Rep. Suppl. 10, 1973) over how often each difference of cells occurs in a set, with the triangle inequalities of |S
/// \ (S + x)|. Meshes are parts of larger tori. The simplex method improves the dual within a limit of work, and every
/// dual point proves a bound. Returns 0 if the cells in their order do not form such a grid.
std::int64_t translation_bound(const ClusterProblem& problem);

/// Returns a lower bound from the spectrum of the weights: the value of the semidefinite relaxation reached within a
/// limit of work. It applies to any matrix, but is 0 for more than about 1000 units. The computation stops once it
/// proves `enough`.
std::int64_t spectral_bound(const ClusterProblem& problem,
                            std::int64_t enough = std::numeric_limits<std::int64_t>::max());

}  // namespace mm::place

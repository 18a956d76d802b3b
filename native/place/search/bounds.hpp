#pragma once
/// Lower bounds for compact sets (search.hpp): no choice costs less than any of them, rounding included.
#include <cstdint>
#include <limits>
#include <vector>

#include "search.hpp"

namespace mm::place {

/// A bound and, where it suggests one, a choice (units of each class) for the exchanges to start from.
struct Bounded {
  std::int64_t bound = 0;
  std::vector<int> counts = {};
};

/// Least weight between the classes of every two cells (the largest number where a cell has none), and units by cell.
struct Cells {
  std::vector<std::vector<std::int64_t>> weight;
  std::vector<int> capacity;
};
Cells cells_of(const ClusterProblem& problem, std::size_t cells);

/// Lower bound from a tree of the classes (average linkage), for hierarchical machines, measured ones too. Two branches
/// with s and t units cost each other at least the t least distances of each unit to the other branch, of the s units
/// where that is least; how many units each branch gives is then found exactly, by dynamic programming. Exact where
/// every two branches are equally far everywhere.
Bounded tree_bound(const ClusterProblem& problem);

/// Lower bound from the symmetry of tori, rings and hypercubes: Delsarte's linear programme (Philips Res. Rep. Suppl.
/// 10, 1973) over how often each difference of cells occurs in a set, with the triangle inequalities of |S \ (S + x)|.
/// Meshes are parts of larger tori. Its dual is climbed in counted work (simplex), and every dual point proves a bound.
/// 0 where the cells in their order are no such grid.
std::int64_t translation_bound(const ClusterProblem& problem);

/// Lower bound from the spectrum of the weights: what of the semidefinite relaxation can be climbed to in counted work.
/// For any matrix; 0 for more than about 1000 units. Stops climbing where it proves `enough`.
std::int64_t spectral_bound(const ClusterProblem& problem,
                            std::int64_t enough = std::numeric_limits<std::int64_t>::max());

}  // namespace mm::place

#pragma once
#include <optional>
#include <vector>

#include "corners.hpp"

namespace mm::place::search {

/// A grid that lies below the weights, the bound that it gives and its best set.
struct Grid {
  Value bound = 0;
  Shape shape;
  std::vector<Ranks> best;
  int each = 1;  // units a cell
};

Grid grid_of(const ClusterProblem& p);

/// The best set of a grid, put where it is free and costs least; nothing where it is nowhere free.
std::optional<Choice> put(const ClusterProblem& p, const Grid& grid);

}  // namespace mm::place::search

#pragma once
#include <optional>
#include <vector>

#include "place/search/shapes/corners.hpp"

namespace mm::place::search {

/// A grid that is a lower bound of the weights, its bound, and its best set.
struct GridBound {
  Value bound = 0;
  Shape shape;
  std::vector<Ranks> best;
  int each = 1;  // units per cell
};

GridBound grid_of(const ClusterProblem& p);

/// Returns the best set of a grid at a free position of minimum cost; nullopt if it fits nowhere.
std::optional<Choice> put(const ClusterProblem& p, const GridBound& grid);

}  // namespace mm::place::search

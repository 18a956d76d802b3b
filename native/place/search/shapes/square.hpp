#pragma once
#include <vector>

#include "place/search/shapes/rows.hpp"

namespace mm::place::search {

/// A symmetric matrix, row by row.
struct Square {
  std::size_t n = 0;
  std::vector<double> of;

  double* row(std::size_t i) { return &of[i * n]; }
  const double* row(std::size_t i) const { return &of[i * n]; }
};

/// Returns whether a Cholesky factorization exists; destroys `a`. If it exists, no eigenvalue is below -2 (n + 1) ε
/// trace (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3; Rump, BIT 46, 2006).
bool has_cholesky(Square& a);

/// Returns the square of a symmetric matrix.
Square squared(const Square& a);

}  // namespace mm::place::search

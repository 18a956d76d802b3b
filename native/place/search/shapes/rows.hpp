#pragma once
/// Loops over rows of matrices. They add in a fixed order, so that results do not depend on the vector width.
#include <cstddef>

namespace mm::place::search {

inline void add(double* to, double factor, const double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

inline double dot(const double* a, const double* b, std::size_t n) {
  double sums[4] = {0, 0, 0, 0};  // in a fixed order, with independent chains
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

}  // namespace mm::place::search

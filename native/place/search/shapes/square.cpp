#include "place/search/shapes/square.hpp"

#include <algorithm>
#include <cmath>

namespace mm::place::search {

bool has_cholesky(Square& a) {
  const std::size_t n = a.n, block = 32;
  for (std::size_t from = 0; from < n; from += block) {
    const std::size_t to = std::min(n, from + block);
    for (std::size_t k = from; k < to; ++k) {
      double* row = a.row(k);
      if (!(row[k] > 0)) return false;
      const double root = std::sqrt(row[k]);
      for (std::size_t j = k; j < n; ++j) row[j] /= root;
      for (std::size_t i = k + 1; i < to; ++i) add(a.row(i) + i, -row[i], row + i, n - i);
    }
    for (std::size_t i = to; i < n; ++i) {
      double* row = a.row(i);
      for (std::size_t k = from; k < to; k += 4) {  // four at once, for fewer passes over the row
        if (k + 4 > to) {
          for (std::size_t l = k; l < to; ++l) add(row + i, -a.row(l)[i], a.row(l) + i, n - i);
          break;
        }
        const double *p = a.row(k), *q = a.row(k + 1), *r = a.row(k + 2), *s = a.row(k + 3);
        const double w = p[i], x = q[i], y = r[i], z = s[i];
        for (std::size_t j = i; j < n; ++j) row[j] -= w * p[j] + x * q[j] + (y * r[j] + z * s[j]);
      }
    }
  }
  return true;
}

Square squared(const Square& a) {
  Square result{a.n, std::vector<double>(a.n * a.n, 0)};
  const std::size_t block = 64;
  for (std::size_t from = 0; from < a.n; from += block) {
    const std::size_t to = std::min(a.n, from + block);
    for (std::size_t i = 0; i < a.n; ++i) {
      double* row = result.row(i);
      std::size_t k = from;
      for (; k + 4 <= to; k += 4) {
        const double *p = a.row(k), *q = a.row(k + 1), *r = a.row(k + 2), *s = a.row(k + 3);
        const double w = p[i], x = q[i], y = r[i], z = s[i];
        for (std::size_t j = i; j < a.n; ++j) row[j] += w * p[j] + x * q[j] + (y * r[j] + z * s[j]);
      }
      for (; k < to; ++k) add(row + i, a.row(k)[i], a.row(k) + i, a.n - i);
    }
  }
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t j = 0; j < i; ++j) result.of[i * a.n + j] = result.of[j * a.n + i];
  return result;
}

}  // namespace mm::place::search

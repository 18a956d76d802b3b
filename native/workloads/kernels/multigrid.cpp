/// A multigrid cycle.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

/// One multigrid cycle from zero for Poisson's equation on a square of m x m points, m = 2^k - 1, zero on its boundary,
/// with red-black relaxation before and after each coarser grid, full weighting, and bilinear interpolation.
template <class A>
class MultigridVCycle final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  // A row has m elements and a zero, which bounds it and the next row. Solutions have a row of zeros above and below.
  static constexpr std::size_t inner(std::size_t m) { return (m * (m + 1) + 7) / 8 * 8; }
  static constexpr std::size_t whole(std::size_t m) { return ((m + 2) * (m + 1) + 7) / 8 * 8; }
  static constexpr std::size_t residual(std::size_t m) { return m > 1 ? inner(m) : 0; }
  /// Returns the size of the work space: the residual of this grid, and solutions, right sides and residuals of the
  /// coarser grids.
  static constexpr std::size_t works(std::size_t m) {
    std::size_t total = residual(m);
    for (m /= 2; m > 0; m /= 2) total += whole(m) + inner(m) + residual(m);
    return total;
  }
  static constexpr std::size_t bytes(std::size_t m) { return (whole(m) + inner(m) + works(m)) * 8; }

 public:
  MultigridVCycle(const Shape& shape, Memory& memory)
      : m_(problem_size(shape, {7, 15, 31}, bytes)), units_(units_in(shape, bytes(m_))) {
    u_ = {memory.take<double>(units_ * whole(m_))};
    f_ = {memory.take<double>(units_ * inner(m_))};
    work_ = {memory.take<double>(units_ * works(m_))};
    for (std::size_t u = 0; u < units_; ++u) {
      for (std::size_t i = 0; i < m_; ++i)
        for (std::size_t j = 0; j < m_; ++j) f_.p[u * inner(m_) + i * (m_ + 1) + j] = unit_real((u * m_ + i) * m_ + j);
      u_.p[u * whole(m_) + m_ + 1] = kUndone;
    }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    Counts c;
    for (std::size_t level = m_; level > 0; level /= 2) {
      const std::size_t coarse = level / 2;
      const double m = static_cast<double>(level), points = m * m, half = static_cast<double>(coarse);
      if (level == 1) {
        c.flops += 1;
        c.load_bytes += 8;
        c.store_bytes += 8;
        c.line_read_bytes += 2 * kLine;
        c.line_write_bytes += 2 * kLine;
        continue;
      }
      c.flops += (5 + 5 + 6) * points + 10 * half * half;
      c.load_bytes += ((5 + 5 + 6) * points + 9 * half * half) * 8;
      c.store_bytes += (m * (m + 1) + 3 * points + half * half) * 8;
      // Interpolation covers rows that are also coarse rows, and the rows between them.
      c.flops += half * (half + 2 + 3 * half) + (half + 1) * (3 * half + 3 + 5 * half);
      c.load_bytes += (half * (2 * half + 2 + 3 * half) + (half + 1) * (3 * half + 3 + 5 * half)) * 8;
      c.store_bytes += points * 8;
      // A solution is touched completely, and written between its first and last row.
      const auto right = static_cast<double>(inner(level) * 8);
      const std::size_t untouched = (level + 1) * 8 / kLine;
      const auto written_bytes = static_cast<double>((lines_of((level + 1) * (level + 1) * 8) - untouched) * kLine);
      c.line_read_bytes += static_cast<double>(whole(level) * 8) + 2 * right;
      c.line_write_bytes += written_bytes + right + (level < m_ ? right : 0);
    }
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<7, 15, 31>(m_, [&](auto size) {
      constexpr std::size_t m = size;
      for (std::size_t u = first; u < last; ++u) {
        cycle<m>(u_.from(u * whole(m)), f_.from(u * inner(m)), work_.from(u * works(m)));
        A::end_unit();
      }
    });
  }
  /// Verifies that the result equals the result of a simple implementation, and that the residual has become less than
  /// a fifth.
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      const double *const block = u_.p + u * whole(m_), *const actual = block + m_ + 1, *const f = f_.p + u * inner(m_);
      if (actual[0] == kUndone) continue;
      Square right(m_);
      for (std::size_t i = 0; i < m_; ++i)
        for (std::size_t j = 0; j < m_; ++j) right(i, j) = f[i * (m_ + 1) + j];
      const Square expected = plain(right), remainder = rest(expected, right);
      double before = 0, after = 0;
      for (std::size_t i = 0; i < m_; ++i)
        for (std::size_t j = 0; j < m_; ++j) {
          before += right(i, j) * right(i, j);
          after += remainder(i, j) * remainder(i, j);
          if (!(std::fabs(actual[i * (m_ + 1) + j] - expected(i, j)) <= 1e-12 * static_cast<double>(m_ * m_)))
            return "grid " + std::to_string(u) + ", point " + std::to_string(i) + ", " + std::to_string(j) + " is " +
                   std::to_string(actual[i * (m_ + 1) + j]) + ", not " + std::to_string(expected(i, j));
        }
      for (std::size_t k = 0; k < whole(m_); ++k)
        if (const bool inside = k > m_ && k < (m_ + 1) * (m_ + 1) && k % (m_ + 1) < m_; !inside && block[k] != 0)
          return "the boundary of grid " + std::to_string(u) + " has changed";
      if (!(after <= before / 25)) return "the residual of grid " + std::to_string(u) + " is too large";
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(u_.p, units_ * whole(m_))); }

 private:
  /// For verification: points of a square with a boundary of zeros.
  struct Square {
    explicit Square(std::size_t side) : m(side), at((side + 2) * (side + 2)) {}
    double& operator()(std::size_t i, std::size_t j) { return at[(i + 1) * (m + 2) + j + 1]; }
    double operator()(std::size_t i, std::size_t j) const { return at[(i + 1) * (m + 2) + j + 1]; }
    double around(std::size_t i, std::size_t j) const {
      const std::size_t k = (i + 1) * (m + 2) + j + 1;
      return at[k - 1] + at[k + 1] + at[k - m - 2] + at[k + m + 2];
    }
    std::size_t m;
    std::vector<double> at;
  };
  static Square rest(const Square& u, const Square& f) {
    Square r(u.m);
    for (std::size_t i = 0; i < u.m; ++i)
      for (std::size_t j = 0; j < u.m; ++j) r(i, j) = f(i, j) + u.around(i, j) - 4 * u(i, j);
    return r;
  }
  static void relax(Square& u, const Square& f) {
    for (std::size_t colour = 0; colour < 2; ++colour)
      for (std::size_t i = 0; i < u.m; ++i)
        for (std::size_t j = 0; j < u.m; ++j)
          if ((i + j) % 2 == colour) u(i, j) = (f(i, j) + u.around(i, j)) / 4;
  }
  static Square plain(const Square& f) {
    Square u(f.m);
    relax(u, f);
    if (f.m == 1) return u;
    const Square r = rest(u, f);
    Square coarse(f.m / 2);
    for (std::size_t i = 0; i < coarse.m; ++i)
      for (std::size_t j = 0; j < coarse.m; ++j)
        for (std::size_t a = 0; a < 3; ++a)
          for (std::size_t b = 0; b < 3; ++b)
            coarse(i, j) += r(2 * i + a, 2 * j + b) * (a == 1 ? 1 : 0.5) * (b == 1 ? 1 : 0.5);
    const Square correction = plain(coarse);
    for (std::size_t i = 0; i < coarse.m; ++i)
      for (std::size_t j = 0; j < coarse.m; ++j)
        for (std::size_t a = 0; a < 3; ++a)
          for (std::size_t b = 0; b < 3; ++b)
            u(2 * i + a, 2 * j + b) += correction(i, j) * (a == 1 ? 1 : 0.5) * (b == 1 ? 1 : 0.5);
    relax(u, f);
    return u;
  }

  template <std::size_t m>
  static void smooth(Reals u, Reals f) {
    constexpr std::size_t w = m + 1;
    for (std::size_t colour = 0; colour < 2; ++colour)
      for (std::size_t i = 0; i < m; ++i)
#pragma GCC ivdep
        for (std::size_t j = (i + colour) % 2; j < m; j += 2) {
          const std::size_t k = (i + 1) * w + j;
          u[k] = 0.25 * (((u[k - 1] + u[k + 1]) + (u[k - w] + u[k + w])) + f[i * w + j]);
        }
  }
  /// `work` contains the residual, then solution and right side of the next coarser grid, then the work space of that
  /// grid.
  template <std::size_t m>
  static void cycle(Reals u, Reals f, Reals work) {
    constexpr std::size_t w = m + 1;
    if constexpr (m == 1) {
      u[2] = 0.25 * f[0];
    } else {
      constexpr std::size_t half = m / 2, v = half + 1;
      const Reals r = work, below = r.from(inner(m)), right = below.from(whole(half));
      for (std::size_t k = w; k < w + m * w; ++k) u[k] = 0.0;
      smooth<m>(u, f);
      for (std::size_t i = 0; i < m; ++i)
#pragma GCC ivdep
        for (std::size_t j = 0; j < m; ++j) {
          const std::size_t k = (i + 1) * w + j;
          r[i * w + j] = ((u[k - 1] + u[k + 1]) + (u[k - w] + u[k + w])) + f[i * w + j] - 4.0 * u[k];
        }
      for (std::size_t i = 0; i < half; ++i)
        for (std::size_t j = 0; j < half; ++j) {
          const std::size_t k = (2 * i + 1) * w + 2 * j + 1;
          right[i * v + j] = r[k] + 0.5 * ((r[k - 1] + r[k + 1]) + (r[k - w] + r[k + w])) +
                             0.25 * ((r[k - w - 1] + r[k - w + 1]) + (r[k + w - 1] + r[k + w + 1]));
        }
      cycle<half>(below, right, right.from(inner(half)));
      for (std::size_t i = 0; i < half; ++i) {
        const Reals row = u.from((2 * i + 2) * w), c = below.from((i + 1) * v);
        for (std::size_t j = 0; j < half; ++j) row[2 * j + 1] = row[2 * j + 1] + c[j];
        row[0] = row[0] + 0.5 * c[0];
        for (std::size_t j = 1; j <= half; ++j) row[2 * j] = row[2 * j] + 0.5 * (c[j - 1] + c[j]);
      }
      for (std::size_t i = 0; i <= half; ++i) {
        const Reals row = u.from((2 * i + 1) * w), c = below.from(i * v), d = below.from((i + 1) * v);
        for (std::size_t j = 0; j < half; ++j) row[2 * j + 1] = row[2 * j + 1] + 0.5 * (c[j] + d[j]);
        row[0] = row[0] + 0.25 * (c[0] + d[0]);
        for (std::size_t j = 1; j <= half; ++j)
          row[2 * j] = row[2 * j] + 0.25 * ((c[j - 1] + c[j]) + (d[j - 1] + d[j]));
      }
      smooth<m>(u, f);
    }
  }
  std::size_t m_, units_;
  Reals u_, f_, work_;
};

const Register<MultigridVCycle> multigrid_v_cycle{{.name = "multigrid_v_cycle",
                                                   .kind = "solver",
                                                   .summary = "a V-cycle for Poisson's equation on small squares",
                                                   .source = "Brandt's multigrid; after NPB MG",
                                                   .min_bytes = 8192}};

}  // namespace
}  // namespace mm::workloads

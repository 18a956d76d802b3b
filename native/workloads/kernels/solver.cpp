/// Solvers of linear systems and their building blocks: sparse products, conjugate gradients, relaxation and
/// recurrences.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

/// y = A x with A in compressed sparse rows. A unit is eight rows. All units have the same pattern of columns, shifted
/// cyclically by whole lines of x, so that all touch the same number of lines.
template <class A>
class SpmvCsr final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  using Index = typename A::template Value<std::uint32_t>;
  using Place = typename A::template Value<std::uint64_t>;
  static constexpr std::size_t kRows = 8;
  static constexpr std::array<std::size_t, kRows> kLengths{24, 27, 30, 27, 26, 28, 27, 27};
  static constexpr std::size_t kEntries = 216;
  static constexpr std::size_t kBytes = kEntries * 12 + kRows * 24;  // values and columns; starts, x, y

 public:
  SpmvCsr(const Shape& shape, Memory& memory) : units_(units_in(shape, kBytes, kLine)), n_(units_ * kRows) {
    if (n_ < 32) throw Absent("rows of thirty entries need a volume of " + std::to_string(4 * kBytes + kLine) + " B");
    make_pattern();
    values_ = {memory.take<double>(units_ * kEntries)};
    columns_ = {memory.take<std::uint32_t>(units_ * kEntries)};
    starts_ = {memory.take<std::uint64_t>(n_ + 1)};
    x_ = {memory.take<double>(n_)};
    y_ = {memory.take<double>(n_)};
    for (std::size_t u = 0; u < units_; ++u)
      for (std::size_t e = 0; e < kEntries; ++e) {
        values_.p[u * kEntries + e] = exact(u * kEntries + e);
        columns_.p[u * kEntries + e] = static_cast<std::uint32_t>(column(u, e));
      }
    for (std::size_t i = 0; i < n_; ++i) {
      starts_.p[i + 1] = starts_.p[i] + kLengths[i % kRows];
      x_.p[i] = exact(i * i);
      y_.p[i] = kUndone;
    }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    std::set<std::size_t> lines;
    for (const std::size_t c : pattern_) lines.insert(c / 8);
    const double x = static_cast<double>(lines.size() * kLine), entries = kEntries, rows = kRows;
    return {
        .flops = 2 * entries,
        .load_bytes = (8 + 4 + 8) * entries + 2 * 8 * rows,
        .store_bytes = 8 * rows,
        .line_read_bytes = entries * 8 + static_cast<double>(lines_of(kEntries * 4) * kLine) + 2 * kLine + x + rows * 8,
        .line_write_bytes = 8 * rows};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto values = values_, x = x_, y = y_;
    const auto columns = columns_;
    const auto starts = starts_;
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t i = u * kRows; i < (u + 1) * kRows; ++i) {
        const Place start = starts[i], end = starts[i + 1];
        Real sum = 0.0;
        for (std::size_t e = bare(start); e < bare(end); ++e) {
          const Index c = columns[e];
          sum += values[e] * x[bare(c)];
        }
        y[i] = sum;
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u)
      for (std::size_t r = 0, e = 0; r < kRows; ++r) {
        double expected = 0;
        for (const std::size_t end = e + kLengths[r]; e < end; ++e) {
          const std::size_t c = column(u, e);
          expected += exact(u * kEntries + e) * exact(c * c);
        }
        if (const double actual = y_.p[u * kRows + r]; actual != kUndone && actual != expected)
          return "row " + std::to_string(u * kRows + r) + " gave " + std::to_string(actual) + ", not " +
                 std::to_string(expected);
      }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(y_.p, n_)); }

 private:
  std::size_t column(std::size_t u, std::size_t e) const { return (pattern_[e] + u * kRows) % n_; }
  /// A third of a row's entries are near its diagonal, a third within 2048 columns, and a third anywhere, as in
  /// irregular meshes.
  void make_pattern() {
    std::uint64_t draw = 1;
    for (std::size_t r = 0; r < kRows; ++r) {
      std::set<std::size_t> row{r};
      while (row.size() < kLengths[r]) {
        const std::uint64_t random = scramble(draw++);
        row.insert(draw % 3 == 0   ? (r + n_ - 12 + random % 25) % n_
                   : draw % 3 == 1 ? (r + random % std::min<std::size_t>(n_, 2048)) % n_
                                   : random % n_);
      }
      pattern_.insert(pattern_.end(), row.begin(), row.end());
    }
  }
  std::size_t units_, n_;
  std::vector<std::size_t> pattern_;  ///< columns of unit 0
  Reals values_, x_, y_;
  typename A::template Array<std::uint32_t> columns_;
  typename A::template Array<std::uint64_t> starts_;
};

/// A few iterations of conjugate gradients from zero for a small system: a five-point operator with variable
/// coefficients on a grid, stored by diagonals.
template <class A>
class CgIteration final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  static constexpr int kIterations = 4;
  static constexpr std::size_t kPad = 8;  // a line before the eastern couplings
  static constexpr std::size_t width(std::size_t n) { return n < 256 ? 8 : 16; }
  static constexpr std::size_t inputs(std::size_t n) { return 4 * n + kPad + width(n); }
  static constexpr std::size_t works(std::size_t n) { return 2 * n + 2 * width(n); }
  static constexpr std::size_t bytes(std::size_t n) { return (inputs(n) + 2 * n + works(n)) * 8; }

 public:
  CgIteration(const Shape& shape, Memory& memory)
      : n_(problem_size(shape, {32, 256}, bytes)), units_(units_in(shape, bytes(n_))) {
    in_ = {memory.take<double>(units_ * inputs(n_))};
    out_ = {memory.take<double>(units_ * 2 * n_)};
    work_ = {memory.take<double>(units_ * works(n_))};
    const std::size_t w = width(n_);
    for (std::size_t u = 0; u < units_; ++u) {
      double* const b = in_.p + u * inputs(n_);
      double *const d = b + n_, *const e = d + n_ + kPad, *const s = e + n_ + w;
      for (std::size_t i = 0; i < n_; ++i) {
        const std::uint64_t seed = (u * n_ + i) * 3;
        b[i] = unit_real(seed);
        e[i] = i % w + 1 < w ? 0.5 + unit_real(seed + 1) : 0.0;
        s[i] = i + w < n_ ? 0.5 + unit_real(seed + 2) : 0.0;
        d[i] = 0.125 + e[i] + s[i] + (i % w > 0 ? e[i - 1] : 0.0) + (i >= w ? s[i - w] : 0.0);
      }
      out_.p[u * 2 * n_] = kUndone;
    }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double n = static_cast<double>(n_), w = static_cast<double>(width(n_)), times = kIterations;
    return {.flops = 2 * n + 7 + times * (19 * n + 16),
            .load_bytes = (3 * n + times * 20 * n) * 8,
            .store_bytes = (3 * n + times * 4 * n) * 8,
            .line_read_bytes = (8 * n + 8 + 3 * w) * 8,
            .line_write_bytes = 4 * n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<32, 256>(n_, [&](auto size) {
      constexpr std::size_t n = size;
      for (std::size_t u = first; u < last; ++u) {
        iterate<n>(in_.from(u * inputs(n)), out_.from(u * 2 * n), work_.from(u * works(n)));
        A::end_unit();
      }
    });
  }
  /// Verifies that the updated residual equals the residual of x, and that x equals the result of a simple
  /// implementation.
  std::string verify() const override {
    const std::size_t w = width(n_);
    for (std::size_t u = 0; u < units_; ++u) {
      const double *const b = in_.p + u * inputs(n_), *const x = out_.p + u * 2 * n_, *const r = x + n_;
      if (x[0] == kUndone) continue;
      const double *const d = b + n_, *const e = d + n_ + kPad, *const s = e + n_ + w;
      const auto times_a = [&](const auto& v) {
        std::vector<double> product(n_);
        for (std::size_t i = 0; i < n_; ++i) {
          product[i] += d[i] * v[i];
          if (i % w + 1 < w) product[i] -= e[i] * v[i + 1], product[i + 1] -= e[i] * v[i];
          if (i + w < n_) product[i] -= s[i] * v[i + w], product[i + w] -= s[i] * v[i];
        }
        return product;
      };
      const auto dot = [&](const auto& f, const auto& g) {
        double sum = 0;
        for (std::size_t i = 0; i < n_; ++i) sum += f[i] * g[i];
        return sum;
      };
      std::vector<double> y(n_), residual(b, b + n_), p = residual;
      for (int k = 0; k < kIterations; ++k) {
        const auto q = times_a(p);
        const double before = dot(residual, residual), alpha = before / dot(p, q);
        for (std::size_t i = 0; i < n_; ++i) y[i] += alpha * p[i], residual[i] -= alpha * q[i];
        const double beta = dot(residual, residual) / before;
        for (std::size_t i = 0; i < n_; ++i) p[i] = residual[i] + beta * p[i];
      }
      const auto ax = times_a(x);
      for (std::size_t i = 0; i < n_; ++i)
        if (!(std::fabs(x[i] - y[i]) <= 1e-11 && std::fabs(b[i] - ax[i] - r[i]) <= 1e-12))
          return "system " + std::to_string(u) + ", unknown " + std::to_string(i) + ": " + std::to_string(x[i]) +
                 " with residual " + std::to_string(r[i]) + ", not " + std::to_string(y[i]) + " with " +
                 std::to_string(b[i] - ax[i]);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(out_.p, units_ * 2 * n_)); }

 private:
  template <std::size_t n>
  static Real dot(Reals a, Reals b) {
    std::array<Real, 8> part{};
    for (std::size_t i = 0; i < n; i += 8)
      for (std::size_t k = 0; k < 8; ++k) part[k] += a[i + k] * b[i + k];
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  template <std::size_t n>
  static void iterate(Reals b, Reals x, Reals q) {
    constexpr std::size_t w = width(n);
    const Reals r = x.from(n), p = q.from(n + w), north = q.from(n), south = q.from(n + 2 * w),
                before = q.from(n + w - 1);
    const Reals d = b.from(n), e = d.from(n + kPad), west = d.from(n + kPad - 1), up = e.from(n), s = e.from(n + w);
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const Real v = b[i];
      x[i] = 0.0;
      r[i] = v;
      p[i] = v;
    }
    Real norm = dot<n>(r, r);
    for (int k = 0; k < kIterations; ++k) {
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i)
        q[i] = d[i] * p[i] - (e[i] * p[i + 1] + west[i] * before[i]) - (s[i] * south[i] + up[i] * north[i]);
      const Real alpha = norm / dot<n>(p, q);
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i) {
        x[i] = x[i] + alpha * p[i];
        r[i] = r[i] - alpha * q[i];
      }
      const Real next = dot<n>(r, r);
      const Real beta = next / norm;
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i) p[i] = r[i] + beta * p[i];
      norm = next;
    }
  }
  std::size_t n_, units_;
  Reals in_;    ///< per unit: right side, diagonal, couplings to the east and to the south
  Reals out_;   ///< solution, residual
  Reals work_;  ///< A p; p between two rows of zeros
};

/// Successive over-relaxation in place: one sweep of the red and then the black points of a tile. The initial error is
/// an eigenvector of the sweep, so that the error is known after any number of sweeps.
template <class A>
class SorRedBlack final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  using Numbers = typename A::template Array<std::uint64_t>;
  static constexpr double kOmega = 1.25;
  static constexpr std::size_t bytes(std::size_t g) { return 2 * g * g * 8 + 8; }

 public:
  SorRedBlack(const Shape& shape, Memory& memory)
      : g_(problem_size(shape, {8, 16, 32}, bytes)), units_(units_in(shape, bytes(g_))) {
    u_ = {memory.take<double>(units_ * g_ * g_)};
    f_ = {memory.take<double>(units_ * g_ * g_)};
    sweeps_ = {memory.take<std::uint64_t>(units_)};
    const double angle = std::numbers::pi / static_cast<double>(g_ - 1), mu = std::cos(angle);
    root_ = (kOmega * mu + std::sqrt(kOmega * kOmega * mu * mu - 4 * (kOmega - 1))) / 2;
    for (std::size_t i = 0; i < g_; ++i)
      for (std::size_t j = 0; j < g_; ++j) {
        const double x = static_cast<double>(i), y = static_cast<double>(j);
        const bool inner = i > 0 && j > 0 && i + 1 < g_ && j + 1 < g_;
        error_.push_back(inner ? std::sin(x * angle) * std::sin(y * angle) * ((i + j) % 2 == 0 ? 1 : root_) : 0.0);
        solution_.push_back(1 + (x * x + y * y) / 256);
      }
    for (std::size_t u = 0; u < units_; ++u)
      for (std::size_t i = 0; i < g_ * g_; ++i) {
        u_.p[u * g_ * g_ + i] = solution_[i] + size(u) * error_[i];
        f_.p[u * g_ * g_ + i] = -4.0 / 256;
      }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double g = static_cast<double>(g_), points = (g - 2) * (g - 2), row = g * 8;
    return {.flops = 7 * points,
            .int_ops = 1,
            .load_bytes = 6 * points * 8 + 8,
            .store_bytes = points * 8 + 8,
            .line_read_bytes = g * row + (g - 2) * row + kLine,
            .line_write_bytes = (g - 2) * row + kLine};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto sweeps = sweeps_;
    with_size<8, 16, 32>(g_, [&](auto size) {
      constexpr std::size_t g = size;
      for (std::size_t u = first; u < last; ++u) {
        colour<g, 0>(u_.from(u * g * g), f_.from(u * g * g));
        colour<g, 1>(u_.from(u * g * g), f_.from(u * g * g));
        sweeps[u] = sweeps[u] + std::uint64_t{1};
        A::end_unit();
      }
    });
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      const double amplitude = size(u) * std::pow(root_ * root_, static_cast<double>(sweeps_.p[u]));
      for (std::size_t i = 0; i < g_ * g_; ++i) {
        const double actual = u_.p[u * g_ * g_ + i], expected = solution_[i] + amplitude * error_[i];
        if (!(std::fabs(actual - expected) <= 1e-11))
          return "tile " + std::to_string(u) + ", point " + std::to_string(i) + " is " + std::to_string(actual) +
                 ", not " + std::to_string(expected) + " after " + std::to_string(sweeps_.p[u]) + " sweeps";
      }
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(u_.p, units_ * g_ * g_)); }

 private:
  static double size(std::size_t u) { return 1 + static_cast<double>(u % 8) / 8; }
  template <std::size_t g, std::size_t black>
  static void colour(Reals u, Reals f) {
    for (std::size_t i = 1; i + 1 < g; ++i)
#pragma GCC ivdep
      for (std::size_t j = 1 + (i + 1 + black) % 2; j + 1 < g; j += 2) {
        const std::size_t k = i * g + j;
        u[k] = (1 - kOmega) * u[k] + kOmega / 4 * (((u[k - 1] + u[k + 1]) + (u[k - g] + u[k + g])) + f[k]);
      }
  }
  std::size_t g_, units_;
  Reals u_, f_;
  Numbers sweeps_;
  double root_ = 0;  ///< a sweep multiplies the error by its square
  std::vector<double> error_, solution_;
};

/// Thomas's elimination and back substitution of diagonally dominant systems, one per unit.
template <class A>
class Tridiagonal final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  Tridiagonal(const Shape& shape, Memory& memory)
      : n_(problem_size(shape, {16, 64, 256}, [](std::size_t n) { return 6 * n * 8; })),
        units_(units_in(shape, 6 * n_ * 8)) {
    for (Reals& array : arrays_) array = {memory.take<double>(units_ * n_)};
    const auto [a, b, c, d, x, work] = arrays_;
    for (std::size_t i = 0; i < units_ * n_; ++i) {
      const double lower = i % n_ > 0 ? exact(3 * i) : 0.0, upper = i % n_ + 1 < n_ ? exact(3 * i + 1) : 0.0;
      a.p[i] = -lower;
      b.p[i] = 1 + lower + upper;
      c.p[i] = -upper;
      d.p[i] = b.p[i] * solution(i) - (lower != 0 ? lower * solution(i - 1) : 0.0) -
               (upper != 0 ? upper * solution(i + 1) : 0.0);
    }
    for (std::size_t u = 0; u < units_; ++u) x.p[u * n_] = kUndone;
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double n = static_cast<double>(n_);
    return {.flops = 3 + 9 * (n - 1),
            .load_bytes = (3 + 6 * (n - 1)) * 8,
            .store_bytes = (3 * n - 1) * 8,
            .line_read_bytes = 6 * n * 8,
            .line_write_bytes = 2 * n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t n = n_;
    for (std::size_t u = first; u < last; ++u) {
      const auto part = [&](std::size_t k) { return arrays_[k].from(u * n); };
      solve(part(0), part(1), part(2), part(3), part(4), part(5), n);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      if (arrays_[4].p[u * n_] == kUndone) continue;
      for (std::size_t i = u * n_; i < (u + 1) * n_; ++i)
        if (!(std::fabs(arrays_[4].p[i] - solution(i)) <= 1e-12))
          return "unknown " + std::to_string(i) + " is " + std::to_string(arrays_[4].p[i]) + ", not " +
                 std::to_string(solution(i));
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(arrays_[4].p, units_ * n_)); }

 private:
  static double solution(std::size_t i) { return exact(7 * i + 5); }
  static void solve(Reals a, Reals b, Reals c, Reals d, Reals x, Reals work, std::size_t n) {
    const Real first = 1.0 / b[0];
    Real upper = c[0] * first, right = d[0] * first;
    work[0] = upper;
    x[0] = right;
    for (std::size_t i = 1; i < n; ++i) {
      const Real lower = a[i];
      const Real inverse = 1.0 / (b[i] - lower * upper);
      upper = c[i] * inverse;
      right = (d[i] - lower * right) * inverse;
      work[i] = upper;
      x[i] = right;
    }
    for (std::size_t i = n - 1; i-- > 0;) {
      right = x[i] - work[i] * right;
      x[i] = right;
    }
  }
  std::size_t n_, units_;
  std::array<Reals, 6> arrays_;  ///< lower, main and upper diagonal, right side; solution, work
};

/// Running sums of segments.
template <class A>
class PrefixSum final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  PrefixSum(const Shape& shape, Memory& memory)
      : n_(problem_size(shape, {64, 512}, [](std::size_t n) { return 2 * n * 8; })),
        units_(units_in(shape, 2 * n_ * 8)) {
    in_ = {memory.take<double>(units_ * n_)};
    out_ = {memory.take<double>(units_ * n_)};
    for (std::size_t i = 0; i < units_ * n_; ++i) in_.p[i] = exact(i);
    std::fill_n(out_.p, units_ * n_, kUndone);
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double n = static_cast<double>(n_);
    return {
        .flops = n, .load_bytes = n * 8, .store_bytes = n * 8, .line_read_bytes = 2 * n * 8, .line_write_bytes = n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t n = n_;
    for (std::size_t u = first; u < last; ++u) {
      const auto in = in_.from(u * n), out = out_.from(u * n);
      Real sum = 0.0;
      for (std::size_t i = 0; i < n; ++i) {
        sum += Real(in[i]);
        out[i] = sum;
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    double expected = 0;
    for (std::size_t i = 0; i < units_ * n_; ++i) {
      expected = (i % n_ == 0 ? 0.0 : expected) + exact(i);
      if (out_.p[i] != kUndone && out_.p[i] != expected)
        return "element " + std::to_string(i) + " is " + std::to_string(out_.p[i]) + ", not " +
               std::to_string(expected);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(out_.p, units_ * n_)); }

 private:
  std::size_t n_, units_;
  Reals in_, out_;
};

const Register<SpmvCsr> spmv_csr{{.name = "spmv_csr",
                                  .kind = "solver",
                                  .summary = "y = A x, sparse, 27 entries per row",
                                  .source = "HPCG; NPB CG; compressed sparse rows",
                                  .parity = true,
                                  .min_bytes = 11200}};
const Register<CgIteration> cg_iteration{{.name = "cg_iteration",
                                          .kind = "solver",
                                          .summary = "conjugate gradients, four iterations of small five-point systems",
                                          .source = "Hestenes and Stiefel; after NPB CG",
                                          .parity = true,
                                          .min_bytes = 9216}};
const Register<SorRedBlack> sor_red_black{{.name = "sor_red_black",
                                           .kind = "solver",
                                           .summary = "a sweep of red-black over-relaxation in place",
                                           .source = "Young's SOR; NPB LU",
                                           .min_bytes = 4128}};
const Register<Tridiagonal> tridiagonal{{.name = "tridiagonal",
                                         .kind = "solver",
                                         .summary = "Thomas's algorithm on small systems",
                                         .source = "Livermore loop 5; RAJAPerf TRIDIAG_ELIM",
                                         .parity = true}};
const Register<PrefixSum> prefix_sum{{.name = "prefix_sum",
                                      .kind = "solver",
                                      .summary = "running sums of segments",
                                      .source = "Livermore loop 11; RAJAPerf SCAN"}};
}  // namespace
}  // namespace mm::workloads

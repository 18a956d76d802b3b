/// Dense linear algebra: matrix times vector and matrix, and many small factorisations and eigenvalue sweeps.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

/// y = A x. A unit is eight rows.
template <class A>
class Gemv final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  static constexpr std::size_t kRows = 8;  // a cache line of y

 public:
  Gemv(const Shape& shape, Memory& memory)
      : columns_(problem_size(shape, {32, 128, 512, 2048}, [](std::size_t n) { return kRows * n * 8; })),
        units_(units_in(shape, (kRows * columns_ + kRows) * 8, columns_ * 8)) {
    a_ = {memory.take<double>(units_ * kRows * columns_)};
    x_ = {memory.take<double>(columns_)};
    y_ = {memory.take<double>(units_ * kRows)};
    for (std::size_t i = 0; i < units_ * kRows * columns_; ++i) a_.p[i] = exact(i);
    for (std::size_t j = 0; j < columns_; ++j) x_.p[j] = exact(j * j);
    std::fill_n(y_.p, units_ * kRows, kUndone);
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double rows = kRows, n = static_cast<double>(columns_);
    return {.flops = rows * (2 * n + 7),
            .load_bytes = 2 * rows * n * 8,
            .store_bytes = rows * 8,
            .line_read_bytes = (rows * n + n + rows) * 8,
            .line_write_bytes = rows * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto x = x_, y = y_;
    const std::size_t n = columns_;
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t row = u * kRows; row < (u + 1) * kRows; ++row) {
        const auto a = a_.from(row * n);
        std::array<Real, 8> part{};  // independent sums, to hide the latency of additions
        for (std::size_t j = 0; j < n; j += 8)
          for (std::size_t k = 0; k < 8; ++k) part[k] += a[j + k] * x[j + k];
        y[row] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < units_ * kRows; ++i) {
      if (y_.p[i] == kUndone) continue;
      double expected = 0;
      for (std::size_t j = 0; j < columns_; ++j) expected += exact(i * columns_ + j) * x_.p[j];
      if (y_.p[i] != expected)
        return "row " + std::to_string(i) + " gave " + std::to_string(y_.p[i]) + ", not " + std::to_string(expected);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(y_.p, units_ * kRows)); }

 private:
  std::size_t columns_, units_;
  Reals a_, x_, y_;
};

/// C = A B, where A and C are tall and B stays in a cache, as in the inner loops of a large product. All matrices are
/// packed in the order of use: A in panels of four rows, B in panels of four columns, C in tiles of 4 x 4.
template <class A>
class Gemm final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  static constexpr std::size_t kTile = 4, kRows = 8, kColumns = 16;  // of a register tile; of a unit

 public:
  Gemm(const Shape& shape, Memory& memory)
      : depth_(shape.volume_bytes < 64 << 10  ? 16
               : shape.volume_bytes < 1 << 20 ? 64
                                              : 128),
        columns_(depth_ < 128 ? depth_ : 256),
        across_(columns_ / kColumns),
        rows_(kRows * ((shape.volume_bytes - depth_ * columns_ * 8) / (kRows * (depth_ + columns_) * 8))) {
    if (rows_ / kRows * across_ < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer tiles than threads");
    a_ = {memory.take<double>(rows_ * depth_)};
    b_ = {memory.take<double>(depth_ * columns_)};
    c_ = {memory.take<double>(rows_ * columns_)};
    for (std::size_t i = 0; i < rows_; ++i)
      for (std::size_t k = 0; k < depth_; ++k)
        a_.p[(i / kTile * depth_ + k) * kTile + i % kTile] = exact(i * depth_ + k);
    for (std::size_t k = 0; k < depth_; ++k)
      for (std::size_t j = 0; j < columns_; ++j)
        b_.p[(j / kTile * depth_ + k) * kTile + j % kTile] = exact(k * columns_ + j);
    std::fill_n(c_.p, rows_ * columns_, kUndone);
  }
  std::size_t units() const override { return rows_ / kRows * across_; }
  Counts counts() const override {
    const double k = static_cast<double>(depth_), m = kRows, n = kColumns;
    return {.flops = 2 * m * n * k,
            .load_bytes = 2 * m * n * k / kTile * 8,
            .store_bytes = m * n * 8,
            .line_read_bytes = (m * k + k * n + m * n) * 8,
            .line_write_bytes = m * n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t depth = depth_, across = across_;
    for (std::size_t u = first; u < last; ++u) {
      const auto rows = a_.from(u / across * kRows * depth), columns = b_.from(u % across * kColumns * depth);
      const auto tiles = c_.from(u * kRows * kColumns);
      for (std::size_t i = 0; i < kRows / kTile; ++i)
        for (std::size_t j = 0; j < kColumns / kTile; ++j)
          tile(rows.from(i * kTile * depth), columns.from(j * kTile * depth),
               tiles.from((i * kColumns / kTile + j) * kTile * kTile), depth);
      A::end_unit();
    }
  }
  std::string verify() const override {
    std::vector<double> b(depth_ * columns_), expected(columns_);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = exact(i);
    for (std::size_t i = 0; i < rows_; ++i) {
      std::fill(expected.begin(), expected.end(), 0.0);
      for (std::size_t k = 0; k < depth_; ++k) {
        const double a = exact(i * depth_ + k);
        for (std::size_t j = 0; j < columns_; ++j) expected[j] += a * b[k * columns_ + j];
      }
      for (std::size_t j = 0; j < columns_; ++j) {
        const std::size_t unit = i / kRows * across_ + j / kColumns;
        const std::size_t tile = i % kRows / kTile * (kColumns / kTile) + j % kColumns / kTile;
        const double actual = c_.p[unit * kRows * kColumns + tile * kTile * kTile + i % kTile * kTile + j % kTile];
        if (actual != kUndone && actual != expected[j])
          return "element " + std::to_string(i) + ", " + std::to_string(j) + " is " + std::to_string(actual) +
                 ", not " + std::to_string(expected[j]);
      }
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(c_.p, rows_ * columns_)); }

 private:
  static void tile(Reals a, Reals b, Reals c, std::size_t depth) {
    std::array<Real, kTile> p{}, q{}, r{}, s{};
    for (std::size_t k = 0; k < depth; ++k) {
      const Real a0 = a[k * kTile], a1 = a[k * kTile + 1], a2 = a[k * kTile + 2], a3 = a[k * kTile + 3];
      for (std::size_t j = 0; j < kTile; ++j) {
        const Real v = b[k * kTile + j];
        p[j] += a0 * v;
        q[j] += a1 * v;
        r[j] += a2 * v;
        s[j] += a3 * v;
      }
    }
    for (std::size_t j = 0; j < kTile; ++j) {
      c[j] = p[j];
      c[kTile + j] = q[j];
      c[2 * kTile + j] = r[j];
      c[3 * kTile + j] = s[j];
    }
  }
  std::size_t depth_, columns_, across_, rows_;
  Reals a_, b_, c_;
};

/// Small square matrices, one per unit, with separate results, so that the same work can be repeated any number of
/// times.
template <class A, std::size_t results>
class MatrixKernel : public Kernel {
 protected:
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  /// `extra` is the number of bytes of a unit in addition to its matrices.
  MatrixKernel(const Shape& shape, Memory& memory, std::size_t n, std::size_t extra)
      : n_(n), units_(units_in(shape, (1 + results) * n * n * 8 + extra)) {
    a_ = {memory.take<double>(units_ * n * n)};
    out_ = {memory.take<double>(units_ * results * n * n)};
    for (std::size_t u = 0; u < units_; ++u) out_.p[u * results * n * n] = kUndone;
  }
  std::size_t units() const override { return units_; }
  std::span<std::byte> result() override {
    return std::as_writable_bytes(std::span(out_.p, units_ * results * n_ * n_));
  }

 protected:
  double* in(std::size_t u) const { return a_.p + u * n_ * n_; }
  double* out(std::size_t u) const { return out_.p + u * results * n_ * n_; }
  /// Fills the inputs with symmetric matrices of numbers in [-1/2, 1/2), with `more` added to their diagonals.
  void fill_symmetric(double more) {
    for (std::size_t u = 0; u < units_; ++u)
      for (std::size_t i = 0; i < n_; ++i)
        for (std::size_t j = 0; j <= i; ++j)
          in(u)[i * n_ + j] = in(u)[j * n_ + i] = unit_real((u * n_ + i) * n_ + j) - 0.5 + (i == j ? more : 0.0);
  }
  /// Verifies every completed unit. wrong(unit) returns the error of its result over the tolerance.
  template <class Wrong>
  std::string each_done(const Wrong& wrong) const {
    for (std::size_t u = 0; u < units_; ++u) {
      if (out(u)[0] == kUndone) continue;
      if (const double error = wrong(u); !(error <= 1))
        return "the error of matrix " + std::to_string(u) + " is " + std::to_string(error) + " times the tolerance";
    }
    return "";
  }
  std::size_t n_, units_;
  Reals a_, out_;
};

/// P A = L U with row interchanges, right-looking.
template <class A>
class Lu final : public MatrixKernel<A, 1> {
  using Base = MatrixKernel<A, 1>;
  using typename Base::Real;
  using typename Base::Reals;
  using Indices = typename A::template Array<std::uint32_t>;
  static std::size_t pivots_of(std::size_t n) { return (n + 15) / 16 * 16; }  // whole cache lines

 public:
  Lu(const Shape& shape, Memory& memory) : Lu(shape, memory, size_for(shape)) {}
  Counts counts() const override {
    const double n = static_cast<double>(this->n_);
    Counts c{.load_bytes = n * n * 8, .store_bytes = n * n * 8};
    for (std::size_t remaining = this->n_; remaining-- > 0;) {  // columns
      const auto m = static_cast<double>(remaining);
      c.flops += 1 + 2 * m + 1 + m + 2 * m * m;
      c.load_bytes += (1 + m + 2 * n + 1 + m + 2 * m * m) * 8;
      c.store_bytes += 4 + (2 * n + m + m * m) * 8;
    }
    const auto pivots = static_cast<double>(pivots_of(this->n_) * 4);
    c.line_read_bytes = 2 * n * n * 8 + pivots;
    c.line_write_bytes = n * n * 8 + pivots;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<12, 24, 48>(this->n_, [&](auto size) {
      constexpr std::size_t n = size;
      for (std::size_t u = first; u < last; ++u) {
        factor<n>(this->a_.from(u * n * n), this->out_.from(u * n * n), pivots_.from(u * pivots_of(n)));
        A::end_unit();
      }
    });
  }
  std::string verify() const override {
    const std::size_t n = this->n_;
    std::vector<double> residual(n * n);
    return this->each_done([&](std::size_t u) {
      const double* const f = this->out(u);
      std::copy_n(this->in(u), n * n, residual.begin());  // becomes P A - L U
      for (std::size_t k = 0; k < n; ++k) {
        const std::size_t p = pivots_.p[u * pivots_of(n) + k];
        if (p < k || p >= n) return HUGE_VAL;
        std::swap_ranges(residual.begin() + static_cast<std::ptrdiff_t>(k * n),
                         residual.begin() + static_cast<std::ptrdiff_t>(k * n + n),
                         residual.begin() + static_cast<std::ptrdiff_t>(p * n));
      }
      double error = 0;
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k <= i; ++k) {
          const double l = k < i ? f[i * n + k] : 1.0;
          if (!(std::fabs(l) <= 1)) return HUGE_VAL;  // bounded by partial pivoting
          for (std::size_t j = k; j < n; ++j) residual[i * n + j] -= l * f[k * n + j];
        }
        for (std::size_t j = 0; j < n; ++j)
          error = std::fabs(residual[i * n + j]) <= error ? error : std::fabs(residual[i * n + j]);
      }
      return error / 1e-12;
    });
  }

 private:
  static std::size_t size_for(const Shape& shape) {
    return problem_size(shape, {12, 24, 48}, [](std::size_t n) { return 2 * n * n * 8; });
  }
  Lu(const Shape& shape, Memory& memory, std::size_t n) : Base(shape, memory, n, pivots_of(n) * 4) {
    pivots_ = {memory.take<std::uint32_t>(this->units_ * pivots_of(n))};
    for (std::size_t i = 0; i < this->units_ * n * n; ++i) this->a_.p[i] = unit_real(i) - 0.5;
  }
  template <std::size_t n>
  static void factor(Reals a, Reals f, Indices pivots) {
    for (std::size_t i = 0; i < n * n; ++i) f[i] = Real(a[i]);
    for (std::size_t k = 0; k < n; ++k) {
      std::size_t pivot = k;
      Real best = fabs(Real(f[k * n + k]));
      for (std::size_t i = k + 1; i < n; ++i) {
        const Real size = fabs(Real(f[i * n + k]));
        if (size > best) best = size, pivot = i;
      }
      pivots[k] = static_cast<std::uint32_t>(pivot);
      const auto top = f.from(k * n), pivot_row = f.from(pivot * n);
#pragma GCC ivdep
      for (std::size_t j = 0; j < n; ++j) {  // even if both are the same row, so that every matrix costs the same
        const Real value = top[j];
        top[j] = Real(pivot_row[j]);
        pivot_row[j] = value;
      }
      const Real inverse = 1.0 / top[k];
      for (std::size_t i = k + 1; i < n; ++i) {
        const auto row = f.from(i * n);
        const Real l = row[k] * inverse;
        row[k] = l;
#pragma GCC ivdep
        for (std::size_t j = k + 1; j < n; ++j) row[j] = row[j] - l * top[j];
      }
    }
  }
  Indices pivots_;
};

/// A = R^T R with R upper triangular, right-looking.
template <class A>
class Cholesky final : public MatrixKernel<A, 1> {
  using Base = MatrixKernel<A, 1>;
  using typename Base::Real;
  using typename Base::Reals;

 public:
  Cholesky(const Shape& shape, Memory& memory)
      : Base(shape, memory, problem_size(shape, {12, 24, 48}, [](std::size_t n) { return 2 * n * n * 8; }), 0) {
    this->fill_symmetric(static_cast<double>(this->n_));
  }
  Counts counts() const override {
    const double n = static_cast<double>(this->n_);
    Counts c{.load_bytes = n * n * 8,
             .store_bytes = n * n * 8,
             .line_read_bytes = 2 * n * n * 8,
             .line_write_bytes = n * n * 8};
    for (std::size_t remaining = this->n_; remaining-- > 0;) {
      const auto m = static_cast<double>(remaining);
      const double triangle = m * (m + 1) / 2;  // number of its elements
      c.flops += 2 + m + 2 * triangle;
      c.load_bytes += (1 + m + m + 2 * triangle) * 8;
      c.store_bytes += (1 + m + triangle) * 8;
    }
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<12, 24, 48>(this->n_, [&](auto size) {
      constexpr std::size_t n = size;
      for (std::size_t u = first; u < last; ++u) {
        factor<n>(this->a_.from(u * n * n), this->out_.from(u * n * n));
        A::end_unit();
      }
    });
  }
  std::string verify() const override {
    const std::size_t n = this->n_;
    std::vector<double> residual(n * n);
    return this->each_done([&](std::size_t u) {
      const double *const a = this->in(u), *const f = this->out(u);
      std::copy_n(a, n * n, residual.begin());
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t i = k; i < n; ++i)
          for (std::size_t j = i; j < n; ++j) residual[i * n + j] -= f[k * n + i] * f[k * n + j];
      double error = 0;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          const double difference =
              std::fabs(i <= j ? residual[i * n + j] : f[i * n + j] - a[i * n + j]);  // the lower triangle is a copy
          error = difference <= error ? error : difference;
        }
      return error / (1e-14 * static_cast<double>(n));
    });
  }

 private:
  template <std::size_t n>
  static void factor(Reals a, Reals f) {
    for (std::size_t i = 0; i < n * n; ++i) f[i] = Real(a[i]);
    for (std::size_t k = 0; k < n; ++k) {
      const auto top = f.from(k * n);
      const Real root = sqrt(Real(top[k]));
      const Real inverse = 1.0 / root;
      top[k] = root;
      for (std::size_t j = k + 1; j < n; ++j) top[j] = top[j] * inverse;
      for (std::size_t i = k + 1; i < n; ++i) {
        const auto row = f.from(i * n);
        const Real r = top[i];
#pragma GCC ivdep
        for (std::size_t j = i; j < n; ++j) row[j] = row[j] - r * top[j];
      }
    }
  }
};

/// One cyclic sweep of Jacobi rotations: D = V A V^T with smaller off-diagonal elements.
template <class A>
class EigenStep final : public MatrixKernel<A, 2> {
  using Base = MatrixKernel<A, 2>;
  using typename Base::Real;
  using typename Base::Reals;

 public:
  EigenStep(const Shape& shape, Memory& memory)
      : Base(shape, memory, problem_size(shape, {8, 16}, [](std::size_t n) { return 3 * n * n * 8; }), 0) {
    this->fill_symmetric(0);
  }
  Counts counts() const override {
    const double n = static_cast<double>(this->n_), rotations = n * (n - 1) / 2;
    return {.flops = rotations * (15 + 18 * n),
            .load_bytes = (n * n + rotations * (3 + 6 * n)) * 8,
            .store_bytes = (2 * n * n + rotations * 6 * n) * 8,
            .line_read_bytes = 3 * n * n * 8,
            .line_write_bytes = 2 * n * n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<8, 16>(this->n_, [&](auto size) {
      constexpr std::size_t n = size;
      for (std::size_t u = first; u < last; ++u) {
        sweep<n>(this->a_.from(u * n * n), this->out_.from(u * 2 * n * n), this->out_.from((u * 2 + 1) * n * n));
        A::end_unit();
      }
    });
  }
  std::string verify() const override {
    const std::size_t n = this->n_;
    std::vector<double> half(n * n);
    return this->each_done([&](std::size_t u) {
      const double *const a = this->in(u), *const d = this->out(u), *const v = d + n * n;
      double error = 0, off_diagonal = 0, off_diagonal_before = 0;
      const auto update = [&error](double difference) {
        error = std::fabs(difference) <= error ? error : std::fabs(difference);
      };
      std::fill(half.begin(), half.end(), 0.0);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k)
          for (std::size_t j = 0; j < n; ++j) half[i * n + j] += v[i * n + k] * a[k * n + j];
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          double similar = 0, product = 0;
          for (std::size_t k = 0; k < n; ++k) {
            similar += half[i * n + k] * v[j * n + k];
            product += v[i * n + k] * v[j * n + k];
          }
          update(d[i * n + j] - similar);
          update(product - (i == j ? 1.0 : 0.0));
          if (i != j) off_diagonal += d[i * n + j] * d[i * n + j], off_diagonal_before += a[i * n + j] * a[i * n + j];
        }
      return off_diagonal < 0.5 * off_diagonal_before ? error / 1e-13 : HUGE_VAL;
    });
  }

 private:
  template <std::size_t n>
  static void sweep(Reals a, Reals d, Reals v) {
    for (std::size_t i = 0; i < n * n; ++i) d[i] = Real(a[i]);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) v[i * n + j] = i == j ? 1.0 : 0.0;
    for (std::size_t p = 0; p + 1 < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        const Real element = d[p * n + q];
        const Real theta = (d[q * n + q] - d[p * n + p]) / (2.0 * element);
        const Real sign = theta < 0.0 ? -1.0 : 1.0;
        const Real t = sign / (fabs(theta) + sqrt(theta * theta + 1.0));
        const Real c = 1.0 / sqrt(t * t + 1.0);
        const Real s = t * c;
        rotate<n, 1>(d.from(p * n), d.from(q * n), c, s);
        rotate<n, n>(d.from(p), d.from(q), c, s);
        rotate<n, 1>(v.from(p * n), v.from(q * n), c, s);
      }
  }
  template <std::size_t n, std::size_t stride>
  static void rotate(Reals p, Reals q, Real c, Real s) {
#pragma GCC ivdep
    for (std::size_t j = 0; j < n; ++j) {
      const Real x = p[j * stride], y = q[j * stride];
      p[j * stride] = c * x - s * y;
      q[j * stride] = s * x + c * y;
    }
  }
};

const Register<Gemv> gemv{{.name = "gemv",
                           .kind = "dense",
                           .summary = "y = A x, in blocks of eight rows",
                           .source = "BLAS 2; PolyBench mvt",
                           .parity = true,
                           .min_bytes = 8704}};
const Register<Gemm> gemm{{.name = "gemm",
                           .kind = "dense",
                           .summary = "C = A B, packed, in tiles of 8 x 16",
                           .source = "BLAS 3; layered as by Goto and van de Geijn",
                           .parity = true,
                           .min_bytes = 8192}};
const Register<Lu> lu{{.name = "lu",
                       .kind = "dense",
                       .summary = "copies and factors small matrices, P A = L U",
                       .source = "LAPACK dgetf2; after Linpack",
                       .parity = true,
                       .min_bytes = 9472}};
const Register<Cholesky> cholesky{{.name = "cholesky",
                                   .kind = "dense",
                                   .summary = "copies and factors small matrices, A = R^T R",
                                   .source = "LAPACK dpotf2; PolyBench cholesky",
                                   .min_bytes = 9216}};
const Register<EigenStep> eigen_step{
    {.name = "eigen_step",
     .kind = "dense",
     .summary = "a sweep of Jacobi rotations of small symmetric matrices, with eigenvectors",
     .source = "cyclic Jacobi; after EuroBen MOD2D",
     .min_bytes = 6144}};

}  // namespace
}  // namespace mm::workloads

#include "apps/models/sparse.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

namespace mm::workloads {
namespace {

constexpr int kDirections = 3;
const double kCoefficients[kDirections] = {1.0, std::numbers::sqrt2, std::numbers::sqrt3};
constexpr std::size_t kBlock = 512;  // rows whose part of a vector stays in the first-level cache

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

#define MM_INLINE [[gnu::always_inline]] inline

/// Part of some vectors: `count` arrays of `rows` numbers, each `stride` after the previous one.
struct Vectors {
  const double* first;
  std::size_t stride, count, rows;
};

/// Computes sums[i] += v_i w for four vectors at once, since one sum alone waits for each addition.
MM_INLINE void dots_of(const Vectors& v, const double* w, double* sums) {
  std::size_t i = 0;
  for (; i + 4 <= v.count; i += 4) {
    const double *a = v.first + i * v.stride, *b = a + v.stride, *c = b + v.stride, *d = c + v.stride;
    double sa = 0, sb = 0, sc = 0, sd = 0;
#pragma omp simd reduction(+ : sa, sb, sc, sd)
    for (std::size_t k = 0; k < v.rows; ++k) sa += a[k] * w[k], sb += b[k] * w[k], sc += c[k] * w[k], sd += d[k] * w[k];
    sums[i] += sa, sums[i + 1] += sb, sums[i + 2] += sc, sums[i + 3] += sd;
  }
  for (; i < v.count; ++i) {
    const double* const a = v.first + i * v.stride;
    double sa = 0;
#pragma omp simd reduction(+ : sa)
    for (std::size_t k = 0; k < v.rows; ++k) sa += a[k] * w[k];
    sums[i] += sa;
  }
}

/// Computes w += sum of h_i v_i, for four vectors at once.
MM_INLINE void add_to(const Vectors& v, const double* h, double* w) {
  std::size_t i = 0;
  for (; i + 4 <= v.count; i += 4) {
    const double *a = v.first + i * v.stride, *b = a + v.stride, *c = b + v.stride, *d = c + v.stride;
    const double ha = h[i], hb = h[i + 1], hc = h[i + 2], hd = h[i + 3];
#pragma omp simd
    for (std::size_t k = 0; k < v.rows; ++k) w[k] += ha * a[k] + hb * b[k] + hc * c[k] + hd * d[k];
  }
  for (; i < v.count; ++i) {
    const double* const a = v.first + i * v.stride;
    const double ha = h[i];
#pragma omp simd
    for (std::size_t k = 0; k < v.rows; ++k) w[k] += ha * a[k];
  }
}

using Dots = void (*)(const Vectors&, const double*, double*);
using Add = void (*)(const Vectors&, const double*, double*);

void dots_plain(const Vectors& v, const double* w, double* sums) { dots_of(v, w, sums); }
void add_plain(const Vectors& v, const double* h, double* w) { add_to(v, h, w); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void dots_avx2(const Vectors& v, const double* w, double* sums) {
  dots_of(v, w, sums);
}
__attribute__((target("avx2,fma"))) void add_avx2(const Vectors& v, const double* h, double* w) { add_to(v, h, w); }
__attribute__((target("avx512f,avx512dq"))) void dots_avx512(const Vectors& v, const double* w, double* sums) {
  dots_of(v, w, sums);
}
__attribute__((target("avx512f,avx512dq"))) void add_avx512(const Vectors& v, const double* h, double* w) {
  add_to(v, h, w);
}
#endif

}  // namespace

GridMatrix::GridMatrix(int edge, bool scattered, std::uint64_t seed)
    : edge_(static_cast<std::size_t>(edge)), n_(edge_ * edge_ * edge_), starts_(n_ + 1) {
  if (scattered) {
    point_of_.resize(n_);
    row_of_.resize(n_);
    std::iota(point_of_.begin(), point_of_.end(), 0U);
    std::shuffle(point_of_.begin(), point_of_.end(), std::mt19937_64{seed});
    for (std::size_t row = 0; row < n_; ++row) row_of_[point_of_[row]] = static_cast<std::uint32_t>(row);
  }
  std::size_t indices[2 * kDirections];
  double coefficients[2 * kDirections];
  for (std::size_t row = 0; row < n_; ++row)
    starts_[row + 1] = starts_[row] + 1 + neighbours(scattered ? point_of_[row] : row, indices, coefficients);
}

/// Computes the neighbours of a point in the cube and their coefficients. Returns the number of neighbours.
std::size_t GridMatrix::neighbours(std::size_t point, std::size_t* of, double* coefficients) const {
  std::size_t count = 0, step = 1;
  for (const double c : kCoefficients) {
    const std::size_t coordinate = point / step % edge_;
    if (coordinate > 0) of[count] = point - step, coefficients[count++] = c;
    if (coordinate + 1 < edge_) of[count] = point + step, coefficients[count++] = c;
    step *= edge_;
  }
  return count;
}

std::size_t GridMatrix::bytes() const {
  return aligned(entries() * sizeof(double)) + aligned(entries() * sizeof(std::uint32_t)) +
         aligned((n_ + 1) * sizeof(std::uint32_t));
}

void GridMatrix::place(std::byte* memory) {
  std::byte* const columns = memory + aligned(entries() * sizeof(double));
  entries_ = reinterpret_cast<double*>(memory);
  columns_ = reinterpret_cast<std::uint32_t*>(columns);
  row_starts_ = reinterpret_cast<std::uint32_t*>(columns + aligned(entries() * sizeof(std::uint32_t)));
}

void GridMatrix::fill(std::size_t first, std::size_t end) {
  std::size_t indices[2 * kDirections];
  double coefficients[2 * kDirections];
  const double diagonal = 2 * (kCoefficients[0] + kCoefficients[1] + kCoefficients[2]);
  for (std::size_t row = first; row < end; ++row) {
    const std::size_t count = neighbours(point_of_.empty() ? row : point_of_[row], indices, coefficients);
    std::size_t position = starts_[row];
    row_starts_[row] = static_cast<std::uint32_t>(position);
    entries_[position] = diagonal;
    columns_[position++] = static_cast<std::uint32_t>(row);
    for (std::size_t k = 0; k < count; ++k) {
      entries_[position] = -coefficients[k];
      columns_[position++] = row_of_.empty() ? static_cast<std::uint32_t>(indices[k]) : row_of_[indices[k]];
    }
  }
  if (end == n_) row_starts_[n_] = static_cast<std::uint32_t>(starts_[n_]);
}

void GridMatrix::multiply(std::size_t first, std::size_t end, const double* x, double* y) const {
  for (std::size_t row = first; row < end; ++row) {
    double sum = 0;
    for (std::uint32_t k = row_starts_[row]; k < row_starts_[row + 1]; ++k) sum += entries_[k] * x[columns_[k]];
    y[row] = sum;
  }
}

std::vector<double> GridMatrix::largest(int count) const {
  // For each direction, only the last `count` of its values can contribute to the result.
  const std::size_t per_direction = std::min<std::size_t>(edge_, static_cast<std::size_t>(count));
  const auto value = [this](int direction, std::size_t from_last) {
    const double angle = std::numbers::pi * static_cast<double>(edge_ - from_last) / static_cast<double>(edge_ + 1);
    return kCoefficients[direction] * (2 - 2 * std::cos(angle));
  };
  std::vector<double> values;
  for (std::size_t i = 0; i < per_direction; ++i)
    for (std::size_t j = 0; j < per_direction; ++j)
      for (std::size_t k = 0; k < per_direction; ++k) values.push_back(value(0, i) + value(1, j) + value(2, k));
  std::sort(values.rbegin(), values.rend());
  values.resize(static_cast<std::size_t>(count));
  return values;
}

std::vector<double> jacobi(std::vector<double>& a, int n) {
  constexpr double kNothing = 1e-17;  // share of the diagonal below which an element no longer adds to it
  const auto size = static_cast<std::size_t>(n);
  std::vector<double> v(size * size, 0.0);
  for (std::size_t i = 0; i < size; ++i) v[i * size + i] = 1;
  const auto rotate = [size](double* x, double* y, double c, double s) {
#pragma omp simd
    for (std::size_t k = 0; k < size; ++k) {
      const double xk = x[k], yk = y[k];
      x[k] = c * xk - s * yk;
      y[k] = s * xk + c * yk;
    }
  };
  bool rotated = true;
  for (int sweep = 0; rotated && sweep < 60; ++sweep) {
    rotated = false;
    for (std::size_t p = 0; p + 1 < size; ++p)
      for (std::size_t q = p + 1; q < size; ++q) {
        double *const row_p = a.data() + p * size, *const row_q = a.data() + q * size;
        const double apq = row_p[q], app = row_p[p], aqq = row_q[q];
        if (std::fabs(apq) <= kNothing * (std::fabs(app) + std::fabs(aqq))) continue;
        rotated = true;
        const double theta = (aqq - app) / (2 * apq);
        const double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::hypot(theta, 1.0));
        const double c = 1 / std::hypot(t, 1.0), s = t * c;
        rotate(row_p, row_q, c, s);
        for (std::size_t k = 0; k < size; ++k) a[k * size + p] = row_p[k], a[k * size + q] = row_q[k];
        row_p[p] = app - t * apq;
        row_q[q] = aqq + t * apq;
        row_p[q] = row_q[p] = 0;
        rotate(v.data() + p * size, v.data() + q * size, c, s);
      }
  }
  return v;
}

/// The loops over rows for a kind of vector instructions.
struct Lanczos::Loops {
  Dots dots = dots_plain;
  Add add = add_plain;

  explicit Loops([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
    if (isa == "avx2") dots = dots_avx2, add = add_avx2;
    if (isa == "avx512") dots = dots_avx512, add = add_avx512;
#endif
  }
};

Lanczos::Lanczos(const GridMatrix& matrix, int values, int basis, double tolerance, std::size_t threads,
                 std::byte* memory, std::string_view isa)
    : matrix_(matrix),
      n_(matrix.rows()),
      wanted_(values),
      size_(basis),
      tolerance_(tolerance),
      basis_(reinterpret_cast<double*>(memory)),
      loops_(std::make_shared<const Loops>(isa)),
      sums_(threads),
      meeting_(static_cast<std::ptrdiff_t>(threads)) {
  for (Sums& s : sums_)
    for (auto& numbers : s.of) numbers.resize(static_cast<std::size_t>(basis) + 1);
}

std::size_t Lanczos::first_row(std::size_t rows, std::size_t threads, std::size_t thread) {
  return thread == threads ? rows : rows * thread / threads / 8 * 8;  // threads share no cache line
}

void Lanczos::random_rows(std::size_t first, std::size_t end, std::uint64_t seed, double* v) {
  for (std::size_t row = first; row < end; ++row) {
    std::uint64_t z = (row + 1) * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    v[row] = static_cast<double>(static_cast<std::int64_t>(z ^ (z >> 31))) * 0x1p-63;
  }
}

void Lanczos::touch(std::size_t thread) {
  const std::size_t first = first_row(n_, sums_.size(), thread), end = first_row(n_, sums_.size(), thread + 1);
  for (int j = 0; j <= size_; ++j) std::fill(column(j) + first, column(j) + end, 0.0);
}

void Lanczos::solve(std::size_t thread, std::uint64_t seed) {
  const auto m = static_cast<std::size_t>(size_);
  Own local{thread, first_row(n_, sums_.size(), thread), first_row(n_, sums_.size(), thread + 1),
            std::vector<double>(m * m), std::vector<double>(m + 1)};
  const double rows = static_cast<double>(n_);
  start(local, seed);
  int begin = 0;
  for (int restart = 0;; ++restart) {
    double beta = 0;
    for (int j = begin; j < size_; ++j) beta = extend(local, j);
    std::vector<double> small = local.projected;
    const std::vector<double> vectors = jacobi(small, size_);
    std::vector<int> order(m);
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](int i) { return small[static_cast<std::size_t>(i) * (m + 1)]; };
    std::sort(order.begin(), order.end(), [&](int a, int b) { return value(a) > value(b); });
    const auto residual = [&](int i) { return std::fabs(beta * vectors[static_cast<std::size_t>(i) * m + m - 1]); };
    const bool converged = std::all_of(order.begin(), order.begin() + wanted_,
                                       [&](int i) { return residual(i) <= tolerance_ * std::fabs(value(i)); });
    const bool last = converged || restart == kMaxRestarts;
    // A few more vectors than requested make the requested ones converge faster.
    const int retained = last ? wanted_ : std::min(size_ - 2, wanted_ + (size_ - wanted_) / 2);
    combine(local, vectors, order, retained);
    local.flops += 2 * rows * size_ * retained;
    if (last) {
      if (thread == 0) {
        found_.clear();
        for (int k = 0; k < wanted_; ++k) found_.push_back(value(order[static_cast<std::size_t>(k)]));
        converged_ = converged;
        products_ = local.products, product_s_ = local.product_s, flops_ = local.flops;
      }
      return;
    }
    std::fill(local.projected.begin(), local.projected.end(), 0.0);
    for (int k = 0; k < retained; ++k)
      local.projected[static_cast<std::size_t>(k) * (m + 1)] = value(order[static_cast<std::size_t>(k)]);
    std::copy(column(size_) + local.first, column(size_) + local.end, column(retained) + local.first);
    begin = retained;
  }
}

/// Computes the first vector of the basis.
void Lanczos::start(Own& own, std::uint64_t seed) {
  double* const v = column(0);
  random_rows(own.first, own.end, seed, v);
  double square = 0;
  loops_->dots({v + own.first, 0, 1, own.end - own.first}, v + own.first, &square);
  normalise(own, v, square);
}

/// Computes vector j + 1 of the basis, and column j of the projected matrix. Returns the norm of the new part of A v.
double Lanczos::extend(Own& own, int j) {
  double* const w = column(j + 1);
  meeting_.arrive_and_wait();  // vector j is complete
  const Ticks begin = ticks();
  matrix_.multiply(own.first, own.end, column(j), w);
  meeting_.arrive_and_wait();  // a product takes as long as its slowest part
  own.product_s += seconds(ticks() - begin);
  ++own.products;
  const std::size_t m = static_cast<std::size_t>(size_), count = static_cast<std::size_t>(j) + 1;
  auto& local = sums_[own.thread].of;
  // Classical Gram-Schmidt, twice. Each block of rows is updated and at once multiplied for the next pass.
  double square = 0;
  std::vector<double> h(count, 0.0);
  for (int pass = 0; pass < 3; ++pass) {
    auto& sums = local[own.turn];
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t row = own.first; row < own.end; row += kBlock) {
      const Vectors block{basis_ + row, stride(n_), count, std::min(kBlock, own.end - row)};
      if (pass > 0) loops_->add(block, h.data(), w + row);
      if (pass < 2) {
        loops_->dots(block, w + row, sums.data());
      } else {
        loops_->dots({w + row, 0, 1, block.rows}, w + row, &square);
      }
    }
    if (pass == 2) break;
    reduce(own, j + 1);
    for (std::size_t i = 0; i < count; ++i) {
      h[i] = -own.sums[i];
      own.projected[i * m + count - 1] -= h[i];
      if (i + 1 < count) own.projected[(count - 1) * m + i] -= h[i];
    }
  }
  own.flops += 2.0 * static_cast<double>(matrix_.entries()) + static_cast<double>(n_) * (8.0 * (j + 1) + 3);
  return normalise(own, w, square);
}

/// Divides the vector by its norm and returns the norm. `square` is this thread's part of the squared norm.
double Lanczos::normalise(Own& own, double* w, double square) {
  sums_[own.thread].of[own.turn][0] = square;
  reduce(own, 1);
  const double norm = std::sqrt(own.sums[0]), over = norm > 0 ? 1 / norm : 0;
  for (std::size_t i = own.first; i < own.end; ++i) w[i] *= over;
  return norm;
}

/// Adds the sums of all threads, in the same order on each thread.
void Lanczos::reduce(Own& own, int count) {
  meeting_.arrive_and_wait();
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    own.sums[i] = 0;
    for (const Sums& s : sums_) own.sums[i] += s.of[own.turn][i];
  }
  own.turn ^= 1;
}

/// Replaces the first `kept` vectors by the Ritz vectors, in this order.
void Lanczos::combine(const Own& own, const std::vector<double>& vectors, const std::vector<int>& order, int kept) {
  const auto m = static_cast<std::size_t>(size_), k = static_cast<std::size_t>(kept);
  std::vector<double> ritz(k * kBlock);
  for (std::size_t row = own.first; row < own.end; row += kBlock) {
    const Vectors block{basis_ + row, stride(n_), m, std::min(kBlock, own.end - row)};
    std::fill(ritz.begin(), ritz.end(), 0.0);
    for (std::size_t j = 0; j < k; ++j)
      loops_->add(block, vectors.data() + static_cast<std::size_t>(order[j]) * m, ritz.data() + j * kBlock);
    for (std::size_t j = 0; j < k; ++j)
      std::copy_n(ritz.data() + j * kBlock, block.rows, column(static_cast<int>(j)) + row);
  }
}

}  // namespace mm::workloads

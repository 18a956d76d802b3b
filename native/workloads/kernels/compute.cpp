/// Compute-bound kernels: polynomials in registers, fused multiply-adds, exponentials and logarithms, random points,
/// divisions and square roots, and forces between bodies.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "kernels/fma.hpp"
#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

constexpr std::size_t kKept = 1024;  // units of kernels without arrays

std::string differs(const std::string& what, std::size_t i, double actual, double expected) {
  return what + " " + std::to_string(i) + " is " + std::to_string(actual) + ", not " + std::to_string(expected);
}

/// Work in registers: each unit leaves one result of type R.
template <class R>
class Registers : public Kernel {
 public:
  Registers(const Shape& shape, const R& undone)
      : kept_(std::max(kKept, static_cast<std::size_t>(shape.threads)), undone) {}
  std::size_t units() const override { return kept_.size(); }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(kept_)); }

 protected:
  std::vector<R> kept_;
};

/// The exponential series to a degree at which further terms vanish for |x| <= 1, so that the result can be verified by
/// another method.
template <class A>
struct Horner final : Registers<double> {
  using Real = typename A::template Value<double>;
  static constexpr std::size_t kDegree = 48, kBlocks = 4;
  static constexpr std::size_t kChains = 24;  // two vector units with a latency of four cycles need eight vectors
  static constexpr std::array<double, kDegree + 1> kSeries = [] {
    std::array<double, kDegree + 1> c{1};
    for (std::size_t k = 1; k <= kDegree; ++k) c[k] = c[k - 1] / static_cast<double>(k);
    return c;
  }();
  static constexpr double kStep = 2.0 / static_cast<double>(kBlocks * kChains);

  Horner(const Shape& shape, Memory&) : Registers<double>(shape, -1.0) {}
  Counts counts() const override {
    Counts c;
    c.flops = kBlocks * kChains * (2 * kDegree + 3);  // 3: the position of a point, and its sum
    return c;
  }
  /// Returns the position of the first point of a unit. Units differ in the position of their points between two steps.
  static double offset(std::size_t u) { return static_cast<double>(u % kKept) * (kStep / kKept) - 1; }

  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      const Real start = offset(u);
      Real sum = 0;
      for (std::size_t block = 0; block < kBlocks; ++block) {
        std::array<Real, kChains> x, p;
        for (std::size_t k = 0; k < kChains; ++k)
          x[k] = start + Real(static_cast<double>(static_cast<int>(block * kChains + k))) * Real(kStep);
        for (std::size_t k = 0; k < kChains; ++k) p[k] = kSeries[kDegree];
        for (std::size_t d = kDegree; d-- > 0;) {
          const Real c = kSeries[d];
          for (std::size_t k = 0; k < kChains; ++k) p[k] = p[k] * x[k] + c;
        }
        for (std::size_t k = 0; k < kChains; ++k) sum = sum + p[k];
      }
      kept_[u] = bare(sum);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < kept_.size(); ++u) {
      if (kept_[u] == -1.0) continue;
      double expected = 0;
      for (std::size_t i = 0; i < kBlocks * kChains; ++i)
        expected += std::exp(offset(u) + static_cast<double>(i) * kStep);
      if (!(std::fabs(kept_[u] - expected) <= 1e-13 * expected)) return differs("sum", u, kept_[u], expected);
    }
    return "";
  }
};

/// The chains of kernels/fma.hpp in the widest vectors of this processor. The number of steps makes the work
/// independent of the width. A processor without these instructions, and the counting variant, use scalars.
template <class A>
struct HornerFma final : Registers<double> {
  using Real = typename A::template Value<double>;
  static constexpr std::size_t kSteps = 96 * 1024;  // over all chains
  static constexpr int kPlainLanes = 24;

  HornerFma(const Shape& shape, Memory&) : Registers<double>(shape, -1.0) {
    for (const std::string_view isa : built_isas())
      if (has_isa(isa))
        if (const FmaKernel k = fma_kernel(isa, FmaType::fp64); k.run != nullptr) fma_ = k;
    const auto lanes = static_cast<std::size_t>(fma_.run == nullptr ? kPlainLanes : fma_.lanes);
    if (kSteps % lanes != 0 || kSteps / lanes < 64)
      throw Absent("the work cannot be divided into " + std::to_string(lanes) + " chains");
  }
  Counts counts() const override {
    Counts c;
    c.flops = 2 * kSteps;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      if (std::is_same_v<A, Counted> || fma_.run == nullptr)
        kept_[u] = run_scalar();
      else
        kept_[u] = fma_.run(kSteps / static_cast<std::size_t>(fma_.lanes));
      A::end_unit();
    }
  }
  /// Verifies that each chain has exactly reached its fixed point 2.
  std::string verify() const override {
    for (std::size_t u = 0; u < kept_.size(); ++u)
      if (kept_[u] != -1.0 && kept_[u] != 0) return differs("distance from the fixed point in unit", u, kept_[u], 0);
    return "";
  }

 private:
  static double run_scalar() {
    std::array<Real, kPlainLanes> x;
    for (Real& lane : x) lane = 1.5;
    const Real m = 0.5, a = 1;
    for (std::size_t i = 0; i < kSteps / kPlainLanes; ++i)
      for (Real& lane : x) lane = lane * m + a;
    double error = 0;
    for (const Real& lane : x) error += std::fabs(bare(lane) - 2);
    return error;
  }
  FmaKernel fma_;
};

/// Pairs of normal deviates by the polar method, from pseudorandom points of the square. A point outside the circle is
/// moved to its rim, where its deviates are 0, so that there is no branch and the same work in each unit.
template <class A>
struct MonteCarlo final : Registers<std::array<double, 3>> {
  using Real = typename A::template Value<double>;
  using Word = typename A::template Value<std::uint64_t>;
  static constexpr std::size_t kPoints = 64;

  MonteCarlo(const Shape& shape, Memory&) : Registers<std::array<double, 3>>(shape, {0, 0, -1}) {}
  Counts counts() const override {
    Counts c;
    c.int_ops = kPoints * (9 + 2 + 1);
    c.flops = kPoints * (4 + 3 + 1 + 1 + 4 + 4);
    return c;
  }
  static Word random(Word z) {
    z = z + Word(0x9e3779b97f4a7c15u);
    z = (z ^ (z >> Word(30))) * Word(0xbf58476d1ce4e5b9u);
    z = (z ^ (z >> Word(27))) * Word(0x94d049bb133111ebu);
    return z ^ (z >> Word(31));
  }
  static Real real(Word half) {  // through a signed integer: that conversion is one instruction
    return Real(static_cast<double>(static_cast<std::int64_t>(bare(half)))) * Real(0x1p-31) - Real(1);
  }

  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      Real sum_x = 0, sum_y = 0;
      Word accepted = 0;
      for (std::size_t i = 0; i < kPoints; ++i) {
        const Word z = random(Word(u * kPoints + i));
        const Real x = real(z >> Word(32)), y = real(z & Word(0xffffffffu));
        const Real t = x * x + y * y;
        accepted = accepted + Word(t < Real(1));
        const Real rim = smaller(t, Real(1));
        const Real factor = sqrt(Real(-2) * log(rim) / rim);
        sum_x = sum_x + factor * x;
        sum_y = sum_y + factor * y;
      }
      kept_[u] = {bare(sum_x), bare(sum_y), static_cast<double>(bare(accepted))};
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < kept_.size(); ++u) {
      if (kept_[u] == std::array<double, 3>{0, 0, -1}) continue;
      std::array<double, 3> expected{};
      for (std::size_t i = 0; i < kPoints; ++i) {
        const std::uint64_t z = scramble(u * kPoints + i);
        const double x = 2 * (static_cast<double>(z >> 32) / 0x1p32) - 1;
        const double y = 2 * (static_cast<double>(z & 0xffffffffu) / 0x1p32) - 1, t = x * x + y * y;
        if (t >= 1) continue;
        expected[0] += x * std::sqrt(-2 * std::log(t) / t);
        expected[1] += y * std::sqrt(-2 * std::log(t) / t);
        expected[2] += 1;
      }
      if (kept_[u][2] != expected[2]) return differs("accepted points of unit", u, kept_[u][2], expected[2]);
      for (std::size_t k = 0; k < 2; ++k)
        if (!(std::fabs(kept_[u][k] - expected[k]) <= 1e-11))
          return differs("deviates of unit", u, kept_[u][k], expected[k]);
    }
    return "";
  }
};

/// N arrays, with E elements of each per unit. The first arrays are written, and are initially 0.
template <class A, class T, std::size_t N, std::size_t E>
class ArrayKernel : public Kernel {
 protected:
  using Real = typename A::template Value<T>;
  using Reals = typename A::template Array<T>;
  static_assert(E * sizeof(T) % kLine == 0);

 public:
  ArrayKernel(const Shape& shape, Memory& memory) : n_(fit(shape, N, sizeof(T), E)) {
    for (Reals& a : array_) a = {memory.take<T>(n_)};
  }
  std::size_t units() const override { return n_ / E; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(array_[0].p, n_)); }

 protected:
  template <class Value>
  void set(std::size_t k, const Value& value) {
    for (std::size_t i = 0; i < n_; ++i) array_[k].p[i] = static_cast<T>(value(i));
  }
  /// Returns the counts of a unit that stores `written` arrays once and loads the other arrays once.
  Counts once(double flops, double written) const {
    constexpr double bytes = E * sizeof(T);
    Counts c;
    c.flops = flops;
    c.load_bytes = (N - written) * bytes;
    c.store_bytes = written * bytes;
    c.line_read_bytes = N * bytes;
    c.line_write_bytes = written * bytes;
    return c;
  }
  template <class Body>
  void over(std::size_t first, std::size_t last, const Body& body) const {
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t i = u * E; i < (u + 1) * E; ++i) body(i);
      A::end_unit();
    }
  }
  /// Returns whether element i of array k is 0 (not yet done) or within `tolerance` of the expected value.
  bool near(std::size_t k, std::size_t i, double expected, double tolerance) const {
    const double actual = static_cast<double>(array_[k].p[i]);
    return actual == 0 || std::fabs(actual - expected) <= tolerance;
  }
  std::array<Reals, N> array_;
  std::size_t n_;
};

/// Returns a number in [1, 2).
double one_to_two(std::size_t k, std::size_t i) { return 1 + unit_real(i * 8 + k); }

template <class A>
struct Planckian final : ArrayKernel<A, double, 5, 32> {
  using Base = ArrayKernel<A, double, 5, 32>;
  using typename Base::Real;
  Planckian(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::size_t k = 2; k < 5; ++k) this->set(k, [k](std::size_t i) { return one_to_two(k, i); });
  }
  Counts counts() const override { return this->once(4 * 32, 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto w = this->array_[0], y = this->array_[1], u = this->array_[2], v = this->array_[3], x = this->array_[4];
    this->over(first, last, [=](std::size_t i) {
      const Real quotient = u[i] / v[i];
      y[i] = quotient;
      w[i] = x[i] / (exp(quotient) - Real(1));
    });
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < this->n_; ++i) {
      const double y = one_to_two(2, i) / one_to_two(3, i), w = one_to_two(4, i) / std::expm1(y);
      if (!this->near(1, i, y, 0)) return differs("y", i, this->array_[1].p[i], y);
      if (!this->near(0, i, w, 1e-14 * w)) return differs("w", i, this->array_[0].p[i], w);
    }
    return "";
  }
};

template <class A>
struct BlackScholes final : ArrayKernel<A, double, 5, 32> {
  using Base = ArrayKernel<A, double, 5, 32>;
  using typename Base::Real;
  static constexpr double kRate = 0.03, kVolatility = 0.25;

  BlackScholes(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::size_t k = 2; k < 5; ++k) this->set(k, [k](std::size_t i) { return input(k, i); });
  }
  Counts counts() const override { return this->once((16 + 2 * 20) * 32, 2); }
  static double input(std::size_t k, std::size_t i) { return (k < 4 ? 100 : 1) * one_to_two(k, i); }

  /// Returns the normal distribution by the rational approximation 26.2.17 of Abramowitz and Stegun, with an error
  /// below 7.5e-8.
  static Real normal(Real d) {
    const Real z = fabs(d), k = Real(1) / (Real(1) + Real(0.2316419) * z);
    const Real series =
        k * (Real(0.319381530) +
             k * (Real(-0.356563782) + k * (Real(1.781477937) + k * (Real(-1.821255978) + k * Real(1.330274429)))));
    const Real tail = Real(0.39894228040143268) * exp(Real(-0.5) * z * z) * series, complement = Real(1) - tail;
    return d < Real(0) ? tail : complement;
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto call = this->array_[0], put = this->array_[1], spot = this->array_[2], strike = this->array_[3],
               years = this->array_[4];
    this->over(first, last, [=](std::size_t i) {
      const Real s = spot[i], k = strike[i], t = years[i];
      const Real width = Real(kVolatility) * sqrt(t);
      const Real d = (log(s / k) + Real(kRate + kVolatility * kVolatility / 2) * t) / width;
      const Real discounted = k * exp(Real(-kRate) * t);
      const Real price = s * normal(d) - discounted * normal(d - width);
      call[i] = price;
      put[i] = price - s + discounted;
    });
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < this->n_; ++i) {
      const double s = input(2, i), k = input(3, i), t = input(4, i), width = kVolatility * std::sqrt(t);
      const double d = (std::log(s / k) + (kRate + kVolatility * kVolatility / 2) * t) / width;
      const auto exact = [](double x) { return std::erfc(-x * std::sqrt(0.5)) / 2; };
      const double discounted = k * std::exp(-kRate * t);
      const double call = s * exact(d) - discounted * exact(d - width), put = call - s + discounted;
      if (!this->near(0, i, call, 1e-7 * (s + k))) return differs("call", i, this->array_[0].p[i], call);
      if (!this->near(1, i, put, 1e-7 * (s + k))) return differs("put", i, this->array_[1].p[i], put);
    }
    return "";
  }
};

/// Each operation depends on the previous one, but elements are independent.
template <class A>
struct DivideSqrt final : ArrayKernel<A, double, 3, 32> {
  using Base = ArrayKernel<A, double, 3, 32>;
  using typename Base::Real;
  static constexpr int kSteps = 4;
  DivideSqrt(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::size_t k = 1; k < 3; ++k) this->set(k, [k](std::size_t i) { return one_to_two(k, i); });
  }
  Counts counts() const override { return this->once(3 * kSteps * 32, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto c = this->array_[0], a = this->array_[1], b = this->array_[2];
    this->over(first, last, [=](std::size_t i) {
      Real x = a[i];
      const Real y = b[i];
      for (int k = 0; k < kSteps; ++k) x = sqrt(y / (x + Real(1)));
      c[i] = x;
    });
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < this->n_; ++i) {
      long double x = one_to_two(1, i);
      for (int k = 0; k < kSteps; ++k) x = std::sqrt(one_to_two(2, i) / (x + 1));
      const auto expected = static_cast<double>(x);
      if (!this->near(0, i, expected, 2e-15)) return differs("element", i, this->array_[0].p[i], expected);
    }
    return "";
  }
};

/// Softened gravity between all pairs of a unit's bodies. The reciprocal square root is estimated from the bits of its
/// operand and refined by three Newton steps. The result is accurate to rounding, and vectorised on every processor.
template <class A>
struct NBody final : ArrayKernel<A, float, 7, 32> {
  static constexpr std::size_t kBodies = 32;
  static constexpr float kSoftening = 0.01f;  // squared distance: bodies are in a cube of side 1
  using Base = ArrayKernel<A, float, 7, kBodies>;
  using typename Base::Real;
  using Word = typename A::template Value<std::uint32_t>;
  using Local = std::array<Real, kBodies>;

  NBody(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::size_t k = 3; k < 7; ++k) this->set(k, [k](std::size_t i) { return input(k, i); });
  }
  static float input(std::size_t k, std::size_t i) { return static_cast<float>(unit_real(i * 8 + k)); }
  Counts counts() const override {
    Counts c = this->once(kBodies * kBodies * (9 + 1 + 3 * 4 + 3 + 6), 3);
    c.int_ops = kBodies * kBodies * 2;
    return c;
  }
  static Real estimate(Real x) {
    const Word bits = std::bit_cast<std::uint32_t>(bare(x));
    return Real(std::bit_cast<float>(bare(Word(0x5f375a86u) - (bits >> Word(1)))));
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto array = this->array_;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t start = u * kBodies;
      Local x, y, z, m, ax{}, ay{}, az{};
      for (std::size_t i = 0; i < kBodies; ++i) {
        x[i] = array[3][start + i];
        y[i] = array[4][start + i];
        z[i] = array[5][start + i];
        m[i] = array[6][start + i];
      }
      for (std::size_t j = 0; j < kBodies; ++j) {
        const Real xj = x[j], yj = y[j], zj = z[j], mj = m[j];
        for (std::size_t i = 0; i < kBodies; ++i) {
          const Real dx = xj - x[i], dy = yj - y[i], dz = zj - z[i];
          const Real square = dx * dx + dy * dy + dz * dz + Real(kSoftening), half = Real(0.5f) * square;
          Real r = estimate(square);
          r = r * (Real(1.5f) - half * r * r);
          r = r * (Real(1.5f) - half * r * r);
          r = r * (Real(1.5f) - half * r * r);
          const Real f = mj * r * r * r;
          ax[i] = ax[i] + f * dx;
          ay[i] = ay[i] + f * dy;
          az[i] = az[i] + f * dz;
        }
      }
      for (std::size_t i = 0; i < kBodies; ++i) {
        array[0][start + i] = ax[i];
        array[1][start + i] = ay[i];
        array[2][start + i] = az[i];
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < this->n_; ++i) {
      std::array<double, 3> expected{}, magnitude{};
      const std::size_t start = i / kBodies * kBodies;
      for (std::size_t j = start; j < start + kBodies; ++j) {
        std::array<double, 3> d{};
        for (std::size_t k = 0; k < 3; ++k) d[k] = double{this->array_[3 + k].p[j]} - double{this->array_[3 + k].p[i]};
        const double square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + double{kSoftening};
        const double f = double{this->array_[6].p[j]} / (square * std::sqrt(square));
        for (std::size_t k = 0; k < 3; ++k) {
          expected[k] += f * d[k];
          magnitude[k] += std::fabs(f * d[k]);
        }
      }
      for (std::size_t k = 0; k < 3; ++k)
        if (!this->near(k, i, expected[k], 1e-5 * magnitude[k]))
          return differs("acceleration of body", i, double{this->array_[k].p[i]}, expected[k]);
    }
    return "";
  }
};

const Register<Horner> horner{{.name = "horner",
                               .kind = "compute",
                               .summary = "polynomial of degree 48 at 24 points at once, in registers",
                               .source = "Horner's rule; likwid-bench peakflops, ERT",
                               .parity = true,
                               .sized = false}};
const Register<HornerFma> horner_fma{{.name = "horner_fma",
                                      .kind = "compute",
                                      .summary = "chains of fused multiply-adds in the widest vectors, in registers",
                                      .source = "likwid-bench peakflops_fma, ERT",
                                      .sized = false}};
const Register<Planckian> planckian{{.name = "planckian",
                                     .kind = "compute",
                                     .summary = "y = u / v, w = x / (exp(y) - 1)",
                                     .source = "Livermore loop 22; RAJAPerf PLANCKIAN",
                                     .parity = true}};
const Register<MonteCarlo> monte_carlo{
    {.name = "monte_carlo",
     .kind = "compute",
     .summary = "normal deviates of random points by the polar method, and their sums",
     .source = "after NPB EP; Marsaglia's polar method, splitmix64",
     .parity = true,
     .sized = false}};
const Register<BlackScholes> black_scholes{{.name = "black_scholes",
                                            .kind = "compute",
                                            .summary = "prices of European calls and puts by the closed form",
                                            .source = "Black and Scholes; after PARSEC blackscholes"}};
const Register<DivideSqrt> divide_sqrt{{.name = "divide_sqrt",
                                        .kind = "compute",
                                        .summary = "x = sqrt(b / (x + 1)), four times for each element",
                                        .source = "long-latency operations; likwid-bench divide"}};
const Register<NBody> n_body{{.name = "n_body",
                              .kind = "compute",
                              .summary = "gravity between all pairs of 32 bodies",
                              .source = "after HACCmk (CORAL)",
                              .stands_for = "f32"}};

}  // namespace
}  // namespace mm::workloads

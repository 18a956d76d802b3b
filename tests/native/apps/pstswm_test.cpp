/// The spectral model of the instrument pstswm: its quadrature and functions, its transforms, a step against direct
/// sums, and the published test cases.
#include "apps/pstswm/model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>
#include <thread>

#include "apps/pstswm/fourier.hpp"
#include "apps/pstswm/sphere.hpp"
#include "kernels/isa.hpp"

namespace pstswm_test {

using namespace mm::pstswm;

const std::shared_ptr<const Sphere>& t42() {
  static const auto sphere = std::make_shared<const Sphere>(42);
  return sphere;
}

struct Made {
  std::vector<double> memory;
  std::unique_ptr<Model> model;

  Made(const ShallowWaterProblem& problem, const std::shared_ptr<const Sphere>& sphere = t42()) {
    const std::size_t shared = Model::shared_doubles(*sphere, problem), own = Model::own_doubles(*sphere, problem);
    memory.assign(shared + own * static_cast<std::size_t>(problem.threads), std::nan(""));
    std::vector<double*> blocks;
    for (int i = 0; i < problem.threads; ++i)
      blocks.push_back(memory.data() + shared + static_cast<std::size_t>(i) * own);
    model = std::make_unique<Model>(sphere, problem, memory.data(), blocks);
  }

  Model& after(int steps) {
    std::vector<std::jthread> team;
    for (int rank = 0; rank < model->problem().threads; ++rank)
      team.emplace_back([this, rank, steps] { model->run(rank, steps); });
    team.clear();
    return *model;
  }
};

std::vector<Complex> random_field(const Sphere& sphere, double magnitude, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> in(-1, 1);
  std::vector<Complex> field;
  for (int m = 0; m <= sphere.truncation(); ++m)
    for (int n = m; n <= sphere.truncation(); ++n) {
      const double size = magnitude / ((n + 1) * (n + 1));
      field.emplace_back(size * in(random), m == 0 ? 0 : size * in(random));
    }
  return field;
}

double largest_error(const std::vector<Complex>& a, const std::vector<Complex>& b) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

TEST(Pstswm, QuadratureHasKnownNodesAndIsExact) {
  const Quadrature three = gauss_legendre(3);
  EXPECT_NEAR(three.node[0], std::sqrt(0.6), 1e-15);
  EXPECT_NEAR(three.node[1], 0, 1e-15);
  EXPECT_NEAR(three.weight[0], 5.0 / 9, 1e-15);
  EXPECT_NEAR(three.weight[1], 8.0 / 9, 1e-15);
  for (const int n : {5, 64, 128, 256}) {
    const Quadrature q = gauss_legendre(n);
    for (const int power : {0, 1, 2, n, 2 * n - 2, 2 * n - 1}) {
      double sum = 0;
      for (std::size_t i = 0; i < q.node.size(); ++i) sum += q.weight[i] * std::pow(q.node[i], power);
      EXPECT_NEAR(sum, power % 2 == 0 ? 2.0 / (power + 1) : 0, 3e-14) << n << ' ' << power;
    }
  }
}

TEST(Pstswm, LegendreFunctionsAreOrthonormal) {
  for (const int truncation : {42, 170}) {
    const Sphere sphere(truncation);
    for (const int m : {0, 1, 2, 17, truncation - 1, truncation})
      for (const int n : {m, m + 1, (m + truncation) / 2, truncation})
        for (const int other : {m, (m + truncation) / 2, truncation}) {
          if (n > truncation) continue;
          double sum = 0;
          for (int j = 0; j < sphere.pairs(); ++j)  // the product is even or odd, by n + other
            sum += sphere.weight(j) * sphere.p(m, n, j) * sphere.p(m, other, j) * ((n + other) % 2 == 0 ? 2 : 0);
          EXPECT_NEAR(sum, n == other ? 1 : 0, 2e-12) << truncation << ' ' << m << ' ' << n << ' ' << other;
        }
  }
}

TEST(Pstswm, FunctionsAndDerivativesHaveTheirFormulas) {
  for (int j = 0; j < t42()->pairs(); ++j) {
    const double x = t42()->node(j), c2 = 1 - x * x;
    EXPECT_NEAR(t42()->p(0, 2, j), std::sqrt(2.5) * (3 * x * x - 1) / 2, 1e-14);
    EXPECT_NEAR(t42()->h(0, 2, j), c2 * std::sqrt(2.5) * 3 * x, 1e-14);
    EXPECT_NEAR(t42()->p(1, 1, j), std::sqrt(0.75 * c2), 1e-14);
    EXPECT_NEAR(t42()->h(1, 1, j), -std::sqrt(0.75 * c2) * x, 1e-14);
    EXPECT_NEAR(t42()->p(2, 3, j), std::sqrt(105.0 / 16) * x * c2, 1e-14);
    EXPECT_NEAR(t42()->h(2, 3, j), std::sqrt(105.0 / 16) * c2 * (1 - 3 * x * x), 1e-14);
  }
  // The integral of a derivative times cos² follows by parts, for the highest degree too.
  for (const int m : {3, 20}) {
    double sum = 0, expected = 0;
    for (int j = 0; j < t42()->pairs(); ++j) {
      sum += 2 * t42()->weight(j) * t42()->h(m, 41 + m % 2, j) * t42()->p(m, 40 + m % 2, j);
      expected += 2 * t42()->weight(j) * t42()->p(m, 41 + m % 2, j) *
                  (2 * t42()->node(j) * t42()->p(m, 40 + m % 2, j) - t42()->h(m, 40 + m % 2, j));
    }
    EXPECT_NEAR(sum, expected, 1e-11) << m;
    EXPECT_GT(std::fabs(sum), 1) << m;
  }
}

TEST(Pstswm, AnalysisOfValuesGivesTheirCoefficients) {
  const auto field = random_field(*t42(), 1, 1);
  const std::vector<double> values = t42()->values(field);
  std::size_t i = 0;
  const auto back = t42()->coefficients_of([&](double, double) { return values[i++]; }, 42);
  EXPECT_LT(largest_error(back, field), 1e-13);
}

TEST(Pstswm, WindOfASolidRotationIsThatOfItsSpeed) {
  const auto vorticity = t42()->coefficients_of([](double, double x) { return 2 * 40 / kRadius_m * x; }, 0);
  const auto wind = t42()->wind(vorticity, std::vector<Complex>(vorticity.size()));
  for (std::size_t i = 0; i < wind.u.size(); ++i) {
    const double x = t42()->node(static_cast<int>(i) / 128);
    ASSERT_NEAR(wind.u[i], 40 * (1 - x * x), 1e-11);
    ASSERT_NEAR(wind.v[i], 0, 1e-11);
  }
}

template <bool Fused>
struct Loops {
  static constexpr bool kFused = Fused;
};

template <class Kind>
void expect_fourier(int length) {
  const std::size_t n = static_cast<std::size_t>(length), width = 3;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> in(-1, 1);
  std::vector<double> memory(4 * n * width);
  for (double& x : memory) x = in(random);
  const std::vector<double> before = memory;
  const Rows x{memory.data(), memory.data() + n * width}, y{x.im + n * width, x.im + 2 * n * width};
  const Turns turns(length);
  const Rows there = transform<Kind, -1>(turns, x, y, width);
  for (std::size_t row = 0; row < width; ++row)
    for (std::size_t k = 0; k < n; k += 1 + n / 16) {
      Complex sum = 0;
      for (std::size_t i = 0; i < n; ++i)
        sum += Complex(before[i * width + row], before[(n + i) * width + row]) *
               std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * k % n) / length);
      ASSERT_NEAR(there.re[k * width + row], sum.real(), 1e-13 * length) << length << ' ' << k;
      ASSERT_NEAR(there.im[k * width + row], sum.imag(), 1e-13 * length) << length << ' ' << k;
    }
  const Rows back = transform<Kind, 1>(turns, there, there.re == x.re ? y : x, width);
  for (std::size_t i = 0; i < n * width; ++i) ASSERT_NEAR(back.re[i] / length, before[i], 1e-14) << length << ' ' << i;
}

TEST(Pstswm, FourierTransformsAreThoseOfDirectSumsAndInvertible) {
  for (const int length : {2, 4, 8, 128, 256, 512}) {
    expect_fourier<Loops<false>>(length);
    expect_fourier<Loops<true>>(length);
  }
  EXPECT_EQ(fourier_flops(128), 3 * 32 * 34 + 64 * 4);
  EXPECT_EQ(fourier_flops(256), 4 * 64 * 34);
}

/// Sums over the grid of a field's waves with P or H, by their definition.
std::vector<Complex> project(const Sphere& s, const std::vector<double>& values, bool slope, bool along) {
  std::vector<Complex> sum(static_cast<std::size_t>(s.coefficients()));
  for (int j = 0; j < s.latitudes(); ++j) {
    const bool south = j >= s.pairs();
    const int pair = south ? s.latitudes() - 1 - j : j;
    for (int m = 0; m <= s.truncation(); ++m) {
      Complex wave = 0;
      for (int i = 0; i < s.longitudes(); ++i)
        wave += values[static_cast<std::size_t>(j) * static_cast<std::size_t>(s.longitudes()) +
                       static_cast<std::size_t>(i)] *
                std::polar(1.0, -m * s.longitude(i));
      wave *= s.weight(j) / s.longitudes() / (1 - s.node(j) * s.node(j)) * (along ? Complex(0, m) : Complex(1));
      for (int n = m; n <= s.truncation(); ++n)
        sum[static_cast<std::size_t>(s.first(m) + n - m)] +=
            wave * (slope ? s.h(m, n, pair) : s.p(m, n, pair)) * (south && ((n - m) % 2 != 0) != slope ? -1.0 : 1.0);
    }
  }
  return sum;
}

/// The state after the first step, from the equations and transforms by direct sums.
std::array<std::vector<Complex>, kFields> first_step(const Model& model, std::vector<Complex> vorticity,
                                                     const std::vector<Complex>& divergence,
                                                     const std::vector<Complex>& geopotential) {
  const Sphere& s = model.sphere();
  const auto absolute = s.values(vorticity), phi = s.values(geopotential);
  auto relative = vorticity;
  relative[static_cast<std::size_t>(s.first(0)) + 1] -= 2 * kRotation_per_s / std::sqrt(1.5);  // 2 spin x
  const auto [u, v] = s.wind(relative, divergence);
  std::vector<double> a, b, e, f, g;
  for (std::size_t i = 0; i < u.size(); ++i) {
    a.push_back(u[i] * absolute[i]);
    b.push_back(v[i] * absolute[i]);
    e.push_back((u[i] * u[i] + v[i] * v[i]) / 2);
    f.push_back(u[i] * phi[i]);
    g.push_back(v[i] * phi[i]);
  }
  const auto along_a = project(s, a, false, true), slope_a = project(s, a, true, false);
  const auto along_b = project(s, b, false, true), slope_b = project(s, b, true, false);
  const auto energy = project(s, e, false, false);
  const auto along_f = project(s, f, false, true), slope_g = project(s, g, true, false);
  std::array<std::vector<Complex>, kFields> next{vorticity, divergence, geopotential};
  const double dt = model.step_s(), mean = model.mean_geopotential();
  for (int m = 0; m <= s.truncation(); ++m)
    for (int n = m; n <= s.truncation(); ++n) {
      const auto c = static_cast<std::size_t>(s.first(m) + n - m);
      const double laplace = n * (n + 1.0) / (kRadius_m * kRadius_m);
      next[kVorticity][c] += dt * (slope_b[c] - along_a[c]) / kRadius_m;
      const Complex d = (along_b[c] + slope_a[c]) / kRadius_m + laplace * energy[c];
      const Complex h = (slope_g[c] - along_f[c]) / kRadius_m;
      // d' - d = dt (D + laplace (h' + h) / 2), h' - h = dt (H - mean (d' + d) / 2), solved by Cramer's rule.
      const double p = dt / 2 * laplace, q = dt / 2 * mean;
      const Complex first = divergence[c] + dt * d + p * geopotential[c];
      const Complex second = geopotential[c] + dt * h - q * divergence[c];
      next[kDivergence][c] = (first + p * second) / (1 + p * q);
      next[kGeopotential][c] = (second - q * first) / (1 + p * q);
    }
  return next;
}

constexpr Variant kVariants[] = {Variant::plain, Variant::vector, Variant::fixed};

TEST(Pstswm, AStepIsThatOfTheEquationsByDirectSums) {
  std::array<std::vector<Complex>, kFields> state{random_field(*t42(), 1e-4, 3), random_field(*t42(), 1e-5, 4),
                                                  random_field(*t42(), 5e3, 5)};
  std::array<std::vector<Complex>, kFields> expected;
  for (const Variant variant : kVariants) {
    Made made({.levels = 2, .variant = variant, .test = TestCase::wave});
    for (const Field f : {kVorticity, kDivergence, kGeopotential}) made.model->set(f, 1, state[f]);
    if (expected[0].empty()) expected = first_step(*made.model, state[0], state[1], state[2]);
    made.after(1);
    for (const Field f : {kVorticity, kDivergence, kGeopotential})
      EXPECT_LT(largest_error(made.model->coefficients(f, 1), expected[f]), 1e-12)
          << static_cast<int>(variant) << ' ' << f;
  }
}

TEST(Pstswm, VariantsLevelsThreadsAndInstructionSetsAgreeToRoundoff) {
  const ShallowWaterProblem problem{.levels = 18, .variant = Variant::plain, .test = TestCase::wave};
  Made plain(problem);
  plain.after(5);
  for (const Variant variant : kVariants)
    for (const int threads : {1, 3, 32}) {
      ShallowWaterProblem other = problem;
      other.variant = variant;
      other.threads = threads;
      other.isa = threads == 1 ? mm::best_isa() : "";
      Made made(other);
      EXPECT_LT(made.after(5).difference(*plain.model), 1e-13) << static_cast<int>(variant) << ' ' << threads;
    }
  for (const int levels : kFixedLevels)
    for (const Variant variant : kVariants) {
      Made made({.levels = levels, .variant = variant, .test = TestCase::wave, .isa = mm::best_isa()});
      const auto found = made.after(5).coefficients(kGeopotential, levels - 1);
      EXPECT_LT(largest_error(found, plain.model->coefficients(kGeopotential, levels - 1)), 1e-13) << levels;
    }
}

TEST(Pstswm, TheSteadyFlowIsSteadyForADay) {
  for (const Variant variant : kVariants) {
    Made made({.levels = 2, .variant = variant, .test = TestCase::steady});
    EXPECT_LT(made.model->steady_error(1), 1e-13);
    made.after(72);
    for (const int level : {0, 1}) EXPECT_LT(made.model->steady_error(level), 1e-12) << level;
  }
}

TEST(Pstswm, TheWaveConservesMassEnergyAndPotentialEnstrophyAndMoves) {
  Made made({.levels = 1, .variant = Variant::vector, .test = TestCase::wave});
  const auto before = made.model->invariants(0);
  EXPECT_NEAR(before.mass, 9500, 300);
  const auto begun = made.model->coefficients(kVorticity, 0);
  made.after(72);
  const auto after = made.model->invariants(0);
  EXPECT_NEAR(after.mass / before.mass, 1, 1e-13);
  EXPECT_NEAR(after.energy / before.energy, 1, 1e-5);
  EXPECT_NEAR(after.enstrophy / before.enstrophy, 1, 5e-5);
  // The angular speed of the wave without divergence, of which the surface takes part.
  const auto c = static_cast<std::size_t>(t42()->first(4)) + 1;
  const double rate = (4 * 7 * 7.848e-6 - 2 * kRotation_per_s) / (5 * 6);
  EXPECT_NEAR(-std::arg(made.model->coefficients(kVorticity, 0)[c] / begun[c]) / (4 * 86400 * rate), 1, 0.2);
}

TEST(Pstswm, AWrongStateIsFound) {
  const ShallowWaterProblem problem{.levels = 2, .variant = Variant::plain, .test = TestCase::steady};
  Made made(problem), right(problem);
  made.after(2), right.after(2);
  auto field = made.model->coefficients(kGeopotential, 1);
  EXPECT_LT(made.model->difference(*right.model), 1e-15);
  field[7] += 1e-6;
  made.model->set(kGeopotential, 1, field);
  EXPECT_GT(made.model->difference(*right.model), 1e-12);
  EXPECT_GT(made.model->steady_error(1), 1e-12);
  field[7] = std::nan("");
  made.model->set(kGeopotential, 1, field);
  EXPECT_FALSE(made.model->difference(*right.model) < 1);
  EXPECT_FALSE(made.model->steady_error(1) < 1);
}

TEST(Pstswm, SetupsThatAreNotCompiledOrHaveIdleThreadsAreRefused) {
  EXPECT_THROW(Made({.levels = 3, .variant = Variant::fixed}), std::logic_error);
  EXPECT_THROW(Made({.levels = 1, .threads = 33}), std::logic_error);
  EXPECT_THROW(Sphere(43), std::logic_error);
}

}  // namespace pstswm_test

#include "apps/pstswm/model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace mm::pstswm {
namespace {

using std::numbers::pi;

// Constants of the published cases.
constexpr double kSteadySpeed = 2 * pi * kRadius_m / (12 * 86400);  // m/s
constexpr double kSteadyGeopotential = 2.94e4;                      // m^2/s^2
constexpr double kTilt = pi / 4;
constexpr double kWaveRate = 7.848e-6;  // 1/s
constexpr double kWaveHeight_m = 8000;
constexpr int kWaveNumber = 4;
constexpr int kHighestWave = 2 * kWaveNumber;  // of all initial fields

constexpr double kFilter = 0.001;
constexpr double kMeanOfWave =
    1e5;  // m^2/s^2, about the largest geopotential: the implicit part must not be the smaller

/// Returns sin(latitude) about the tilted axis of the steady flow.
double tilted(double longitude, double x) {
  return -std::cos(longitude) * std::sqrt(1 - x * x) * std::sin(kTilt) + x * std::cos(kTilt);
}

int block_of(const ShallowWaterProblem& problem, int pairs) {
  if (problem.variant != Variant::vector) return 1;
  const int share = (pairs + problem.threads - 1) / problem.threads;
  return std::clamp(64 / problem.levels, 4, 16) < share ? std::clamp(64 / problem.levels, 4, 16) : share;
}

/// Returns the maximum, or NaN if one of the numbers is NaN.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Returns the next multiple of a cache line.
std::size_t whole_lines(std::size_t doubles) { return (doubles + 7) / 8 * 8; }

}  // namespace

std::size_t Model::wave_size() const {
  return static_cast<std::size_t>(2 * kWaves * 2 * levels()) * static_cast<std::size_t>(pairs());
}

std::size_t Model::shared_doubles(const Sphere& sphere, const ShallowWaterProblem& problem) {
  const auto coefficients = static_cast<std::size_t>(sphere.coefficients());
  const auto pairs = static_cast<std::size_t>(sphere.pairs()), levels = static_cast<std::size_t>(problem.levels);
  return whole_lines(2 * coefficients * pairs) +
         whole_lines(static_cast<std::size_t>(sphere.truncation() + 1) * 4 * kWaves * levels * pairs) +
         2 * kFields * whole_lines(2 * coefficients * levels);
}

std::size_t Model::own_doubles(const Sphere& sphere, const ShallowWaterProblem& problem) {
  const auto levels = static_cast<std::size_t>(problem.levels);
  const auto rows = levels * static_cast<std::size_t>(kWaves * block_of(problem, sphere.pairs()));
  const auto prepared = static_cast<std::size_t>(sphere.truncation() + 1) * 2 * kSums * levels;
  return std::max(4 * rows * static_cast<std::size_t>(sphere.longitudes()), prepared);
}

Model::Model(std::shared_ptr<const Sphere> sphere, const ShallowWaterProblem& problem, double* shared,
             std::vector<double*> thread_blocks)
    : sphere_(std::move(sphere)),
      problem_(problem),
      phases_(phases_of(problem)),
      step_s_(1200.0 * 128 / sphere_->longitudes()),
      mean_(problem.test == TestCase::steady ? kSteadyGeopotential : kMeanOfWave),
      block_(block_of(problem, sphere_->pairs())),
      meeting_(problem.threads) {
  if (problem.threads > pairs()) throw std::logic_error("more threads than pairs of latitudes");
  const auto coefficients = static_cast<std::size_t>(sphere_->coefficients());
  t.thread_blocks = std::move(thread_blocks);
  t.functions = shared;
  shared += whole_lines(2 * coefficients * static_cast<std::size_t>(pairs()));
  t.waves = shared;
  shared += whole_lines(static_cast<std::size_t>(truncation() + 1) * wave_size());
  for (auto* state : {&t.now, &t.before})
    for (double*& field : *state) {
      field = shared;
      shared += whole_lines(2 * coefficients * static_cast<std::size_t>(levels()));
    }
  fill_tables();
  make_initial();
  begin();
}

void Model::fill_tables() {
  const Sphere& s = *sphere_;
  for (int m = 0; m <= truncation(); ++m) {
    double* table = t.functions + 2 * at(m, 0);
    const auto write = [&](int n, int pair, bool slope) { *table++ = slope ? s.h(m, n, pair) : s.p(m, n, pair); };
    if (by_latitudes()) {
      for (int n = m; n <= truncation(); ++n)
        for (const bool slope : {false, true})
          for (int j = 0; j < pairs(); ++j) write(n, j, slope);
    } else {
      for (int j = 0; j < pairs(); ++j)
        for (const bool slope : {false, true})
          for (int n = m; n <= truncation(); ++n) write(n, j, slope);
    }
  }
  for (int n = 0; n <= truncation(); ++n) {
    const double square = static_cast<double>(n) * (n + 1);
    t.curl.push_back(n == 0 ? 0 : kRadius_m / square);
    t.laplace.push_back(square / (kRadius_m * kRadius_m));
  }
  for (int j = 0; j < pairs(); ++j) {
    // Two transforms of real rows in one are halved, and products of the winds have cos² in place of cos⁰.
    const double scale = s.weight(j) / (2.0 * s.longitudes() * (1 - s.node(j) * s.node(j)));
    t.weight.push_back(scale / kRadius_m);
    t.energy_weight.push_back(scale / 2);
  }
  const bool steady = problem_.test == TestCase::steady;
  for (const Complex& c : s.coefficients_of(
           [&](double longitude, double x) { return 2 * kRotation_per_s * (steady ? tilted(longitude, x) : x); }, 1))
    t.rotation.push_back(c.real());  // the rotation is even in longitude
  t.turns = Turns(s.longitudes());
  // Each thread gets waves with many degrees and with few, in alternation.
  t.waves_of.resize(static_cast<std::size_t>(problem_.threads));
  for (int m = 0; m <= truncation(); ++m) {
    const int round = m / problem_.threads, place = m % problem_.threads;
    t.waves_of[static_cast<std::size_t>(round % 2 == 0 ? place : problem_.threads - 1 - place)].push_back(m);
  }
}

double Model::initial_vorticity(int level, double longitude, double x) const {
  if (problem_.test == TestCase::steady) return 2 * kSteadySpeed * speed_of(level) / kRadius_m * tilted(longitude, x);
  constexpr double r = kWaveNumber;
  const double rate = kWaveRate * speed_of(level);
  return 2 * rate * x - rate * x * std::pow(1 - x * x, r / 2) * (r * r + 3 * r + 2) * std::cos(r * longitude);
}

double Model::initial_geopotential(int level, double longitude, double x) const {
  if (problem_.test == TestCase::steady) {
    const double speed = kSteadySpeed * speed_of(level), sine = tilted(longitude, x);
    return kSteadyGeopotential - (kRadius_m * kRotation_per_s * speed + speed * speed / 2) * sine * sine;
  }
  constexpr double r = kWaveNumber, spin = kRotation_per_s;
  const double rate = kWaveRate * speed_of(level);
  const double c2 = 1 - x * x, cr = std::pow(c2, r / 2);  // cos² of the latitude, and its power R
  const double a = rate / 2 * (2 * spin + rate) * c2 +
                   rate * rate / 4 * (cr * cr * ((r + 1) * c2 + (2 * r * r - r - 2)) - 2 * r * r * cr * cr / c2);
  const double b = 2 * (spin + rate) * rate / ((r + 1) * (r + 2)) * cr * ((r * r + 2 * r + 2) - (r + 1) * (r + 1) * c2);
  const double c = rate * rate / 4 * cr * cr * ((r + 1) * c2 - (r + 2));
  return kGravity * kWaveHeight_m +
         kRadius_m * kRadius_m * (a + b * std::cos(r * longitude) + c * std::cos(2 * r * longitude));
}

void Model::make_initial() {
  const auto levels = static_cast<std::size_t>(this->levels());
  for (auto& field : initial_) field.assign(2 * levels * static_cast<std::size_t>(sphere_->coefficients()), 0.0);
  for (int level = 0; level < this->levels(); ++level) {
    const auto store = [&](Field field, const std::vector<Complex>& values) {
      for (std::size_t c = 0; c < values.size(); ++c) {
        initial_[field][2 * c * levels + static_cast<std::size_t>(level)] = values[c].real();
        initial_[field][(2 * c + 1) * levels + static_cast<std::size_t>(level)] = values[c].imag();
      }
    };
    auto vorticity = sphere_->coefficients_of(
        [&](double longitude, double x) { return initial_vorticity(level, longitude, x); }, kHighestWave);
    for (std::size_t c = 0; c < vorticity.size(); ++c) vorticity[c] += t.rotation[c];
    store(kVorticity, vorticity);
    store(kGeopotential,
          sphere_->coefficients_of(
              [&](double longitude, double x) { return initial_geopotential(level, longitude, x) - mean_; },
              kHighestWave));
  }
}

void Model::begin() {
  for (std::size_t f = 0; f < kFields; ++f)
    for (double* const target : {t.now[f], t.before[f]}) std::copy(initial_[f].begin(), initial_[f].end(), target);
}

void Model::set_leap(double leap_s, double filter) {
  t.leap = leap_s;
  t.filter = filter;
  t.half_mean = leap_s / 2 * mean_;
  t.stiffness.clear();
  t.inverse.clear();
  for (const double c : t.laplace) {
    t.stiffness.push_back(leap_s / 2 * c);
    t.inverse.push_back(1 / (1 + leap_s * leap_s / 4 * c * mean_));
  }
}

void Model::run(int rank, int steps) {
  phases_.synthesise(*this, rank);
  for (int step = 0; step < steps; ++step) {
    meeting_.arrive_and_wait();
    // The first step is a forward step, for which both states are the initial one. The leap is set here, where no
    // thread is in another phase.
    if (rank == 0 && step < 2) set_leap(step == 0 ? step_s_ : 2 * step_s_, step == 0 ? 0 : kFilter);
    phases_.grid(*this, rank);
    meeting_.arrive_and_wait();
    phases_.advance(*this, rank);
    if (step + 1 < steps) phases_.synthesise(*this, rank);
  }
  meeting_.arrive_and_wait();
}

double Model::flops() const {
  const double coefficients = sphere_->coefficients(), pairs = this->pairs(), waves = truncation() + 1;
  const double points = sphere_->longitudes(), row = fourier_flops(sphere_->longitudes());
  // There are 2 real operations of 2 parts for each of 12 / 2 + 7 products, then sums to tendencies, steps, and
  // coefficients of winds.
  const double spectral = coefficients * (pairs * (4 * kPrepared + 4 * kSums) + 16 + 60 + 9);
  const double grid = pairs * (waves * (8 * kToGrid + 12 * kWaves) + row * (kToGrid + kWaves) + 14 * points);
  return levels() * (spectral + grid);
}

std::vector<Complex> Model::coefficients(Field field, int level) const {
  const auto levels = static_cast<std::size_t>(this->levels()), l = static_cast<std::size_t>(level);
  std::vector<Complex> result;
  for (std::size_t c = 0; c < static_cast<std::size_t>(sphere_->coefficients()); ++c)
    result.emplace_back(t.now[field][2 * c * levels + l], t.now[field][(2 * c + 1) * levels + l]);
  return result;
}

void Model::set(Field field, int level, std::span<const Complex> coefficients) {
  const auto levels = static_cast<std::size_t>(this->levels()), l = static_cast<std::size_t>(level);
  for (double* const target : {t.now[field], t.before[field]})
    for (std::size_t c = 0; c < coefficients.size(); ++c) {
      target[2 * c * levels + l] = coefficients[c].real();
      target[(2 * c + 1) * levels + l] = coefficients[c].imag();
    }
}

Model::Invariants Model::invariants(int level) const {
  auto vorticity = coefficients(kVorticity, level);
  const std::vector<double> absolute = sphere_->values(vorticity);
  for (std::size_t c = 0; c < vorticity.size(); ++c) vorticity[c] -= t.rotation[c];
  const auto [u, v] = sphere_->wind(vorticity, coefficients(kDivergence, level));
  std::vector<double> height = sphere_->values(coefficients(kGeopotential, level)), energy, enstrophy;
  for (std::size_t i = 0; i < height.size(); ++i) {
    height[i] = (height[i] + mean_) / kGravity;
    const double x = sphere_->node(static_cast<int>(i) / sphere_->longitudes());
    const double square = (u[i] * u[i] + v[i] * v[i]) / (1 - x * x);
    energy.push_back(0.5 * height[i] * (square + kGravity * height[i]));
    enstrophy.push_back(0.5 * absolute[i] * absolute[i] / height[i]);
  }
  return {sphere_->mean(height), sphere_->mean(energy), sphere_->mean(enstrophy)};
}

double Model::steady_error(int level) const {
  const std::vector<double> values = sphere_->values(coefficients(kGeopotential, level));
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int place = static_cast<int>(i), latitude = place / sphere_->longitudes();
    const double expected =
        initial_geopotential(level, sphere_->longitude(place % sphere_->longitudes()), sphere_->node(latitude));
    largest = std::max(largest, std::fabs(expected));
    const double error = std::fabs(values[i] + mean_ - expected);
    worst = larger(worst, error);
  }
  return worst / largest;
}

double Model::difference(const Model& other) const {
  double worst = 0;
  for (std::size_t f = 0; f < kFields; ++f) {
    double largest = 0, max_error = 0;
    for (std::size_t i = 0; i < initial_[f].size(); ++i) {
      // Divergence begins with zero, so its error is relative to the scale of vorticity.
      largest = std::max(largest, std::fabs(t.now[f == kDivergence ? kVorticity : f][i]));
      const double error = std::fabs(t.now[f][i] - other.t.now[f][i]);
      max_error = larger(max_error, error);
    }
    worst = larger(worst, max_error / largest);
  }
  return worst;
}

}  // namespace mm::pstswm

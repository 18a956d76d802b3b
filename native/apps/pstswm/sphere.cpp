#include "apps/pstswm/sphere.hpp"

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

namespace mm::pstswm {
namespace {

using std::numbers::pi;

int longitudes_of(int truncation) {
  switch (truncation) {
    case 42:
      return 128;
    case 85:
      return 256;
    case 170:
      return 512;
    default:
      throw std::logic_error("truncation " + std::to_string(truncation));
  }
}

/// Returns the factor of the recurrence in n.
double epsilon(int m, int n) {
  return std::sqrt(static_cast<double>(n * n - m * m) / static_cast<double>(4 * n * n - 1));
}

/// Returns P(m, m) to P(m, last) at x = sin(latitude).
std::vector<double> legendre(int m, int last, double x) {
  double value = std::sqrt(0.5);
  for (int k = 1; k <= m; ++k) value *= std::sqrt((2.0 * k + 1) / (2.0 * k)) * std::sqrt(1 - x * x);
  // This is the case near the poles, where no higher degree in use grows to a magnitude that counts. Denormal numbers
  // would be slow.
  if (value < 1e-150) value = 0;
  std::vector<double> p{value};
  for (int n = m + 1; n <= last; ++n) {
    const double before = n - 2 < m ? 0 : epsilon(m, n - 1) * p[static_cast<std::size_t>(n - 2 - m)];
    p.push_back((x * p.back() - before) / epsilon(m, n));
  }
  return p;
}

}  // namespace

Quadrature gauss_legendre(int n) {
  Quadrature q;
  for (int i = 0; i < n; ++i) {
    // The weight needs the derivative at the node itself, so the loop ends with an evaluation.
    double x = std::cos(pi * (i + 0.75) / (n + 0.5)), slope = 0;
    for (int pass = 0; pass < 8; ++pass) {
      double current = x, previous = 1;
      for (int k = 2; k <= n; ++k)
        previous = std::exchange(current, ((2 * k - 1) * x * current - (k - 1) * previous) / k);
      slope = n * (previous - x * current) / (1 - x * x);
      if (pass < 7) x -= current / slope;
    }
    q.node.push_back(x);
    q.weight.push_back(2 / ((1 - x * x) * slope * slope));
  }
  return q;
}

Sphere::Sphere(int truncation)
    : truncation_(truncation),
      longitudes_(longitudes_of(truncation)),
      latitudes_(longitudes_ / 2),
      quadrature_(gauss_legendre(latitudes_)) {
  p_.resize(static_cast<std::size_t>(coefficients()) * static_cast<std::size_t>(pairs()));
  h_.resize(p_.size());
  for (int j = 0; j < pairs(); ++j)
    for (int m = 0; m <= truncation_; ++m) {
      const std::vector<double> p = legendre(m, truncation_ + 1, node(j));
      for (int n = m; n <= truncation_; ++n) {
        const auto k = static_cast<std::size_t>(n - m);
        p_[at(m, n, j)] = p[k];
        h_[at(m, n, j)] = (k > 0 ? (n + 1) * epsilon(m, n) * p[k - 1] : 0) - n * epsilon(m, n + 1) * p[k + 1];
      }
    }
  for (int i = 0; i < longitudes_; ++i) turn_.push_back(std::polar(1.0, longitude(i)));
}

double Sphere::longitude(int i) const { return 2 * pi * i / longitudes_; }

std::vector<double> Sphere::sum_of_waves(const std::function<Complex(int m, int latitude)>& amplitude) const {
  std::vector<double> sum(static_cast<std::size_t>(longitudes_ * latitudes_));
  for (int j = 0; j < latitudes_; ++j)
    for (int m = 0; m <= truncation_; ++m) {
      const Complex wave = amplitude(m, j);
      for (int i = 0; i < longitudes_; ++i) {
        const double real = (wave * turn_[static_cast<std::size_t>(m * i % longitudes_)]).real();
        const int index = j * longitudes_ + i;
        sum[static_cast<std::size_t>(index)] += m == 0 ? real : 2 * real;  // includes the wave of -m
      }
    }
  return sum;
}

std::vector<double> Sphere::values(std::span<const Complex> coefficients) const {
  return sum_of_waves([&](int m, int latitude) {
    const bool south = latitude >= pairs();
    const int pair = south ? latitudes_ - 1 - latitude : latitude;
    Complex sum = 0;
    for (int n = m; n <= truncation_; ++n)
      sum += coefficients[static_cast<std::size_t>(first(m) + n - m)] * p(m, n, pair) *
             (south && (n - m) % 2 != 0 ? -1.0 : 1.0);
    return sum;
  });
}

Sphere::Wind Sphere::wind(std::span<const Complex> vorticity, std::span<const Complex> divergence) const {
  const auto component = [&](bool eastward) {
    return sum_of_waves([&](int m, int latitude) {
      const bool south = latitude >= pairs();
      const int pair = south ? latitudes_ - 1 - latitude : latitude;
      const Complex derivative(0, m);
      Complex sum = 0;
      for (int n = std::max(m, 1); n <= truncation_; ++n) {
        const auto c = static_cast<std::size_t>(first(m) + n - m);
        const double sign = south && (n - m) % 2 != 0 ? -1.0 : 1.0;
        const Complex along =
            (eastward ? -derivative * divergence[c] : -derivative * vorticity[c]) * p(m, n, pair) * sign;
        const Complex across = (eastward ? vorticity[c] : -divergence[c]) * h(m, n, pair) * (south ? -sign : sign);
        sum += (along + across) * kRadius_m / static_cast<double>(n * (n + 1));
      }
      return sum;
    });
  };
  return {component(true), component(false)};
}

std::vector<Complex> Sphere::coefficients_of(const std::function<double(double longitude, double x)>& field,
                                             int waves) const {
  std::vector<Complex> sum(static_cast<std::size_t>(coefficients()));
  for (int j = 0; j < latitudes_; ++j) {
    std::vector<double> row;
    for (int i = 0; i < longitudes_; ++i) row.push_back(field(longitude(i), node(j)));
    const bool south = j >= pairs();
    const int pair = south ? latitudes_ - 1 - j : j;
    for (int m = 0; m <= std::min(waves, truncation_); ++m) {
      Complex wave = 0;
      for (int i = 0; i < longitudes_; ++i)
        wave += row[static_cast<std::size_t>(i)] * std::conj(turn_[static_cast<std::size_t>(m * i % longitudes_)]);
      wave *= weight(j) / longitudes_;
      for (int n = m; n <= truncation_; ++n)
        sum[static_cast<std::size_t>(first(m) + n - m)] +=
            wave * p(m, n, pair) * (south && (n - m) % 2 != 0 ? -1.0 : 1.0);
    }
  }
  return sum;
}

double Sphere::mean(std::span<const double> values) const {
  double sum = 0;
  std::size_t index = 0;
  for (int j = 0; j < latitudes_; ++j) {
    double row = 0;
    for (int i = 0; i < longitudes_; ++i, ++index) row += values[index];
    sum += weight(j) * row / longitudes_;
  }
  return sum / 2;
}

}  // namespace mm::pstswm

#pragma once
/// The sphere of a spectral model: its Gaussian grid, its Legendre functions, and transforms by direct sums.
///
/// The transforms here share no code with the timed transforms, and verify them. Source: Hack and Jakob, Description of
/// a Global Shallow Water Model Based on the Spectral Transform Method, NCAR/TN-343+STR (1992), 2 and 3.
#include <complex>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace mm::pstswm {

using Complex = std::complex<double>;

inline constexpr double kRadius_m = 6.37122e6;
inline constexpr double kRotation_per_s = 7.292e-5;
inline constexpr double kGravity = 9.80616;  // m/s^2

/// Nodes, in descending order, and weights of Gauss-Legendre quadrature on [-1, 1], which is exact for polynomials of
/// degree 2 n - 1. Both are accurate within a few units of the last place. Requires n >= 1.
struct Quadrature {
  std::vector<double> node, weight;
};
Quadrature gauss_legendre(int n);

/// Triangular truncation with the smallest grid of 2^k longitudes on which products have no aliasing.
class Sphere {
 public:
  /// `truncation` is 42, 85 or 170. Throws std::logic_error for another value.
  explicit Sphere(int truncation);

  int truncation() const { return truncation_; }
  int longitudes() const { return longitudes_; }
  int latitudes() const { return latitudes_; }
  int pairs() const { return latitudes_ / 2; }  ///< pairs of latitudes at the same distance from the equator
  int coefficients() const { return (truncation_ + 1) * (truncation_ + 2) / 2; }
  /// Returns the position of the coefficient (m, m). The coefficient (m, n) is n - m further.
  int first(int m) const { return m * (truncation_ + 1) - m * (m - 1) / 2; }

  double node(int latitude) const {
    return quadrature_.node[static_cast<std::size_t>(latitude)];
  }  ///< sin, north first
  double weight(int latitude) const { return quadrature_.weight[static_cast<std::size_t>(latitude)]; }
  double longitude(int i) const;  ///< in rad

  /// Return P(m, n) at a northern latitude, normalised so that the integral of its square over [-1, 1] is 1, and H = (1
  /// - x^2) dP/dx. On the southern latitude, P has the sign (-1)^(n-m), and H the opposite one.
  double p(int m, int n, int pair) const { return p_[at(m, n, pair)]; }
  double h(int m, int n, int pair) const { return h_[at(m, n, pair)]; }

  /// Returns the values of a real field on the grid, latitude by latitude from the north, from its coefficients.
  std::vector<double> values(std::span<const Complex> coefficients) const;
  /// U = u cos(latitude) and V, from the coefficients of relative vorticity and divergence, both in 1/s.
  struct Wind {
    std::vector<double> u, v;
  };
  Wind wind(std::span<const Complex> vorticity, std::span<const Complex> divergence) const;
  /// Returns the coefficients of a field, by quadrature. Coefficients with m > `waves` are not computed and are 0.
  std::vector<Complex> coefficients_of(const std::function<double(double longitude, double x)>& field, int waves) const;
  /// Returns the mean of a field over the sphere.
  double mean(std::span<const double> values) const;

 private:
  std::size_t at(int m, int n, int pair) const {
    return static_cast<std::size_t>(first(m) + n - m) * static_cast<std::size_t>(pairs()) +
           static_cast<std::size_t>(pair);
  }
  /// Returns the sum of the waves of each latitude, whose amplitudes are `amplitude(m, latitude)`.
  std::vector<double> sum_of_waves(const std::function<Complex(int m, int latitude)>& amplitude) const;

  int truncation_, longitudes_, latitudes_;
  Quadrature quadrature_;
  std::vector<double> p_, h_;
  std::vector<Complex> turn_;  // exp(i longitude)
};

}  // namespace mm::pstswm

#pragma once
/// The common part of lu, bt and sp: compressible flow in a cube, forced so that polynomials are its steady state.
///
/// The five unknowns are density, three momenta and energy. Ranks divide the cube into slabs along z.
#include <cstddef>
#include <string>
#include <vector>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {

// The report's constants. Each of its coefficients of artificial diffusion is equal for all five unknowns.
constexpr double kC1 = 1.4, kC2 = 0.4, kViscosity = 0.1, kHeat = 1.4 * 1.4 * kViscosity;
constexpr double kDiffusion[] = {0.75, 0.75, 1.0};  ///< along x, y, z
constexpr double kDissipation = 0.25;               ///< of fourth order
constexpr double kHeatRatio = kHeat / kViscosity;
constexpr std::size_t kUnknowns = 5;
constexpr double kFlowTolerance = 1e-8;

/// A problem of lu, bt or sp, with the root mean squares that the report's programs expect.
struct FlowClass {
  const char* name;
  std::size_t points;  ///< along each edge
  int steps;
  double step;  ///< of pseudo-time
  double residual[kUnknowns], error[kUnknowns];
  double surface = 0;  ///< integral of the pressure over the surface, for lu only
};

/// The state at a point, divided by the density. T is a number, or several numbers.
template <class T>
struct FlowState {
  T velocity[3], energy, kinetic, inverse;

  /// Sets the state from the five unknowns and 1/density.
  void set(const T& mx, const T& my, const T& mz, const T& total, const T& r) {
    inverse = r;
    velocity[0] = mx * r, velocity[1] = my * r, velocity[2] = mz * r;
    energy = total * r;
    kinetic = 0.5 * (velocity[0] * velocity[0] + velocity[1] * velocity[1] + velocity[2] * velocity[2]);
  }
};

/// Computes out += a A v, where A is the Jacobian of the flux along D at `p`.
template <int D, class T>
[[gnu::always_inline]] inline void add_convection(const FlowState<T>& p, double a, const T* v, T* out) {
  const T& w = p.velocity[D];
  const T& along = v[1 + D];
  const T momentum = p.velocity[0] * v[1] + p.velocity[1] * v[2] + p.velocity[2] * v[3];
  out[0] += a * along;
  for (int j = 0; j < 3; ++j) out[1 + j] += a * (w * (v[1 + j] - p.velocity[j] * v[0]) + p.velocity[j] * along);
  out[1 + D] += (a * kC2) * (p.kinetic * v[0] - momentum + v[4]);
  out[4] += a * (w * (kC1 * (v[4] - p.energy * v[0]) + kC2 * (2.0 * p.kinetic * v[0] - momentum)) +
                 (kC1 * p.energy - kC2 * p.kinetic) * along);
}

/// Computes out += b (N + d) v, where N is the Jacobian of viscosity and heat conduction along D, and d is the
/// artificial diffusion.
template <int D, class T>
[[gnu::always_inline]] inline void add_diffusion(const FlowState<T>& p, double b, const T* v, T* out) {
  const T stress = (b * kViscosity) * p.inverse;
  T work = kHeatRatio * (v[4] - p.energy * v[0]);
  for (int j = 0; j < 3; ++j) {
    const T relative = v[1 + j] - p.velocity[j] * v[0];
    const double factor = j == D ? 4.0 / 3 : 1;
    out[1 + j] += (factor * stress) * relative;
    work += (factor - kHeatRatio) * (p.velocity[j] * relative);
  }
  out[4] += stress * work;
  for (int m = 0; m < 5; ++m) out[m] += (b * kDiffusion[D]) * v[m];
}

/// Sets the weights of the dissipation's five points at a place along an edge of n points.
inline void dissipation(std::size_t place, std::size_t n, double* weights) {
  const bool low = place == 1, high = place == n - 2;
  weights[0] = place <= 2 ? 0 : 1;
  weights[1] = low ? 0 : -4;
  weights[2] = low || high ? 5 : 6;
  weights[3] = high ? 0 : -4;
  weights[4] = place >= n - 3 ? 0 : 1;
}

class Flow : public NpbKernel {
 public:
  explicit Flow(const FlowClass& problem);
  ~Flow() override;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  void prepare() override;
  void reset() override;
  std::string verify() override;
  json observed() const override;

 protected:
  /// Five fields of this slab with two ghost planes on each side, one after the other.
  struct Fields {
    Array<double> all;
    double* at[kUnknowns] = {};
    explicit Fields(std::size_t points);  ///< filled with zeros
  };

  /// Returns the index of a point of this slab; z begins at -2.
  std::size_t at(std::ptrdiff_t z, std::size_t y, std::size_t x) const {
    return (static_cast<std::size_t>(z + 2) * n_ + y) * n_ + x;
  }
  std::size_t points() const { return (planes_ + 4) * n_ * n_; }
  /// Calls work(z, y) for the inner rows of this slab on all threads.
  template <class Work>
  void each_row(const Work& work) const {
    const std::size_t rows = n_ - 2;
    in_parts(static_cast<std::size_t>(end() - begin()) * rows, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) work(begin() + static_cast<std::ptrdiff_t>(i / rows), 1 + i % rows);
    });
  }
  /// Return the first and the last + 1 of the inner planes of this slab.
  std::ptrdiff_t begin() const { return first_ == 0 ? 1 : 0; }
  std::ptrdiff_t end() const { return static_cast<std::ptrdiff_t>(first_ + planes_ == n_ ? planes_ - 1 : planes_); }

  /// Computes rhs = scale (forcing + all terms that change u) at the inner points. Collective.
  void compute_rhs(double scale);
  /// Computes u += factor rhs at the inner points.
  void add_rhs(double factor);
  /// Computes the root mean squares over the inner points of the cube. Collective.
  void norms(const double* const* fields, double* results);
  /// Hook of lu: verifies what else is expected of the solution.
  virtual std::string verify_more() { return ""; }
  /// Hook: computes the residual's norms, if the solution has not computed them.
  virtual void find_residual() = 0;

  const FlowClass& problem_;
  const std::size_t n_, first_, planes_;  ///< points along an edge; this slab's planes
  const double per_length_;               ///< 1 / distance of points
  Fields u_, rhs_, forcing_;
  Array<double> inverse_, kinetic_;  ///< 1 / density; kinetic energy
  double residual_[kUnknowns] = {}, error_[kUnknowns] = {};

 private:
  void exact(std::ptrdiff_t z, std::size_t y, std::size_t x, double* values) const;
  void reset_plane(std::ptrdiff_t z);
  void exchange();
  void find_inverse();
  template <int D>
  void add_fluxes(std::size_t row, std::size_t place, std::size_t stride);
  template <int D>
  void add_flux_range(std::size_t first, std::size_t last, std::size_t stride, const double* weights);

  MPI_Datatype halo_ = MPI_DATATYPE_NULL;
};

/// Returns the problem of a class. `operations` is their number in each of its steps.
template <class Solver>
Problem flow_problem(const char* kernel, const FlowClass& c, double operations) {
  const double points = static_cast<double>(c.points);
  return {.kernel = kernel,
          .class_name = c.name,
          .size = std::to_string(c.points) + "^3 points, " + std::to_string(c.steps) + " steps",
          .operations = operations * c.steps,
          .bytes = 17 * 8 * points * points * points,
          .max_ranks = static_cast<int>(c.points / 2),
          .max_threads = static_cast<int>(c.points - 2),
          .make = [&c](bool) { return std::make_shared<Solver>(c); }};
}

}  // namespace mm::mpi::npb

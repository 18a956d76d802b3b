#pragma once
/// A spectral-transform shallow-water model on the sphere, with levels that do not depend on each other.
///
/// Absolute vorticity, divergence and geopotential are integrated by semi-implicit leapfrog steps with a Robert-Asselin
/// filter, without diffusion. A step has two phases: the coefficients of each zonal wave number are summed over
/// latitudes, stepped, and turned into waves at all latitudes; each pair of latitudes is transformed to longitudes,
/// multiplied, and transformed back. Sources: Hack and Jakob, NCAR/TN-343+STR (1992); test cases and their numbers:
/// Williamson et al., A Standard Test Set for Numerical Approximations to the Shallow Water Equations in Spherical
/// Geometry, J. Comput. Phys. 102 (1992).
#include <array>
#include <barrier>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/pstswm/sphere.hpp"
#include "apps/pstswm/turns.hpp"

namespace mm::pstswm {

/// The form of the inner loops.
enum class Variant {
  plain,   ///< over levels, which are contiguous
  vector,  ///< over latitudes, which are contiguous, and over many rows of a Fourier transform
  fixed,   ///< like plain, with the number of levels known to the compiler
};

/// The numbers of levels for which `fixed` is compiled.
inline constexpr std::array kFixedLevels{1, 2, 4, 8, 16, 18};
inline constexpr int kMaxLevels = 18;

enum class TestCase {
  steady = 2,  ///< zonal flow whose axis is tilted by 45 degrees: nothing changes
  wave = 6,    ///< Rossby-Haurwitz wave of wave number 4
};

/// Returns the speed of a level's flow over the published one, so that levels differ. It is 1 for level 0.
inline double speed_of(int level) { return 1 - level / 64.0; }

struct ShallowWaterProblem {
  int levels = 1;
  Variant variant = Variant::plain;
  TestCase test = TestCase::wave;
  int threads = 1;
  std::string_view isa{};  ///< a name of isa.hpp; "": the instruction set of the build
};

class Model;

/// The phases of a step as compiled for a variant and an instruction set.
struct Phases {
  void (*advance)(Model& model, int rank);     ///< sums over latitudes, and a step in time
  void (*synthesise)(Model& model, int rank);  ///< waves at all latitudes from coefficients
  void (*grid)(Model& model, int rank);        ///< products at the points of the grid
};
/// Returns the phases for a problem. Throws std::logic_error for `fixed` with a number of levels that kFixedLevels
/// lacks.
Phases phases_of(const ShallowWaterProblem& problem);

/// The prognostic variables. Each coefficient has the real parts of all levels and then the imaginary ones. Vorticity
/// is absolute, and geopotential is the deviation from `mean_geopotential`.
enum Field : std::size_t { kVorticity, kDivergence, kGeopotential, kFields };

class Model {
 public:
  /// Return the numbers of doubles that all threads share, and that the work of one thread needs.
  static std::size_t shared_doubles(const Sphere& sphere, const ShallowWaterProblem& problem);
  static std::size_t own_doubles(const Sphere& sphere, const ShallowWaterProblem& problem);

  /// Keeps the memory without owning it; `thread_blocks` has one block per thread. Fills the tables and calls `begin`.
  /// Throws std::logic_error if there are more threads than pairs of latitudes.
  Model(std::shared_ptr<const Sphere> sphere, const ShallowWaterProblem& problem, double* shared,
        std::vector<double*> thread_blocks);

  void begin();  ///< returns to the initial state
  /// Advances by this number of steps, at least 1. Each of the threads calls it with its rank.
  void run(int rank, int steps);
  void run_alone(int steps) { run(0, steps); }  ///< for one thread

  double step_s() const { return step_s_; }           ///< simulated time of a step
  double flops() const;                               ///< additions and multiplications of a step, all threads
  double mean_geopotential() const { return mean_; }  ///< in m^2/s^2
  const Sphere& sphere() const { return *sphere_; }
  const ShallowWaterProblem& problem() const { return problem_; }

  /// Returns the coefficients of the present state.
  std::vector<Complex> coefficients(Field field, int level) const;
  void set(Field field, int level, std::span<const Complex> coefficients);  ///< sets the present and the former state

  /// The invariants of one level, by direct sums over the present state.
  struct Invariants {
    double mass, energy, enstrophy;  ///< means over the sphere: m, m^3/s^2, 1/(m s^2); potential enstrophy
  };
  Invariants invariants(int level) const;
  /// Returns the largest error of the height, over its largest value, against the analytic solution. Only for the
  /// steady case.
  double steady_error(int level) const;
  /// Returns the largest difference of a coefficient, over the largest magnitude of its field, over all levels.
  double difference(const Model& other) const;

  // The following members are for the phases.
  struct Tables {
    double *functions, *waves;  ///< by m: see `function` and `wave`
    std::array<double*, kFields> now, before;
    std::vector<double> curl;                   ///< by n: radius / (n (n + 1)), 0 for n = 0
    std::vector<double> laplace, stiffness;     ///< by n: c = n (n + 1) / radius^2, and c times half a leap
    std::vector<double> inverse;                ///< by n: 1 / (1 + (half a leap)^2 c mean)
    std::vector<double> rotation;               ///< by coefficient: the coefficient of the Coriolis parameter
    std::vector<double> weight, energy_weight;  ///< by pair: scale of fluxes, and of the kinetic energy
    std::vector<std::vector<int>> waves_of;     ///< by thread: its m
    std::vector<double*> thread_blocks;
    double leap = 0, half_mean = 0, filter = 0;  ///< s; half a leap times the mean; Robert-Asselin filter
    Turns turns{1};
  };
  Tables t;

  int truncation() const { return sphere_->truncation(); }
  int levels() const { return problem_.levels; }
  int pairs() const { return sphere_->pairs(); }
  bool by_latitudes() const { return problem_.variant == Variant::vector; }
  /// Returns P and H of m. By latitudes: for each n, all P and then all H; otherwise for each pair, all P and then all
  /// H.
  const double* function(int m) const { return t.functions + 2 * at(m, 0); }
  /// Returns the waves of m: for each part (0: even about the equator, 1: odd), and each of kWaves fields, real and
  /// imaginary. By latitudes, all this for all pairs, which are innermost; otherwise for each pair.
  double* wave(int m) const { return t.waves + static_cast<std::size_t>(m) * wave_size(); }
  std::size_t wave_size() const;
  /// Returns the number of pairs whose Fourier transforms are computed together.
  int block() const { return block_; }

 private:
  std::size_t at(int m, int pair) const {
    return static_cast<std::size_t>(sphere_->first(m)) * static_cast<std::size_t>(pairs()) +
           static_cast<std::size_t>(pair);
  }
  void fill_tables();
  void make_initial();
  void set_leap(double leap_s, double filter);
  double initial_geopotential(int level, double longitude, double x) const;
  double initial_vorticity(int level, double longitude, double x) const;

  std::shared_ptr<const Sphere> sphere_;
  ShallowWaterProblem problem_;
  Phases phases_;
  double step_s_, mean_;
  int block_;
  std::array<std::vector<double>, kFields> initial_;
  std::barrier<> meeting_;
};

/// The fields of waves and of the grid. Before the products: absolute vorticity, geopotential, U and V. After the
/// products: U² + V², U and V times geopotential, at 0, 1 and 4, and U and V times vorticity, at 2 and 3.
inline constexpr int kWaves = 5, kToGrid = 4;
/// Complex numbers of a coefficient: the numbers from which waves are summed, and the sums over latitudes.
inline constexpr int kPrepared = 6, kSums = 7;

}  // namespace mm::pstswm

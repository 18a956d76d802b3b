/// sp: the flow by alternating directions. Along each direction the unknowns become waves, whose systems are
/// pentadiagonal.
#include <cmath>

#include "apps/npb/flow/adi.hpp"

namespace mm::mpi::npb {
namespace {

constexpr FlowClass kClasses[] = {
    {"S",
     12,
     100,
     0.015,
     {2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02, 1.5840557224455615e-02,
      3.4849040609362460e-02},
     {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05, 1.5750704994480102e-05,
      3.4177666183390531e-05}},
    {"W",
     36,
     400,
     0.0015,
     {0.1893253733584e-02, 0.1717075447775e-03, 0.2778153350936e-03, 0.2887475409984e-03, 0.3143611161242e-02},
     {0.7542088599534e-04, 0.6512852253086e-05, 0.1049092285688e-04, 0.1128838671535e-04, 0.1212845639773e-03}},
    {"A",
     64,
     400,
     0.0015,
     {2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179, 2.1292113035138280},
     {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05, 4.7671093939528255e-05,
      1.3621613399213001e-04}},
    {"B",
     102,
     400,
     0.001,
     {0.6903293579998e+02, 0.3095134488084e+02, 0.4103336647017e+02, 0.3864769009604e+02, 0.5643482272596e+02},
     {0.9810006190188e-02, 0.1022827905670e-02, 0.1720597911692e-02, 0.1694479428231e-02, 0.1847456263981e-01}},
    {"C",
     162,
     400,
     0.67e-3,
     {0.5881691581829e+03, 0.2454417603569e+03, 0.3293829191851e+03, 0.3081924971891e+03, 0.4597223799176e+03},
     {0.2598120500183, 0.2590888922315e-01, 0.5132886416320e-01, 0.4806073419454e-01, 0.5483377491301}},
};

constexpr int kWaves = 3;  ///< wave speeds: with the flow, and faster and slower by the speed of sound
constexpr double kRoot = 0.70710678118654752;

/// The equation of a line's point after the elimination, for each wave: the point is `right` - `next` and `second`
/// times the next two points.
struct PentadiagonalRow {
  Lanes next[kWaves], second[kWaves], right[kUnknowns];
};

[[gnu::always_inline]] inline void sound(const FlowState<Lanes>& p, Lanes& speed) {
  const Lanes square = (kC1 * kC2) * (p.energy - p.kinetic);
  for (std::size_t k = 0; k < kLanes; ++k) speed[k] = std::sqrt(square[k]);
}

/// Transforms changes of the unknowns into changes of waves along x.
[[gnu::always_inline]] inline void to_waves(const FlowState<Lanes>& p, Lanes* r) {
  Lanes speed;
  sound(p, speed);
  const Lanes pressure = kC2 / (speed * speed) *
                         (p.kinetic * r[0] - p.velocity[0] * r[1] - p.velocity[1] * r[2] - p.velocity[2] * r[3] + r[4]);
  const Lanes t = kRoot * p.inverse * (p.velocity[0] * r[0] - r[1]), s = kRoot * p.inverse * speed * pressure;
  const Lanes y = p.inverse * (p.velocity[1] * r[0] - r[2]), z = p.inverse * (r[3] - p.velocity[2] * r[0]);
  r[0] -= pressure;
  r[1] = z;
  r[2] = y;
  r[3] = s - t;
  r[4] = s + t;
}

/// Transforms waves along x into waves along y.
[[gnu::always_inline]] inline void from_x_to_y(Lanes* r) {
  const Lanes t = kRoot * r[2], s = 0.5 * (r[3] + r[4]), difference = kRoot * (r[3] - r[4]), first = r[0];
  r[0] = -r[1];
  r[1] = first;
  r[2] = difference;
  r[3] = s - t;
  r[4] = s + t;
}

/// Transforms waves along y into waves along z.
[[gnu::always_inline]] inline void from_y_to_z(Lanes* r) {
  const Lanes t = kRoot * r[0], s = 0.5 * (r[3] + r[4]), second = r[1];
  r[0] = kRoot * (r[3] - r[4]);
  r[1] = -r[2];
  r[2] = second;
  r[3] = s - t;
  r[4] = s + t;
}

/// Transforms changes of waves along z into changes of the unknowns.
[[gnu::always_inline]] inline void from_waves(const FlowState<Lanes>& p, Lanes* r) {
  Lanes speed;
  sound(p, speed);
  const Lanes density = 1.0 / p.inverse, factor = kRoot * density;
  const Lanes sum = factor / speed * (r[3] + r[4]), mass = r[2] + sum, difference = factor * (r[3] - r[4]);
  const Lanes first = r[0], second = r[1];
  r[0] = mass;
  r[1] = p.velocity[0] * mass - density * second;
  r[2] = p.velocity[1] * mass + density * first;
  r[3] = p.velocity[2] * mass + difference;
  r[4] = density * (p.velocity[1] * first - p.velocity[0] * second) + p.kinetic * mass + speed * speed / kC2 * sum +
         p.velocity[2] * difference;
}

class ScalarPentadiagonal final : public AlternatingDirections {
 public:
  explicit ScalarPentadiagonal(const FlowClass& problem)
      : AlternatingDirections(problem), lines_(threads(), std::vector<PentadiagonalRow>(problem.points)) {}

 private:
  void solve_batch(int direction, const LineBatch& batch) override {
    direction == 0 ? solve_along<0>(batch) : direction == 1 ? solve_along<1>(batch) : solve_along<2>(batch);
  }

  /// Computes what a point contributes to its neighbours' rows: the speeds of the waves, and the diffusion of all
  /// waves.
  template <int D>
  [[gnu::always_inline]] static void waves(const FlowState<Lanes>& p, Lanes* speed, Lanes& diffusion) {
    Lanes c;
    sound(p, c);
    speed[0] = p.velocity[D];
    speed[1] = p.velocity[D] + c;
    speed[2] = p.velocity[D] - c;
    diffusion = kDiffusion[D] + kHeat * p.inverse;
  }

  template <int D>
  void solve_along(const LineBatch& batch) {
    const double half = problem_.step * per_length_ / 2, second = problem_.step * per_length_ * per_length_,
                 fourth = problem_.step * kDissipation;
    constexpr int kWaveOf[] = {0, 0, 0, 1, 2};
    std::vector<PentadiagonalRow>& line = lines_[this_thread()];
    FlowState<Lanes> current, ahead;
    Lanes speed[3][kWaves], diffusion[3];  // behind, current, ahead
    batch.load_point(0, current);
    waves<D>(current, speed[1], diffusion[1]);
    batch.load_point(1, ahead);
    waves<D>(ahead, speed[2], diffusion[2]);
    for (std::size_t i = 1; i + 1 < n_; ++i) {
      current = ahead;
      for (int w = 0; w < kWaves; ++w) speed[0][w] = speed[1][w], speed[1][w] = speed[2][w];
      diffusion[0] = diffusion[1], diffusion[1] = diffusion[2];
      batch.load_point(i + 1, ahead);
      waves<D>(ahead, speed[2], diffusion[2]);
      double weights[5];
      dissipation(i, n_, weights);

      PentadiagonalRow& left = line[i];
      batch.load_rhs(i, left.right);
      if (D == 0) to_waves(current, left.right);
      // Points 0 and -1 contribute nothing: their equations are zero.
      const PentadiagonalRow &last = line[i - 1], &before = i > 1 ? line[i - 2] : line[0];
      Lanes factor_last[kWaves], pivot[kWaves];
      const double factor_before = fourth * weights[0];
      for (int w = 0; w < kWaves; ++w) {
        factor_last[w] =
            -half * speed[0][w] - second * diffusion[0] + fourth * weights[1] - factor_before * before.next[w];
        pivot[w] = 1.0 / (1.0 + 2 * second * diffusion[1] + fourth * weights[2] - factor_before * before.second[w] -
                          factor_last[w] * last.next[w]);
        left.next[w] = pivot[w] * (half * speed[2][w] - second * diffusion[2] + fourth * weights[3] -
                                   factor_last[w] * last.second[w]);
        left.second[w] = pivot[w] * (fourth * weights[4]);
      }
      for (std::size_t m = 0; m < kUnknowns; ++m) {
        const int w = kWaveOf[m];
        left.right[m] = pivot[w] * (left.right[m] - factor_before * before.right[m] - factor_last[w] * last.right[m]);
      }
    }
    Lanes next[kUnknowns] = {}, second_next[kUnknowns] = {};  // the surface does not change
    for (std::size_t i = n_ - 2; i > 0; --i) {
      const PentadiagonalRow& left = line[i];
      Lanes solution[kUnknowns];
      for (std::size_t m = 0; m < kUnknowns; ++m) {
        const int w = kWaveOf[m];
        solution[m] = left.right[m] - left.next[w] * next[m] - left.second[w] * second_next[m];
        second_next[m] = next[m];
        next[m] = solution[m];
      }
      if (D == 0) from_x_to_y(solution);
      if (D == 1) from_y_to_z(solution);
      if (D == 2) {
        batch.load_point(i, current);
        from_waves(current, solution);
      }
      batch.store_rhs(i, solution);
    }
  }

  std::vector<std::vector<PentadiagonalRow>> lines_;  // by thread; zero for point 0
};

}  // namespace

std::vector<Problem> sp_problems() {
  std::vector<Problem> problems;
  for (const FlowClass& c : kClasses) {
    const double n = static_cast<double>(c.points);
    problems.push_back(
        flow_problem<ScalarPentadiagonal>("sp", c, 881.174 * n * n * n - 4683.91 * n * n + 11484.5 * n - 19272.4));
  }
  return problems;
}

}  // namespace mm::mpi::npb

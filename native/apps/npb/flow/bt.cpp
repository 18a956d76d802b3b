/// bt: the flow by alternating directions, with block tridiagonal systems of 5 by 5 blocks along each direction.
#include <algorithm>

#include "apps/npb/flow/adi.hpp"

namespace mm::mpi::npb {
namespace {

constexpr FlowClass kClasses[] = {
    {"S",
     12,
     60,
     0.01,
     {1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02, 2.6436421275166801e-02,
      1.9211784131744430e-01},
     {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05, 7.3821238632439731e-05,
      8.9269630987491446e-04}},
    {"W",
     24,
     200,
     0.8e-3,
     {0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02, 0.2469174937669e+02, 0.2638427874317e+03},
     {0.4419655736008e+01, 0.4638531260002, 0.1011551749967e+01, 0.9235878729944, 0.1018045837718e+02}},
    {"A",
     64,
     200,
     0.8e-3,
     {1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01, 2.3665622544678910e+01,
      2.5278963211748344e+02},
     {4.2348416040525025, 4.4390282496995698e-01, 9.6692480136345650e-01, 8.8302063039765474e-01, 9.7379901770829278}},
    {"B",
     102,
     200,
     3.0e-4,
     {1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02, 3.2485447959084092e+02,
      3.2707541254659363e+03},
     {5.2969847140936856e+01, 4.4632896115670668, 1.3122573342210174e+01, 1.2006925323559144e+01,
      1.2459576151035986e+02}},
    {"C",
     162,
     200,
     1.0e-4,
     {0.62398116551764615e+04, 0.50793239190423964e+03, 0.15423530093013596e+04, 0.13302387929291190e+04,
      0.11604087428436455e+05},
     {0.16462008369091265e+03, 0.11497107903824313e+02, 0.41207446207461508e+02, 0.37087651059694167e+02,
      0.36211053051841265e+03}},
};

constexpr int kN = static_cast<int>(kUnknowns);
using Block = Lanes[kN][kN];

/// Computes block += a A, like add_convection.
template <int D>
[[gnu::always_inline]] inline void add_convection_block(const FlowState<Lanes>& p, double a, Block& block) {
  const Lanes w = a * p.velocity[D], c2w = kC2 * w;
  block[0][1 + D] += a;
  for (int j = 0; j < 3; ++j) {
    block[1 + j][0] -= w * p.velocity[j];
    block[1 + j][1 + j] += w;
    block[1 + j][1 + D] += a * p.velocity[j];
    block[1 + D][1 + j] -= (a * kC2) * p.velocity[j];
    block[4][1 + j] -= c2w * p.velocity[j];
  }
  block[1 + D][0] += (a * kC2) * p.kinetic;
  block[1 + D][4] += a * kC2;
  block[4][0] += 2.0 * c2w * p.kinetic - kC1 * w * p.energy;
  block[4][1 + D] += (a * kC1) * p.energy - (a * kC2) * p.kinetic;
  block[4][4] += kC1 * w;
}

/// Computes block += b (N + d), like add_diffusion.
template <int D>
[[gnu::always_inline]] inline void add_diffusion_block(const FlowState<Lanes>& p, double b, Block& block) {
  const Lanes stress = (b * kViscosity) * p.inverse;
  Lanes work = kHeatRatio * p.energy;
  for (int j = 0; j < 3; ++j) {
    const double factor = j == D ? 4.0 / 3 : 1;
    block[1 + j][0] -= (factor * stress) * p.velocity[j];
    block[1 + j][1 + j] += factor * stress;
    block[4][1 + j] += ((factor - kHeatRatio) * stress) * p.velocity[j];
    work += (factor - kHeatRatio) * (p.velocity[j] * p.velocity[j]);
  }
  block[4][0] -= stress * work;
  block[4][4] += kHeatRatio * stress;
  for (int m = 0; m < kN; ++m) block[m][m] += b * kDiffusion[D];
}

/// The equation of a line's point after the elimination: the point is `right` - `ahead` times the next point.
struct BlockTridiagonalRow {
  Block ahead;
  Lanes right[kN];
};

/// Solves diagonal * (ahead | right) = (ahead | right) in place. The diagonal dominates, so there are no pivots to
/// choose.
[[gnu::always_inline]] inline void divide(Block& diagonal, BlockTridiagonalRow& left) {
  for (int k = 0; k < kN; ++k) {
    const Lanes pivot = 1.0 / diagonal[k][k];
    for (int j = k + 1; j < kN; ++j) diagonal[k][j] *= pivot;
    for (int j = 0; j < kN; ++j) left.ahead[k][j] *= pivot;
    left.right[k] *= pivot;
    for (int i = k + 1; i < kN; ++i) {
      const Lanes factor = diagonal[i][k];
      for (int j = k + 1; j < kN; ++j) diagonal[i][j] -= factor * diagonal[k][j];
      for (int j = 0; j < kN; ++j) left.ahead[i][j] -= factor * left.ahead[k][j];
      left.right[i] -= factor * left.right[k];
    }
  }
  for (int k = kN - 1; k > 0; --k)
    for (int i = 0; i < k; ++i) {
      const Lanes factor = diagonal[i][k];
      for (int j = 0; j < kN; ++j) left.ahead[i][j] -= factor * left.ahead[k][j];
      left.right[i] -= factor * left.right[k];
    }
}

class BlockTridiagonal final : public AlternatingDirections {
 public:
  explicit BlockTridiagonal(const FlowClass& problem)
      : AlternatingDirections(problem), lines_(threads(), std::vector<BlockTridiagonalRow>(problem.points)) {}

 private:
  void solve_batch(int direction, const LineBatch& batch) override {
    direction == 0 ? solve_along<0>(batch) : direction == 1 ? solve_along<1>(batch) : solve_along<2>(batch);
  }

  template <int D>
  void solve_along(const LineBatch& batch) {
    const double half = problem_.step * per_length_ / 2, second = problem_.step * per_length_ * per_length_;
    std::vector<BlockTridiagonalRow>& line = lines_[this_thread()];
    FlowState<Lanes> behind, current, ahead;
    batch.load_point(0, current);
    batch.load_point(1, ahead);
    for (std::size_t i = 1; i + 1 < n_; ++i) {
      behind = current;
      current = ahead;
      batch.load_point(i + 1, ahead);
      BlockTridiagonalRow& left = line[i];
      Block diagonal{};
      add_diffusion_block<D>(current, 2 * second, diagonal);
      for (int m = 0; m < kN; ++m) diagonal[m][m] += 1.0;
      for (auto& row : left.ahead)
        for (Lanes& number : row) number = Lanes{};
      add_convection_block<D>(ahead, half, left.ahead);
      add_diffusion_block<D>(ahead, -second, left.ahead);
      batch.load_rhs(i, left.right);
      if (i > 1) subtract_behind<D>(behind, half, second, line[i - 1], diagonal, left);
      divide(diagonal, left);
    }
    Lanes next[kN] = {};  // the surface does not change
    for (std::size_t i = n_ - 2; i > 0; --i) {
      const BlockTridiagonalRow& left = line[i];
      Lanes solution[kN];
      for (int m = 0; m < kN; ++m) {
        solution[m] = left.right[m];
        for (int j = 0; j < kN; ++j) solution[m] -= left.ahead[m][j] * next[j];
      }
      std::copy_n(solution, kN, next);
      batch.store_rhs(i, solution);
    }
  }

  /// Eliminates the point behind, whose block is -half A - second (N + d).
  template <int D>
  static void subtract_behind(const FlowState<Lanes>& p, double half, double second, const BlockTridiagonalRow& before,
                              Block& diagonal, BlockTridiagonalRow& left) {
    add_convection<D>(p, half, before.right, left.right);
    add_diffusion<D>(p, second, before.right, left.right);
    for (int j = 0; j < kN; ++j) {
      Lanes column[kN], product[kN] = {};
      for (int m = 0; m < kN; ++m) column[m] = before.ahead[m][j];
      add_convection<D>(p, half, column, product);
      add_diffusion<D>(p, second, column, product);
      for (int m = 0; m < kN; ++m) diagonal[m][j] += product[m];
    }
  }

  std::vector<std::vector<BlockTridiagonalRow>> lines_;  // by thread
};

}  // namespace

std::vector<Problem> bt_problems() {
  std::vector<Problem> problems;
  for (const FlowClass& c : kClasses) {
    const double n = static_cast<double>(c.points);
    problems.push_back(flow_problem<BlockTridiagonal>("bt", c, 3478.8 * n * n * n - 17655.7 * n * n + 28023.7 * n));
  }
  return problems;
}

}  // namespace mm::mpi::npb

/// lu: the flow's steady state by symmetric successive over-relaxation. A lower and an upper sweep in each step go from
/// corner to corner, row by row from slab to slab.
#include <atomic>

#include "apps/npb/flow/flow.hpp"
#include "base/error.hpp"

namespace mm::mpi::npb {
namespace {

constexpr FlowClass kClasses[] = {
    {"S",
     12,
     50,
     0.5,
     {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03, 1.5029584435994323e-03,
      3.4264073155896461e-02},
     {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05, 5.8474222595157350e-05,
      1.3103347914111294e-03},
     7.8418928865937083},
    {"W",
     33,
     300,
     1.5e-3,
     {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01, 0.2326187750252e+01, 0.2826799444189e+02},
     {0.4867877144216, 0.5064652880982e-01, 0.9281818101960e-01, 0.8570126542733e-01, 0.1084277417792e+01},
     0.1161399311023e+02},
    {"A",
     64,
     250,
     2,
     {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02, 1.7845301160418537e+02,
      1.8384760349464247e+03},
     {2.9964085685471943e+01, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051, 7.0715315688392578e+01},
     2.6030925604886277e+01},
    {"B",
     102,
     250,
     2,
     {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02, 7.7812774739425265e+02,
      7.3087969592545314e+03},
     {1.1401176380212709e+02, 8.1098963655421574, 2.8480597317698308e+01, 2.5905394567832939e+01,
      2.6054907504857413e+02},
     4.7887162703308227e+01},
    {"C",
     162,
     250,
     2,
     {1.03766980323537846e+04, 8.92212458801008552e+02, 2.56238814582660871e+03, 2.19194343857831427e+03,
      1.78078057261061185e+04},
     {2.15986399716949279e+02, 1.55789559239863600e+01, 5.41318863077207766e+01, 4.82262643154045421e+01,
      4.55902910043250358e+02},
     6.66404553572181300e+01},
};
constexpr double kRelaxation = 1.2;

class LowerUpper final : public Flow {
 public:
  using Flow::Flow;
  ~LowerUpper() override {
    if (rows_ != MPI_DATATYPE_NULL) MPI_Type_free(&rows_);
  }
  LowerUpper(const LowerUpper&) = delete;
  LowerUpper& operator=(const LowerUpper&) = delete;

  void prepare() override {
    Flow::prepare();
    if (ranks_ == 1) return;
    check(
        MPI_Type_vector(kUnknowns, static_cast<int>(n_), static_cast<int>((planes_ + 4) * n_ * n_), MPI_DOUBLE, &rows_),
        "MPI_Type_vector");
    check(MPI_Type_commit(&rows_), "MPI_Type_commit");
  }

  void reset() override {
    Flow::reset();
    compute_rhs(1);
  }

  void solve() override {
    const double over = 1 / (kRelaxation * (2 - kRelaxation));
    for (int i = 0; i < problem_.steps; ++i) {
      sweep<1>();
      sweep<-1>();
      add_rhs(over);
      compute_rhs(1);
    }
    norms(rhs_.at, residual_);
  }

 private:
  void find_residual() override {}  // the last step has computed it

  /// Solves the lower (Way = 1) or upper (-1) triangle row by row, so that the next planes can follow one row behind:
  /// the planes of the next thread, and after the last thread the planes of the next rank. Only the first thread calls
  /// MPI: it receives rows ahead of the thread that needs them, and sends them when the last thread is done with them.
  template <int Way>
  void sweep() {
    const int source = rank_ - Way, target = rank_ + Way;
    const bool receives = source >= 0 && source < ranks_, sends = target >= 0 && target < ranks_;
    const std::size_t rows = n_ - 2, last = threads() - 1;
    for (Done& done : done_) done.rows = 0;
    done_[0].rows = receives ? 0 : rows;
    in_parts(static_cast<std::size_t>(end() - begin()), [&](std::size_t lower, std::size_t upper) {
      const bool first = this_thread() == 0;
      const std::size_t place = Way == 1 ? this_thread() : last - this_thread();  // in the order of the planes
      for (std::size_t turn = 0; turn < rows + (first ? last : place); ++turn) {
        if (first && receives && turn < rows) {
          receive_row<Way>(turn);
          done_[0].rows.store(turn + 1, std::memory_order_release);
        }
        if (turn >= place && turn - place < rows) {
          const std::size_t row = turn - place;
          wait_for(done_[place], row);
          for (std::size_t k = lower; k < upper; ++k) {
            const std::size_t i = Way == 1 ? k : lower + upper - 1 - k;
            solve_row<Way>(at(begin() + static_cast<std::ptrdiff_t>(i), row_at<Way>(row), 0));
          }
          done_[place + 1].rows.store(row + 1, std::memory_order_release);
        }
        if (first && sends && turn >= last) {
          wait_for(done_[last + 1], turn - last);
          send_row<Way>(turn - last);
        }
      }
    });
  }
  template <int Way>
  std::size_t row_at(std::size_t row) const {
    return Way == 1 ? 1 + row : n_ - 2 - row;
  }
  template <int Way>
  void receive_row(std::size_t row) {
    const std::ptrdiff_t ghost = Way == 1 ? -1 : static_cast<std::ptrdiff_t>(planes_);
    library([&] {
      expect(MPI_Recv(rhs_.at[0] + at(ghost, row_at<Way>(row), 0), 1, rows_, rank_ - Way, 2, all_, MPI_STATUS_IGNORE),
             "MPI_Recv");
    });
  }
  template <int Way>
  void send_row(std::size_t row) {
    const std::ptrdiff_t edge = Way == 1 ? static_cast<std::ptrdiff_t>(planes_) - 1 : 0;
    library([&] {
      expect(MPI_Send(rhs_.at[0] + at(edge, row_at<Way>(row), 0), 1, rows_, rank_ + Way, 2, all_), "MPI_Send");
    });
  }
  /// Like `check`, while other threads wait for this one: an exception must not leave their loop.
  static void expect(int status, const char* call) {
    try {
      check(status, call);
    } catch (const Failure& error) {
      abort_job(error.what());
    }
  }

  /// The number of rows that all threads before a place are done with.
  struct alignas(64) Done {
    std::atomic<std::size_t> rows = 0;
  };
  static void wait_for(const Done& before, std::size_t row) {
    wait_until([&] { return before.rows.load(std::memory_order_acquire) > row; });
  }

  FlowState<double> point(std::size_t i) const {
    FlowState<double> p;
    p.set(u_.at[1][i], u_.at[2][i], u_.at[3][i], u_.at[4][i], inverse_[i]);
    return p;
  }

  /// Adds the block of the point behind along D.
  template <int D>
  void add_behind(std::size_t behind, double a, double b, double* sums) const {
    const double v[] = {rhs_.at[0][behind], rhs_.at[1][behind], rhs_.at[2][behind], rhs_.at[3][behind],
                        rhs_.at[4][behind]};
    const FlowState<double> p = point(behind);
    add_convection<D>(p, a, v, sums);
    add_diffusion<D>(p, b, v, sums);
  }

  template <int Way>
  void solve_row(std::size_t row) {
    const double second = problem_.step * per_length_ * per_length_, half = problem_.step * per_length_ / 2;
    const double a = Way * kRelaxation * half, b = kRelaxation * second;
    // The diagonal block is lower triangular, since the directions' fluxes cancel in it.
    constexpr double kSpread = kDiffusion[0] + kDiffusion[1] + kDiffusion[2];
    const double first = 1 + 2 * second * kSpread, inverse = 1 / first, stress = 2 * second * kViscosity;
    for (std::size_t j = 1; j + 1 < n_; ++j) {
      const std::size_t i = row + (Way == 1 ? j : n_ - 1 - j);
      double v[kUnknowns] = {};
      add_behind<2>(i - Way * n_ * n_, a, b, v);
      add_behind<1>(i - Way * n_, a, b, v);
      add_behind<0>(i - Way, a, b, v);
      if (Way == 1)
        for (std::size_t m = 0; m < kUnknowns; ++m) v[m] += problem_.step * rhs_.at[m][i];

      const FlowState<double> p = point(i);
      const double drag = stress * (10.0 / 3) * p.inverse, heat = stress * 3 * kHeatRatio * p.inverse;
      const double momentum = 1 / (first + drag);
      v[0] *= inverse;
      double work = 0;
      for (int m = 0; m < 3; ++m) {
        const double carried = p.velocity[m] * v[0];
        v[1 + m] = (v[1 + m] + drag * carried) * momentum;
        work += p.velocity[m] * (v[1 + m] - carried);
      }
      v[4] = (v[4] - (drag - heat) * work + heat * p.energy * v[0]) / (first + heat);
      for (std::size_t m = 0; m < kUnknowns; ++m) {
        double& change = rhs_.at[m][i];
        change = Way == 1 ? v[m] : change + v[m];
      }
    }
  }

  /// Verifies the report's integral of pressure over the faces of a box inside the cube.
  std::string verify_more() override {
    const std::size_t low = 1, high_x = n_ - 2, high_y = n_ - 3, low_z = 2, high_z = n_ - 2;
    const auto planes = static_cast<std::ptrdiff_t>(planes_);
    // The sum takes the pressure at the corners of all squares of a face, as far as this slab has it, each times the
    // number of squares around the corner.
    const auto ends = [](std::size_t i, std::size_t from, std::size_t to) { return i == from || i == to ? 1.0 : 2.0; };
    double total = 0;
    for (std::ptrdiff_t local = 0; local < planes; ++local) {
      const std::size_t z = static_cast<std::size_t>(local) + first_;
      if (z < low_z || z > high_z) continue;
      const auto pressure = [&](std::size_t y, std::size_t x) {
        const std::size_t i = at(local, y, x);
        const double *const mx = u_.at[1], *const my = u_.at[2], *const mz = u_.at[3];
        return kC2 * (u_.at[4][i] - 0.5 * (mx[i] * mx[i] + my[i] * my[i] + mz[i] * mz[i]) / u_.at[0][i]);
      };
      if (z == low_z || z == high_z)
        for (std::size_t y = low; y <= high_y; ++y)
          for (std::size_t x = low; x <= high_x; ++x)
            total += ends(y, low, high_y) * ends(x, low, high_x) * pressure(y, x);
      for (std::size_t x = low; x <= high_x; ++x)
        total += ends(z, low_z, high_z) * ends(x, low, high_x) * (pressure(low, x) + pressure(high_y, x));
      for (std::size_t y = low; y <= high_y; ++y)
        total += ends(z, low_z, high_z) * ends(y, low, high_y) * (pressure(y, low) + pressure(y, high_x));
    }
    sum(&total, 1, all_);
    return differs("surface integral", problem_.surface, 0.25 * total / (per_length_ * per_length_), kFlowTolerance);
  }

  MPI_Datatype rows_ = MPI_DATATYPE_NULL;
  std::vector<Done> done_ = std::vector<Done>(threads() + 1);
};

}  // namespace

std::vector<Problem> lu_problems() {
  std::vector<Problem> problems;
  for (const FlowClass& c : kClasses) {
    const double n = static_cast<double>(c.points);
    problems.push_back(flow_problem<LowerUpper>("lu", c, 1984.77 * n * n * n - 10923.3 * n * n + 27770.9 * n - 144010));
  }
  return problems;
}

}  // namespace mm::mpi::npb

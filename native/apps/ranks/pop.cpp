/// pop: the barotropic solver of an ocean model. Each iteration does little arithmetic between a halo exchange and
/// global sums, so latency dominates.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>
#include <set>

#include "apps/ranks/apps.hpp"
#include "base/error.hpp"
#include "mpi/harness/batch.hpp"
#include "mpi/reductions/reduction.hpp"

namespace mm::mpi {
namespace {

using std::numbers::pi;

constexpr int kWidth = 320, kHeight = 384;
constexpr double kMaxResidual = 1e-12;  // limit of the recomputed residual
constexpr double kTarget = 3e-13;       // limit of the residual that the iteration updates
constexpr int kMaxIterations = 5000;
constexpr double kEarth_m = 6371e3, kGravity = 9.806, kStep_s = 1200;

/// One field over the whole globe, row by row from south to north.
using Globe = std::vector<double>;
std::size_t cell(int i, int j) {
  return static_cast<std::size_t>(j) * kWidth + static_cast<std::size_t>((i + kWidth) % kWidth);
}

/// The coupling of the four cells around a corner: energy = x (difference eastward)^2 + y (difference northward)^2.
struct Corner {
  double x = 0, y = 0;
};

/// The problem, identical on all ranks: depths, and a right-hand side with a known solution.
struct Ocean {
  Globe depth, mass, exact, right;  // m, m^2/m, m, m^2
  double norm = 0, exact_norm = 0, land_share = 0;

  static const Ocean& get() {
    static const Ocean ocean;
    return ocean;
  }

  /// Returns the corner north-east of a cell; zero outside the globe and next to land.
  Corner corner(int i, int j) const {
    if (j < 0 || j + 1 >= kHeight) return {};
    const double depth_min =
        std::min({depth[cell(i, j)], depth[cell(i + 1, j)], depth[cell(i, j + 1)], depth[cell(i + 1, j + 1)]});
    const double dx = east_m(j + 0.5), dy = north_m();
    return {depth_min * dy / (4 * dx), depth_min * dx / (4 * dy)};
  }

  /// Returns y = A x, computed corner by corner. This is deliberately not the method of the solver, which it verifies.
  Globe apply(const Globe& x) const {
    Globe y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = (depth[i] > 0 ? mass[i] : 1) * x[i];
    for (int j = 0; j + 1 < kHeight; ++j)
      for (int i = 0; i < kWidth; ++i) {
        const Corner c = corner(i, j);
        const std::size_t sw = cell(i, j), se = cell(i + 1, j), nw = cell(i, j + 1), ne = cell(i + 1, j + 1);
        const double east = c.x * (x[se] - x[sw] + x[ne] - x[nw]), north = c.y * (x[nw] - x[sw] + x[ne] - x[se]);
        y[sw] -= east + north;
        y[se] += east - north;
        y[nw] -= east - north;
        y[ne] += east + north;
      }
    return y;
  }

 private:
  static double latitude(double j) { return (-75 + 150 * (j + 0.5) / kHeight) * pi / 180; }
  static double east_m(double j) { return kEarth_m * std::cos(latitude(j)) * 2 * pi / kWidth; }
  static double north_m() { return kEarth_m * 150 * pi / 180 / kHeight; }

  Ocean() : depth(kWidth * kHeight), mass(depth.size()), exact(depth.size()) {
    int land = 0;
    for (int j = 0; j < kHeight; ++j)
      for (int i = 0; i < kWidth; ++i) {
        const double l = 2 * pi * i / kWidth, f = latitude(j);
        // There are two slanted continents, bays, a channel around the south, and walls in the outermost rows.
        const double height = std::sin(2 * l + 1.5 * std::sin(2 * f)) + 0.35 * std::cos(5 * l - 3 * f) +
                              0.15 * std::sin(11 * l + 7 * f) - 0.9 * std::exp(-std::pow((f + 1.05) / 0.2, 2));
        const bool wet = height < 0.5 && j > 0 && j + 1 < kHeight;
        const std::size_t index = cell(i, j);
        depth[index] = wet ? std::min(5500.0, 100 + 5000 * (0.5 - height)) : 0;
        mass[index] = east_m(j) * north_m() / (kGravity * kStep_s * kStep_s);
        exact[index] = wet ? std::cos(3 * l) * std::sin(2 * f) + 0.2 * std::cos(17 * l + 11 * f) : 0;
        land += wet ? 0 : 1;
      }
    land_share = static_cast<double>(land) / static_cast<double>(depth.size());
    right = apply(exact);
    norm = length(right);
    exact_norm = length(exact);
  }

 public:
  static double length(const Globe& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
  }
};

/// A rank's part of the globe, with a border of ghost cells.
struct OceanBlock {
  int x0, y0, width, height;
  std::size_t stride() const { return static_cast<std::size_t>(width) + 2; }
  std::size_t size() const { return stride() * (static_cast<std::size_t>(height) + 2); }
  /// Returns the index of a cell. Indices of ghost cells begin at 0, and indices of the block's own cells at 1.
  std::size_t at(int i, int j) const { return static_cast<std::size_t>(j) * stride() + static_cast<std::size_t>(i); }
};

class Pop : public MiniApplication {
 public:
  Pop(const HaloProtocol& protocol, const RankGrid& grid, int reductions)
      : protocol_(protocol), grid_(grid), reductions_(reductions), block_(block_of(grid)) {
    // All sides of a halo have the same length: the maximum over all ranks.
    const std::size_t widest = static_cast<std::size_t>((kWidth + grid.extent[1] - 1) / grid.extent[1]);
    const std::size_t tallest = static_cast<std::size_t>((kHeight + grid.extent[0] - 1) / grid.extent[0]) + 2;
    for (int d = 0; d < 2; ++d)
      if (grid.extent[static_cast<std::size_t>(d)] > 1) lows_.push_back(2 * d);
    if (lows_.size() == 2)
      words_ = std::max(widest, tallest);
    else
      words_ = grid.extent[0] > 1 ? widest : tallest;
    if (!lows_.empty()) {
      halo_field_ = protocol.make(grid_, words_);
      reduction_ = make_reduction(protocol, 3);
    }
    for (std::vector<double>* field :
         {&centre_, &inverse_, &east_, &north_, &corner_, &b_, &x_, &r_, &z_, &p_, &q_, &az_})
      field->assign(block_.size(), 0.0);
    build();
    // Rank 0 determines the number of iterations once, so that it is the same for all ranks and runs.
    static std::map<std::pair<std::string, int>, int> counts;
    int& count = counts[{grid.name(), reductions}];
    if (count == 0) {
      const int iterations_needed = iterate(0);
      if (iterations_needed == kMaxIterations)
        throw Absent("wrong: not converged after " + std::to_string(kMaxIterations) + " iterations");
      count = iterations_needed;
    }
    iterations_ = count;
  }

  json conditions() const override {
    return {{"paradigm", protocol_.paradigm},
            {"protocol", protocol_.name},
            {"grid", grid_.name()},
            {"reductions", reductions_},
            {"reduction", reduction_name(protocol_)},
            {"halo_words", words_},
            {"width", kWidth},
            {"height", kHeight},
            {"iterations", iterations_},
            {"land_share", Ocean::get().land_share},
            {"halo_dimensions", lows_.size()}};
  }
  std::string metric() const override { return "iteration_time"; }
  double steps() const override { return iterations_; }
  int iterations() const { return iterations_; }
  void run() override { iterate(iterations_); }

  void add_checks(Case& c) override {
    c.verify = [this] {
      check_solution();
      char text[160] = "";
      if (!(residual_ < kMaxResidual) || !(error_ < kMaxResidual * 1e5))
        std::snprintf(text, sizeof text, "wrong solution: residual %.3g, must be below %.3g; error %.3g", residual_,
                      kMaxResidual, error_);
      return std::string(text);
    };
    c.extra_metrics.emplace_back("residual");
    c.values = [this, split = c.values] {
      Values values = split();
      values.push_back(residual_);
      return values;
    };
    c.observe = [this] { return json{{"solution_error", error_}}; };
  }

  std::vector<CommunicationPart> parts() override {
    const auto alone_case = [this](std::size_t bytes) { return halo_alone(protocol_, grid_, lows_, bytes); };
    std::vector<CommunicationPart> result;
    result.push_back({"halo", "halo_time", &halo_, words_ * 8,
                      lows_.empty() ? nullptr : std::function<Case(std::size_t)>(alone_case)});
    result.push_back({"sum", "reduce_time", &reduce_, reductions_ == 1 ? 24u : 16u,
                      [this](std::size_t bytes) { return reduction_alone(protocol_, bytes); }});
    return result;
  }

 private:
  static OceanBlock block_of(const RankGrid& grid) {
    const int rank = World::get().rank(), columns = grid.extent[1], rows = grid.extent[0];
    const int x = rank % columns, y = rank / columns;
    const int x0 = first_cell(kWidth, columns, x), y0 = first_cell(kHeight, rows, y);
    return {x0, y0, first_cell(kWidth, columns, x + 1) - x0, first_cell(kHeight, rows, y + 1) - y0};
  }

  /// Builds the operator as four coefficients per cell: the cell itself, east, north and north-east. By symmetry, the
  /// other coefficients of a cell are coefficients of its neighbours, including ghost cells.
  void build() {
    const Ocean& ocean = Ocean::get();
    for (int j = 0; j <= block_.height + 1; ++j)
      for (int i = 0; i <= block_.width + 1; ++i) {
        const int gi = block_.x0 + i - 1, gj = block_.y0 + j - 1;
        const Corner ne = ocean.corner(gi, gj), se = ocean.corner(gi, gj - 1), nw = ocean.corner(gi - 1, gj),
                     sw = ocean.corner(gi - 1, gj - 1);
        const std::size_t index = block_.at(i, j);
        corner_[index] = -(ne.x + ne.y);
        east_[index] = ne.y - ne.x + se.y - se.x;
        north_[index] = ne.x - ne.y + nw.x - nw.y;
        if (gj < 0 || gj >= kHeight) continue;
        const std::size_t global_cell = cell(gi, gj);
        const double sum = ne.x + ne.y + se.x + se.y + nw.x + nw.y + sw.x + sw.y;
        centre_[index] = ocean.depth[global_cell] > 0 ? ocean.mass[global_cell] + sum : 1;
        inverse_[index] = 1 / centre_[index];
        b_[index] = ocean.right[global_cell];
      }
  }

  /// Fills the ghost cells: first from south and north, then from west and east including the corners. Walls need no
  /// exchange, because nothing couples across them. Around the globe a rank may be its own neighbour.
  void fill_ghosts(std::vector<double>& field) {
    const int w = block_.width, h = block_.height;
    const auto column = [&](int i, int j) -> double& { return field[block_.at(i, j)]; };
    const auto across = [&](int low, const auto& inner, const auto& ghost, int n) {
      for (const int k : {0, 1}) {
        const Row row = halo_field_->out(low + k);
        for (int i = 0; i < n; ++i) row[static_cast<std::size_t>(i)] = word_of(inner(k, i));
      }
      halo_field_->along(low);
      for (const int k : {0, 1}) {
        const Row row = halo_field_->in(low + k);
        for (int i = 0; i < n; ++i) ghost(k, i) = number_of(row[static_cast<std::size_t>(i)]);
      }
    };
    if (halo_field_) halo_field_->begin();
    if (grid_.extent[0] > 1)
      across(
          0, [&](int k, int i) -> double& { return column(i + 1, k == 0 ? 1 : h); },
          [&](int k, int i) -> double& { return column(i + 1, k == 0 ? 0 : h + 1); }, w);
    if (grid_.extent[1] > 1) {
      across(
          2, [&](int k, int j) -> double& { return column(k == 0 ? 1 : w, j); },
          [&](int k, int j) -> double& { return column(k == 0 ? 0 : w + 1, j); }, h + 2);
    } else {
      for (int j = 0; j <= h + 1; ++j) {
        column(0, j) = column(w, j);
        column(w + 1, j) = column(1, j);
      }
    }
  }

  /// Computes out = A in. Returns this rank's part of (in, out).
  double apply(const std::vector<double>& in, std::vector<double>& out) const {
    const std::size_t s = block_.stride();
    double sum = 0;
    for (int j = 1; j <= block_.height; ++j) {
      const std::size_t row = block_.at(1, j);
      const double *const x = in.data() + row, *const c = centre_.data() + row, *const e = east_.data() + row,
                          *const n = north_.data() + row, *const d = corner_.data() + row;
      const double *const xn = x + s, *const xs = x - s, *const ds = d - s, *const ns = n - s;
      double* const y = out.data() + row;
#pragma omp simd reduction(+ : sum)
      for (std::ptrdiff_t i = 0; i < block_.width; ++i) {
        const double a = c[i] * x[i] + e[i] * x[i + 1] + e[i - 1] * x[i - 1] + n[i] * xn[i] + ns[i] * xs[i] +
                         d[i] * xn[i + 1] + ds[i - 1] * xs[i - 1] + d[i - 1] * xn[i - 1] + ds[i] * xs[i + 1];
        y[i] = a;
        sum += a * x[i];
      }
    }
    return sum;
  }

  /// Computes z = r / diagonal. Returns this rank's parts of (r, z) and (r, r).
  std::pair<double, double> precondition() {
    double rz = 0, rr = 0;
    for (int j = 1; j <= block_.height; ++j) {
      const std::size_t row = block_.at(1, j);
      const double *const r = r_.data() + row, *const d = inverse_.data() + row;
      double* const z = z_.data() + row;
#pragma omp simd reduction(+ : rz, rr)
      for (std::ptrdiff_t i = 0; i < block_.width; ++i) {
        z[i] = d[i] * r[i];
        rz += r[i] * z[i];
        rr += r[i] * r[i];
      }
    }
    return {rz, rr};
  }

  /// Computes to = from + factor to.
  void xpay(std::vector<double>& to, const std::vector<double>& from, double factor) const {
    for (int j = 1; j <= block_.height; ++j) {
      const std::size_t row = block_.at(1, j);
      double* const t = to.data() + row;
      const double* const f = from.data() + row;
#pragma omp simd
      for (std::ptrdiff_t i = 0; i < block_.width; ++i) t[i] = f[i] + factor * t[i];
    }
  }

  /// Computes x += alpha p and r -= alpha q.
  void advance(double alpha) {
    for (int j = 1; j <= block_.height; ++j) {
      const std::size_t row = block_.at(1, j);
      double *const x = x_.data() + row, *const r = r_.data() + row;
      const double *const p = p_.data() + row, *const q = q_.data() + row;
#pragma omp simd
      for (std::ptrdiff_t i = 0; i < block_.width; ++i) {
        x[i] += alpha * p[i];
        r[i] -= alpha * q[i];
      }
    }
  }

  void sum(double* values, int n) {
    if (reduction_) reduce_([&] { reduction_->add(values, n); });
  }
  void exchange(std::vector<double>& field) {
    halo_([&] { fill_ghosts(field); });
  }

  /// Solves from zero in `iterations` iterations, or to convergence if `iterations` is 0. Returns the number of
  /// iterations.
  int iterate(int iterations) {
    std::fill(x_.begin(), x_.end(), 0.0);
    std::fill(p_.begin(), p_.end(), 0.0);
    std::fill(q_.begin(), q_.end(), 0.0);
    r_ = b_;
    const double limit = std::pow(kTarget * Ocean::get().norm, 2);
    double rho_before = 1, sigma_before = 0;
    for (int iteration = 0;; ++iteration) {
      if (iterations > 0 && iteration == iterations) return iteration;
      const auto [rz, rr] = precondition();
      double sums[3] = {rz, rr, 0};
      double alpha = 0, beta = 0;
      if (reductions_ == 1) {
        // Chronopoulos and Gear (1989): q = A p follows from A z as p follows from z, so one reduction yields all
        // products.
        exchange(z_);
        sums[2] = apply(z_, az_);
        sum(sums, 3);
        beta = iteration == 0 ? 0 : sums[0] / rho_before;
        const double sigma = sums[2] - beta * beta * sigma_before;
        sigma_before = sigma;
        alpha = sums[0] / sigma;
      } else {
        sum(sums, 2);
        beta = iteration == 0 ? 0 : sums[0] / rho_before;
      }
      rho_before = sums[0];
      if (iterations == 0) {
        int stop = sums[1] < limit || !std::isfinite(sums[1]) || iteration == kMaxIterations;
        check(MPI_Bcast(&stop, 1, MPI_INT, 0, World::get().all()), "MPI_Bcast");
        if (stop) return std::max(iteration, 1);
      }
      xpay(p_, z_, beta);
      if (reductions_ == 1) {
        xpay(q_, az_, beta);
      } else {
        exchange(p_);
        double product = apply(p_, q_);
        sum(&product, 1);
        alpha = sums[0] / product;
      }
      advance(alpha);
    }
  }

  /// Computes the residual and the error of the solution of all ranks. Rank 0 uses the other form of the operator.
  void check_solution() {
    const Ocean& ocean = Ocean::get();
    Globe whole(ocean.depth.size(), 0.0);
    for (int j = 0; j < block_.height; ++j)
      for (int i = 0; i < block_.width; ++i) whole[cell(block_.x0 + i, block_.y0 + j)] = x_[block_.at(i + 1, j + 1)];
    World& world = World::get();
    const int n = static_cast<int>(whole.size());
    const bool first = world.rank() == 0;
    check(MPI_Reduce(first ? MPI_IN_PLACE : whole.data(), first ? whole.data() : nullptr, n, MPI_DOUBLE, MPI_SUM, 0,
                     world.all()),
          "MPI_Reduce");
    double norms[2] = {0, 0};
    if (first) {
      Globe residual = ocean.apply(whole), error = whole;
      for (std::size_t i = 0; i < residual.size(); ++i) {
        residual[i] -= ocean.right[i];
        error[i] -= ocean.exact[i];
      }
      norms[0] = Ocean::length(residual) / ocean.norm;
      norms[1] = Ocean::length(error) / ocean.exact_norm;
    }
    check(MPI_Bcast(norms, 2, MPI_DOUBLE, 0, world.all()), "MPI_Bcast");
    residual_ = norms[0];
    error_ = norms[1];
  }

  const HaloProtocol protocol_;
  const RankGrid grid_;
  const int reductions_;
  const OceanBlock block_;
  std::vector<int> lows_;  // first sides of the dimensions that have neighbours
  std::size_t words_ = 0;
  std::unique_ptr<Halo> halo_field_;
  std::unique_ptr<Reduction> reduction_;
  Channel halo_, reduce_;
  std::vector<double> centre_, inverse_, east_, north_, corner_, b_, x_, r_, z_, p_, q_, az_;
  int iterations_ = 0;
  double residual_ = 1, error_ = 1;
};

const Description& pop_description() {
  static const Description d{
      .name = "pop",
      .summary = "the barotropic solver of an ocean model: time per iteration by part, and the best grid of ranks",
      .detail =
          "Conjugate gradients with a diagonal preconditioner on 320 x 384 cells with land, a 9-point operator, "
          "periodic in longitude. An iteration has one halo exchange and, by option, one or two global reductions. "
          "Every solve starts from zero and runs as many iterations as the first one needed; one rank recomputes its "
          "residual with another form of the operator. A halo message is as long as the longest side. Global sums use "
          "the halo's paradigm: MPI_Allreduce, shared memory, puts, or co_sum.\n"
          "example: mpirun -n 4 meshmark-comm pop --grid all --protocol irecv_isend,shared",
      .source =
          "Smith, Dukowicz, Malone, Parallel ocean general circulation modeling (1992); Chronopoulos, Gear, "
          "s-step iterative methods for symmetric linear systems (1989)",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library"},
      .parameters = {{"grid", "ranks south to north by west to east: all, best (by a pilot run), or one such as 2x3",
                      "", Kind::text, "best"},
                     {"protocol",
                      "halo protocols: all, the protocols of a paradigm (mpi, shmem, caf), or names",
                      "",
                      Kind::choices,
                      "irecv_isend,persistent_irecv_isend,neighbour,shared,shmem_put,caf_sync",
                      {},
                      {},
                      halo_choices()},
                     {"reductions", "global reductions per iteration", "", Kind::integers, "1,2", 1, 2}},
      .metrics =
          [] {
            std::vector<Metric> metrics = {
                {"iteration_time", "time of an iteration, on the slowest rank", "s", Better::lower},
                {"halo_time", "time per iteration in the halo exchange, packing included, mean over ranks", "s",
                 Better::lower},
                {"reduce_time", "time per iteration in global reductions, mean over ranks", "s", Better::lower}};
            for (const Metric& m : compute_metrics()) metrics.push_back(m);
            metrics.push_back(
                {"residual", "residual of the solution relative to the right-hand side", "1", Better::lower});
            metrics.push_back(
                {"best_time", "iteration time of the best grid, protocol and reductions", "s", Better::lower});
            return metrics;
          }(),
      .identity = {"paradigm", "protocol", "grid", "reductions", "ranks", "mpi"},
      .observed = {"solution_error"},
      .ranks = true,
  };
  return d;
}

/// Returns every factorisation of the number of ranks into rows and columns, or the requested one.
std::vector<std::vector<int>> grids(const std::string& requested) {
  const int ranks = World::get().size();
  std::vector<std::vector<int>> factorisations;
  std::string names;
  for (int rows = 1; rows <= ranks; ++rows)
    if (ranks % rows == 0 && rows <= kHeight && ranks / rows <= kWidth) {
      factorisations.push_back({rows, ranks / rows});
      names += (names.empty() ? "" : ", ") + std::to_string(rows) + "x" + std::to_string(ranks / rows);
    }
  if (factorisations.empty())
    throw UsageError(
        "ranks", "found " + std::to_string(ranks),
        "products of at most " + std::to_string(kHeight) + " rows and " + std::to_string(kWidth) + " columns");
  if (requested == "all" || requested == "best") return factorisations;
  for (const auto& factorisation : factorisations)
    if (requested == std::to_string(factorisation[0]) + "x" + std::to_string(factorisation[1])) return {factorisation};
  throw UsageError("grid", "found " + quote(requested), "all, best, " + names);
}

void measure_pop(Run& run) {
  World& world = World::get();
  world.check_request(run);
  std::vector<std::vector<int>> extents = grids(run.text("grid"));
  const std::vector<HaloProtocol> protocols = requested_halos(run, "iteration_time");
  const std::vector<int> reductions = run.integers("reductions", 2);
  std::string grids_tried = run.text("grid");
  if (run.text("grid") == "best" && extents.size() > 1) {
    // The pilot run takes the minimum of three solves with the simplest protocol. When the budget ends, the remaining
    // grids are omitted.
    std::vector<double> min_s;
    grids_tried.clear();
    for (const auto& extent : extents) {
      if (!min_s.empty() && too_late(run)) break;
      grids_tried += (min_s.empty() ? "" : ",") + RankGrid::of(extent).name();
      run.beat("pilot run on grid " + RankGrid::of(extent).name());
      Pop pop(mpi_halos().front(), RankGrid::of(extent), reductions.front());
      min_s.push_back(1e30);
      for (int i = 0; i < 3 && (i == 0 || !too_late(run)); ++i) {
        world.start_together();
        const Ticks begin = ticks();
        pop.run();
        double elapsed_s = seconds(ticks() - begin);
        check(MPI_Allreduce(MPI_IN_PLACE, &elapsed_s, 1, MPI_DOUBLE, MPI_MAX, world.all()), "MPI_Allreduce");
        min_s.back() = std::min(min_s.back(), elapsed_s);
      }
    }
    if (min_s.size() == extents.size()) grids_tried = run.text("grid");
    // Ranks may have measured different times, so rank 0 decides.
    const int best = world.broadcast(std::min_element(min_s.begin(), min_s.end()) - min_s.begin()).get<int>();
    extents = {extents[static_cast<std::size_t>(best)]};
  }
  int first_iterations = 0;
  double best_s = 0;
  json best;
  std::vector<std::string> best_flags;
  CaseBatch batch(run, extents.size());
  for (const auto& extent : extents) {
    const RankGrid grid = RankGrid::of(extent);
    std::vector<json> planned_conditions;
    std::vector<std::shared_ptr<std::set<std::string>>> planned_flags;
    for (const HaloProtocol& p : protocols)
      for (const int n : reductions) {
        const Case plan = planned_case("iteration_time", p, {{"grid", grid.name()}, {"reductions", n}});
        const auto flags = std::make_shared<std::set<std::string>>();
        planned_conditions.push_back(plan.conditions);
        planned_flags.push_back(flags);
        // Each rank needs its fields, and several copies of the whole globe for verification.
        batch.add(plan, 8.0 * kWidth * kHeight * (13.0 / world.size() + 6), [&] {
          const auto pop = std::make_shared<Pop>(p, grid, n);
          if (first_iterations == 0) first_iterations = pop->iterations();
          if (std::abs(pop->iterations() - first_iterations) > 1)
            throw Absent("wrong: it takes " + std::to_string(pop->iterations()) + " iterations, another variant " +
                         std::to_string(first_iterations));
          Case c = program_case(pop);
          c.flags = flags;
          return c;
        });
      }
    const auto medians = batch.done();
    for (std::size_t i = 0; i < medians.size(); ++i)
      if (std::isfinite(medians[i]) && (best.is_null() || medians[i] < best_s)) {
        best_s = medians[i];
        best = planned_conditions[i];
        best_flags = {planned_flags[i]->begin(), planned_flags[i]->end()};
      }
  }
  if (best.is_null()) return;
  best.update(world.conditions());
  best["best"] = best["grid"];
  best["grids_tried"] = grids_tried;
  run.derive("best_time", {best_s}, best, best_flags, "iteration_time");
}

const Instrument pop{pop_description(), measure_pop};

}  // namespace

std::shared_ptr<MiniApplication> make_pop(const HaloProtocol& protocol, const RankGrid& grid, int reductions) {
  return std::make_shared<Pop>(protocol, grid, reductions);
}

}  // namespace mm::mpi

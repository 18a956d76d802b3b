/// swim: shallow water on a staggered grid, rows over ranks, one halo exchange a step.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>

#include "base/error.hpp"
#include "mpi/apps/apps.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace {

using std::numbers::pi;

constexpr double kCell_m = 1e5, kStep_s = 30;
constexpr double kLevel = 5e4;  // mean of p, the height times gravity, m^2/s^2
constexpr double kSpeed = 10;   // of the vortices, m/s
constexpr double kWave = 0.01;  // of p, share of the level
// Maximum relative drifts in a run. Mass is conserved to roundoff; the scheme conserves energy up to the resolution of
// the grid, and enstrophy up to that of the step. The limits apply from 256 cells; below, they grow with the third
// power.
constexpr double kMassDrift = 1e-12, kEnergyDrift = 1e-6, kEnstrophyDrift = 1e-9;
constexpr int kResolved = 256;

/// Rows of a doubly periodic sea, with a border of ghost cells, on an Arakawa C grid: p at the centre of a cell, u on
/// its western and v on its southern side.
class Sea {
 public:
  struct State {
    std::vector<double> p, u, v;
  };

  Sea(int cells, int first, int rows) : cells_(cells), first_(first), rows_(rows) {
    const std::size_t n = stride() * static_cast<std::size_t>(rows + 2);
    for (State* s : {&now_, &old_, &next_})
      for (std::vector<double>* f : {&s->p, &s->u, &s->v}) f->assign(n, 0.0);
    for (std::vector<double>* f : {&cu_, &cv_, &z_, &h_}) f->assign(n, 0.0);
  }

  /// Vortices in balance with their pressure, and a gravity wave that crosses them.
  void begin() {
    const double scale = 2 * pi / cells_;
    const auto stream = [&](int i, int j) {  // at the south-west corner of a cell
      return kSpeed * kCell_m / scale * std::sin(scale * i) * std::sin(scale * j);
    };
    for (int j = 1; j <= rows_; ++j)
      for (int i = 1; i <= cells_; ++i) {
        const int x = i - 1, y = first_ + j - 1;
        now_.u[at(i, j)] = -(stream(x, y + 1) - stream(x, y)) / kCell_m;
        now_.v[at(i, j)] = (stream(x + 1, y) - stream(x, y)) / kCell_m;
        now_.p[at(i, j)] = kLevel +
                           kSpeed * kSpeed / 4 * (std::cos(2 * scale * (x + 0.5)) + std::cos(2 * scale * (y + 0.5))) +
                           kWave * kLevel * std::cos(3 * scale * (x + 0.5)) * std::cos(2 * scale * (y + 0.5));
      }
    old_ = now_;
    started_ = false;
  }

  /// One step: a forward step first, leapfrog steps afterwards. Pre: the ghost cells of `now` are filled.
  void step() {
    const double dt = started_ ? 2 * kStep_s : kStep_s, over = 1 / kCell_m;
    const std::size_t s = stride();
    for (int j = 0; j <= rows_ + 1; ++j) {
      const std::size_t row = at(0, j), below = j == 0 ? row : row - s, above = j > rows_ ? row : row + s;
      const double *const p = now_.p.data() + row, *const u = now_.u.data() + row, *const v = now_.v.data() + row;
      const double *const pb = now_.p.data() + below, *const ub = now_.u.data() + below;
      const double* const va = now_.v.data() + above;
      double *const cu = cu_.data() + row, *const cv = cv_.data() + row, *const z = z_.data() + row,
                    *const h = h_.data() + row;
      // In the ghost rows, only the values next to own rows are read.
#pragma omp simd
      for (std::ptrdiff_t i = 1; i <= cells_ + 1; ++i) {
        cu[i] = 0.5 * (p[i] + p[i - 1]) * u[i];
        z[i] = 4 * over * (v[i] - v[i - 1] - u[i] + ub[i]) / (p[i] + p[i - 1] + pb[i] + pb[i - 1]);
      }
#pragma omp simd
      for (std::ptrdiff_t i = 0; i <= cells_; ++i) {
        cv[i] = 0.5 * (p[i] + pb[i]) * v[i];
        h[i] = p[i] + 0.25 * (u[i] * u[i] + u[i + 1] * u[i + 1] + v[i] * v[i] + va[i] * va[i]);
      }
    }
    for (int j = 1; j <= rows_; ++j) {
      const std::size_t row = at(0, j);
      const double *const cu = cu_.data() + row, *const cv = cv_.data() + row, *const z = z_.data() + row,
                          *const h = h_.data() + row;
      const double *const cub = cu - s, *const cva = cv + s, *const za = z + s, *const hb = h - s;
      const double *const po = old_.p.data() + row, *const uo = old_.u.data() + row, *const vo = old_.v.data() + row;
      double *const pn = next_.p.data() + row, *const un = next_.u.data() + row, *const vn = next_.v.data() + row;
#pragma omp simd
      for (std::ptrdiff_t i = 1; i <= cells_; ++i) {
        un[i] = uo[i] +
                dt * (0.125 * (z[i] + za[i]) * (cv[i] + cv[i - 1] + cva[i] + cva[i - 1]) - over * (h[i] - h[i - 1]));
        vn[i] = vo[i] -
                dt * (0.125 * (z[i] + z[i + 1]) * (cu[i] + cu[i + 1] + cub[i] + cub[i + 1]) + over * (h[i] - hb[i]));
        pn[i] = po[i] - dt * over * (cu[i + 1] - cu[i] + cva[i] - cv[i]);
      }
    }
    std::swap(old_, now_);
    std::swap(now_, next_);
    started_ = true;
  }

  /// Periodic boundary from west to east, in all rows.
  void wrap_east() {
    for (std::vector<double>* f : {&now_.p, &now_.u, &now_.v})
      for (int j = 0; j <= rows_ + 1; ++j) {
        (*f)[at(0, j)] = (*f)[at(cells_, j)];
        (*f)[at(cells_ + 1, j)] = (*f)[at(1, j)];
      }
  }
  /// Periodic boundary from south to north, if one rank has all rows.
  void wrap_north() {
    for (std::vector<double>* f : {&now_.p, &now_.u, &now_.v})
      for (int i = 1; i <= cells_; ++i) {
        (*f)[at(i, 0)] = (*f)[at(i, rows_)];
        (*f)[at(i, rows_ + 1)] = (*f)[at(i, 1)];
      }
  }

  /// Mass, energy and potential enstrophy of these rows. Energy is relative to a level sea at rest. Pre: the ghost
  /// cells are filled.
  std::vector<double> invariants() const {
    double mass = 0, energy = 0, enstrophy = 0;
    for (int j = 1; j <= rows_; ++j)
      for (int i = 1; i <= cells_; ++i) {
        const auto& [p, u, v] = now_;
        const std::size_t c = at(i, j), e = at(i + 1, j), n = at(i, j + 1), w = at(i - 1, j), s = at(i, j - 1);
        const double around = 0.25 * (p[c] + p[w] + p[s] + p[s - 1]);
        const double vorticity = (v[c] - v[w] - u[c] + u[s]) / kCell_m;
        mass += p[c];
        energy += 0.25 * p[c] * (u[c] * u[c] + u[e] * u[e] + v[c] * v[c] + v[n] * v[n]) +
                  0.5 * (p[c] - kLevel) * (p[c] - kLevel);
        enstrophy += vorticity * vorticity / around;
      }
    return {mass, energy, enstrophy};
  }

  /// A hash of all bits and their positions. The hash of the whole sea is the sum over ranks.
  std::uint64_t digest() const {
    std::uint64_t sum = 0;
    for (const std::vector<double>* f : {&now_.p, &now_.u, &now_.v})
      for (int j = 1; j <= rows_; ++j)
        for (int i = 1; i <= cells_; ++i) {
          const auto place = static_cast<std::uint64_t>(first_ + j) * static_cast<std::uint64_t>(cells_ + 1) +
                             static_cast<std::uint64_t>(i);
          sum += word_of((*f)[at(i, j)]) * (2 * place + 1);
        }
    return sum;
  }

  std::size_t at(int i, int j) const { return static_cast<std::size_t>(j) * stride() + static_cast<std::size_t>(i); }
  int rows() const { return rows_; }
  State& now() { return now_; }

 private:
  std::size_t stride() const { return static_cast<std::size_t>(cells_) + 2; }
  int cells_, first_, rows_;
  bool started_ = false;
  State now_, old_, next_;
  std::vector<double> cu_, cv_, z_, h_;
};

class Swim : public Program {
 public:
  Swim(const HaloProtocol& protocol, int cells, int steps)
      : protocol_(protocol),
        grid_(Grid::make(1)),
        cells_(cells),
        steps_(steps),
        sea_(cells, first(0), first(1) - first(0)) {
    if (World::get().size() > 1) halo_rows_ = protocol.make(grid_, words());
    static std::map<std::pair<int, int>, std::uint64_t> known;
    const auto [entry, fresh] = known.try_emplace({cells, steps}, 0);
    if (fresh) entry->second = alone();
    digest_ = entry->second;
  }

  json conditions() const override {
    return {{"paradigm", protocol_.paradigm}, {"protocol", protocol_.name}, {"cells", cells_}, {"steps", steps_},
            {"grid", grid_.name()},           {"halo_words", words()}};
  }
  double steps() const override { return steps_; }

  void run() override {
    for (int n = 0; n < steps_; ++n) {
      if (halo_rows_)
        halo_([&] { exchange(); });
      else
        sea_.wrap_north();
      sea_.wrap_east();
      sea_.step();
    }
    ++runs_;
  }

  void add_checks(Case& c) override {
    c.fill = [this](std::uint32_t, bool) {
      sea_.begin();
      runs_ = 0;
      fill_ghosts();
      before_ = total();
    };
    c.verify = [this] {
      fill_ghosts();
      const std::vector<double> after = total();
      constexpr const char* kNames[] = {"mass", "energy", "potential enstrophy"};
      const double coarser = std::pow(std::max(1.0, static_cast<double>(kResolved) / cells_), 3);
      const double limits[] = {kMassDrift, kEnergyDrift * coarser, kEnstrophyDrift * coarser};
      for (std::size_t i = 0; i < after.size(); ++i) {
        drift_[i] = std::fabs(after[i] / before_[i] - 1);
        char text[160];
        const double limit = limits[i] * static_cast<double>(runs_);
        std::snprintf(text, sizeof text, "wrong: relative change of %s is %.3g, maximum %.3g", kNames[i], drift_[i],
                      limit);
        if (!(drift_[i] <= limit)) return std::string(text);
      }
      if (runs_ > 1) return std::string();
      std::uint64_t digest = sea_.digest();
      check(MPI_Allreduce(MPI_IN_PLACE, &digest, 1, MPI_UINT64_T, MPI_SUM, World::get().all()), "MPI_Allreduce");
      return digest == digest_ ? std::string()
                               : std::string("wrong: the fields differ from those computed by a single rank");
    };
    c.observe = [this] {
      return json{{"mass_drift", drift_[0]}, {"energy_drift", drift_[1]}, {"enstrophy_drift", drift_[2]}};
    };
  }

  std::vector<Part> parts() override {
    const auto own = [this](std::size_t bytes) { return halo_alone(protocol_, grid_, {0}, bytes); };
    std::vector<Part> all;
    all.push_back(
        {"halo", "halo_time", &halo_, words() * 8, halo_rows_ ? std::function<Case(std::size_t)>(own) : nullptr});
    return all;
  }

 private:
  std::size_t words() const { return 3 * static_cast<std::size_t>(cells_); }
  int first(int next) const {
    const World& world = World::get();
    return first_cell(cells_, world.size(), world.rank() + next);
  }

  /// Exchanges rows of p, u and v, in this order, with south and north.
  void exchange() {
    Sea::State& now = sea_.now();
    std::vector<double>* const fields[] = {&now.p, &now.u, &now.v};
    const auto n = static_cast<std::size_t>(cells_);
    for (const int side : {0, 1}) {
      const Row row = halo_rows_->out(side);
      for (std::size_t f = 0; f < 3; ++f) {
        const double* const from = fields[f]->data() + sea_.at(1, side == 0 ? 1 : sea_.rows());
        for (std::size_t i = 0; i < n; ++i) row[f * n + i] = word_of(from[i]);
      }
    }
    halo_rows_->exchange();
    for (const int side : {0, 1}) {
      const Row row = halo_rows_->in(side);
      for (std::size_t f = 0; f < 3; ++f) {
        double* const to = fields[f]->data() + sea_.at(1, side == 0 ? 0 : sea_.rows() + 1);
        for (std::size_t i = 0; i < n; ++i) to[i] = number_of(row[f * n + i]);
      }
    }
  }
  void fill_ghosts() {
    if (halo_rows_)
      exchange();
    else
      sea_.wrap_north();
    sea_.wrap_east();
  }

  /// The invariants of the whole sea.
  std::vector<double> total() const {
    std::vector<double> all = sea_.invariants();
    check(
        MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_DOUBLE, MPI_SUM, World::get().all()),
        "MPI_Allreduce");
    return all;
  }

  /// The hash of a run without messages, computed by rank 0.
  std::uint64_t alone() const {
    World& world = World::get();
    std::uint64_t found = 0;
    if (world.rank() == 0) {
      Sea whole(cells_, 0, cells_);
      whole.begin();
      for (int n = 0; n < steps_; ++n) {
        whole.wrap_north();
        whole.wrap_east();
        whole.step();
      }
      found = whole.digest();
    }
    check(MPI_Bcast(&found, 1, MPI_UINT64_T, 0, world.all()), "MPI_Bcast");
    return found;
  }

  const HaloProtocol protocol_;
  const Grid grid_;
  const int cells_, steps_;
  Sea sea_;
  std::unique_ptr<Halo> halo_rows_;
  Channel halo_;
  std::uint64_t digest_ = 0, runs_ = 0;
  std::vector<double> before_;
  double drift_[3] = {0, 0, 0};
};

const Description& swim_description() {
  static const Description d{
      .name = "swim",
      .summary = "shallow water on a grid divided by rows: time of a step, and of its halo exchange",
      .detail =
          "Sadourny's potential-enstrophy-conserving scheme on a doubly periodic grid of cells x cells, with leapfrog "
          "steps of 30 s and no time filter. Before every step a row of three fields is exchanged with both "
          "neighbours. Every run starts anew. Mass must be conserved to roundoff, energy (above a level sea at rest) "
          "to 1e-6, potential enstrophy to 1e-9 (more with fewer than 256 cells), and all bits must equal those of a "
          "run on one rank.\n"
          "example: mpirun -n 4 meshmark-comm swim --cells 512 --protocol mpi",
      .source =
          "Sadourny, The dynamics of finite-difference models of the shallow-water equations, J. Atmos. Sci. 32 "
          "(1975)",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library"},
      .parameters = {{"cells", "rows, and cells per row", "", Kind::integers, "256", 16, 16384},
                     {"steps", "steps per timed run", "", Kind::integer, "50", 1, 10000},
                     {"protocol",
                      "halo protocols: all, those of a paradigm (mpi, shmem, caf), or names",
                      "",
                      Kind::choices,
                      "irecv_isend,persistent_irecv_isend,neighbour,shared,shmem_put,caf_sync",
                      {},
                      {},
                      halo_choices()}},
      .metrics =
          [] {
            std::vector<Metric> all = {
                {"step_time", "time of a step, on the slowest rank", "s", Better::lower},
                {"halo_time", "time per step in the halo exchange, packing included, mean over ranks", "s",
                 Better::lower}};
            for (const Metric& m : compute_metrics()) all.push_back(m);
            return all;
          }(),
      .identity = {"paradigm", "protocol", "cells", "steps", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

void measure_swim(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const std::vector<HaloProtocol> chosen = requested_halos(run, "step_time");
  const auto sizes = run.integers("cells", 256);
  const int steps = static_cast<int>(run.integer("steps"));
  for (const int cells : sizes)
    if (world.size() > cells)
      throw UsageError("ranks", "found " + std::to_string(world.size()),
                       "at most one per row, here " + std::to_string(cells));
  Batch batch(run, sizes.size());
  for (const int cells : sizes) {
    const double bytes = 8.0 * 13 * (cells + 2.0) * (static_cast<double>(cells) / world.size() + 3);
    for (const HaloProtocol& p : chosen)
      batch.add(planned_case("step_time", p, {{"cells", cells}, {"steps", steps}}), bytes,
                [&] { return program_case(make_swim(p, cells, steps)); });
    batch.done();
  }
}

const Instrument swim{swim_description(), measure_swim};

}  // namespace

std::shared_ptr<Program> make_swim(const HaloProtocol& protocol, int cells, int steps) {
  return std::make_shared<Swim>(protocol, cells, steps);
}

}  // namespace mm::mpi

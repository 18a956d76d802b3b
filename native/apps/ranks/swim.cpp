/// swim: shallow water on a staggered grid whose rows are divided over ranks, with one halo exchange per step.
#include <algorithm>
#include <map>

#include "apps/models/sea.hpp"
#include "apps/ranks/apps.hpp"
#include "base/error.hpp"
#include "kernels/isa.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace {

using workloads::Sea;

class Swim : public MiniApplication {
 public:
  Swim(const HaloProtocol& protocol, int cells, int steps)
      : protocol_(protocol),
        grid_(RankGrid::make(1)),
        cells_(cells),
        steps_(steps),
        sea_(cells, first(0), first(1) - first(0)) {
    if (World::get().size() > 1) halo_rows_ = protocol.make(grid_, words());
    static std::map<std::pair<int, int>, std::uint64_t> digests;
    const auto [entry, fresh] = digests.try_emplace({cells, steps}, 0);
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
      if (halo_rows_) {
        halo_([&] { exchange(); });
        wrap_ghosts();
      }
      sea_.step(south(), north(), isa_);
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
      drift_ = workloads::sea_drifts(before_, total());
      const std::string violation = workloads::sea_violation(drift_, cells_, static_cast<double>(runs_));
      if (!violation.empty()) return "wrong: " + violation;
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

  std::vector<CommunicationPart> parts() override {
    const auto alone_case = [this](std::size_t bytes) { return halo_alone(protocol_, grid_, {0}, bytes); };
    std::vector<CommunicationPart> result;
    result.push_back({"halo", "halo_time", &halo_, words() * 8,
                      halo_rows_ ? std::function<Case(std::size_t)>(alone_case) : nullptr});
    return result;
  }

 private:
  std::size_t words() const { return 3 * static_cast<std::size_t>(cells_); }
  int first(int next) const {
    const World& world = World::get();
    return first_cell(cells_, world.size(), world.rank() + next);
  }

  /// Exchanges rows of p, u and v, in this order, with south and north.
  void exchange() {
    const auto n = static_cast<std::size_t>(cells_);
    for (const int side : {0, 1}) {
      const Row row = halo_rows_->out(side);
      const Sea::Row sea_row = sea_.row(side == 0 ? 1 : sea_.rows());
      const double* const fields[] = {sea_row.p + 1, sea_row.u + 1, sea_row.v + 1};
      for (std::size_t f = 0; f < 3; ++f)
        for (std::size_t i = 0; i < n; ++i) row[f * n + i] = word_of(fields[f][i]);
    }
    halo_rows_->exchange();
    for (const int side : {0, 1}) {
      const Row row = halo_rows_->in(side);
      const auto ghosts = sea_.ghost(side == 0 ? 0 : sea_.rows() + 1);
      for (std::size_t f = 0; f < 3; ++f)
        for (std::size_t i = 0; i < n; ++i) ghosts[f][i] = number_of(row[f * n + i]);
    }
  }
  void wrap_ghosts() {
    sea_.wrap(0);
    sea_.wrap(sea_.rows() + 1);
  }
  void fill_ghosts() {
    if (!halo_rows_) return;
    exchange();
    wrap_ghosts();
  }
  // A rank that has all rows is its own neighbour.
  Sea::Row south() const { return sea_.row(halo_rows_ ? 0 : sea_.rows()); }
  Sea::Row north() const { return sea_.row(halo_rows_ ? sea_.rows() + 1 : 1); }

  /// Returns the invariants of the whole sea.
  Sea::Invariants total() const {
    Sea::Invariants invariants = sea_.invariants(south(), north());
    check(MPI_Allreduce(MPI_IN_PLACE, invariants.data(), static_cast<int>(invariants.size()), MPI_DOUBLE, MPI_SUM,
                        World::get().all()),
          "MPI_Allreduce");
    return invariants;
  }

  /// Returns the hash of a run without messages, which rank 0 computes.
  std::uint64_t alone() const {
    World& world = World::get();
    std::uint64_t digest = world.rank() == 0 ? workloads::sea_digest(cells_, steps_) : 0;
    check(MPI_Bcast(&digest, 1, MPI_UINT64_T, 0, world.all()), "MPI_Bcast");
    return digest;
  }

  const HaloProtocol protocol_;
  const RankGrid grid_;
  const int cells_, steps_;
  Sea sea_;
  std::unique_ptr<Halo> halo_rows_;
  Channel halo_;
  std::uint64_t digest_ = 0, runs_ = 0;
  Sea::Invariants before_{}, drift_{};
  const std::string_view isa_ = best_isa();
};

const Description& swim_description() {
  static const Description d{
      .name = "swim",
      .summary = "shallow water on a grid divided by rows: time of a step, and of its halo exchange",
      .detail =
          "Sadourny's potential-enstrophy-conserving scheme on a doubly periodic grid of cells x cells, with leapfrog "
          "steps of 30 s and no time filter. Before every step a row of three fields is exchanged with both "
          "neighbours. Every run starts anew. Mass must be conserved to roundoff, energy (above a level sea at rest) "
          "to 1e-6, potential enstrophy to 1e-9 (more with fewer than 256 cells), and all bits must equal the bits of "
          "a "
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
                      "halo protocols: all, the protocols of a paradigm (mpi, shmem, caf), or names",
                      "",
                      Kind::choices,
                      "irecv_isend,persistent_irecv_isend,neighbour,shared,shmem_put,caf_sync",
                      {},
                      {},
                      halo_choices()}},
      .metrics =
          [] {
            std::vector<Metric> metrics = {
                {"step_time", "time of a step, on the slowest rank", "s", Better::lower},
                {"halo_time", "time per step in the halo exchange, packing included, mean over ranks", "s",
                 Better::lower}};
            for (const Metric& m : compute_metrics()) metrics.push_back(m);
            return metrics;
          }(),
      .identity = {"paradigm", "protocol", "cells", "steps", "ranks", "mpi"},
      .observed = {"mass_drift", "energy_drift", "enstrophy_drift"},
      .ranks = true,
  };
  return d;
}

void measure_swim(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const std::vector<HaloProtocol> protocols = requested_halos(run, "step_time");
  const auto sizes = run.integers("cells", 256);
  const int steps = static_cast<int>(run.integer("steps"));
  for (const int cells : sizes)
    if (world.size() > cells)
      throw UsageError("ranks", "found " + std::to_string(world.size()),
                       "at most one per row, here " + std::to_string(cells));
  CaseBatch batch(run, sizes.size());
  for (const int cells : sizes) {
    const double bytes = 8.0 * 6 * (cells + 9.0) * (static_cast<double>(cells) / world.size() + 3);
    for (const HaloProtocol& p : protocols)
      batch.add(planned_case("step_time", p, {{"cells", cells}, {"steps", steps}}), bytes,
                [&] { return program_case(make_swim(p, cells, steps)); });
    batch.done();
  }
}

const Instrument swim{swim_description(), measure_swim};

}  // namespace

std::shared_ptr<MiniApplication> make_swim(const HaloProtocol& protocol, int cells, int steps) {
  return std::make_shared<Swim>(protocol, cells, steps);
}

}  // namespace mm::mpi

#include "mpi/harness/measure.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "mpi/harness/progress.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {
namespace {

constexpr double kBlock_s = 0.5e-3;
constexpr std::uint64_t kMaxIterations = 1 << 20;
constexpr std::size_t kMaxSamples = 300;

// True once a block was timed. The value is the same on every rank.
bool any_block = false;

/// The measuring loop over cases that share a budget. All members are collective.
class CaseRounds {
 public:
  CaseRounds(Run& run, std::vector<Case> cases, double share, bool tied);
  std::vector<double> measure();

 private:
  CaseProgress begin(Case spec);
  void verify_all();
  bool verify(CaseProgress& p);
  void find_iterations(CaseProgress& p) const;
  void visit(CaseProgress& p);
  void finish_tied();

  Run& run_;
  const double percent_;  ///< requested width of the interval
  const double end_s_;    ///< end of this share of the budget, by rank 0's wall_s()
  const bool tied_;
  std::uint32_t tag_ = 0;
  std::vector<CaseProgress> all_;
};

CaseRounds::CaseRounds(Run& run, std::vector<Case> cases, double share, bool tied)
    : run_(run),
      percent_(run.real("interval_percent")),
      end_s_(World::get().broadcast(wall_s() + run.left_s() * share)),
      tied_(tied) {
  for (Case& c : cases) all_.push_back(begin(std::move(c)));
}

CaseProgress CaseRounds::begin(Case spec) {
  CaseProgress p;
  const auto [index, finished] = run_.next_point();
  p.index = index;
  p.resumed = p.done = World::get().broadcast(finished).get<bool>();
  any_block = any_block || p.resumed;
  p.spec = std::move(spec);
  if (p.spec.missing) {
    p.done = true;
    p.failure = *p.spec.missing;
  }
  return p;
}

/// Returns whether the case delivers correct data, after one iteration and after three.
bool CaseRounds::verify(CaseProgress& p) {
  World& world = World::get();
  for (const std::uint64_t iterations : {1u, 3u}) {
    if (p.spec.verify && iterations > 1) break;  // an application's run is long, and each run is verified
    ++tag_;
    if (p.spec.fill && p.spec.run) p.spec.fill(tag_, true);
    check(MPI_Barrier(world.all()), "MPI_Barrier");
    if (p.spec.run) p.spec.run(iterations);
    if (p.spec.passive) check(MPI_Barrier(world.all()), "MPI_Barrier");
    p.failure = find_defect(p.spec, tag_, true);
    if (!p.failure.empty() || p.spec.single) break;
  }
  return p.failure.empty();
}

void CaseRounds::find_iterations(CaseProgress& p) const {
  while (!p.spec.single) {
    const auto block_s = [&] {
      return time_block(p.spec, p.iterations).block.seconds * static_cast<double>(p.iterations);
    };
    double elapsed_s = block_s();
    if (elapsed_s >= kBlock_s)
      elapsed_s = std::min(elapsed_s, block_s());  // one disturbed block may only seem long enough
    if (elapsed_s >= 0.8 * kBlock_s || p.iterations >= kMaxIterations) break;
    const double factor = elapsed_s > 0 ? std::clamp(1.2 * kBlock_s / elapsed_s, 1.5, 10.0) : 10.0;
    p.iterations = std::min(kMaxIterations, static_cast<std::uint64_t>(static_cast<double>(p.iterations) * factor) + 1);
  }
}

/// No case is timed before its data are verified.
void CaseRounds::verify_all() {
  bool any_verified = false;
  for (CaseProgress& p : all_) {
    if (p.done) continue;
    if ((any_verified || any_block) && too_late(run_)) {
      p.finish_out_of_budget(run_, percent_);
    } else if (!verify(p)) {
      p.finish(run_, percent_);
    } else {
      any_verified = true;
      find_iterations(p);
    }
  }
}

void CaseRounds::visit(CaseProgress& p) {
  if (p.blocks.empty() && any_block && too_late(run_)) return p.finish_out_of_budget(run_, percent_);
  if (p.start.empty()) p.start = utc_now();
  ++tag_;
  if (p.spec.fill && p.spec.run) p.spec.fill(tag_, false);
  TimedBlock timed = time_block(p.spec, p.iterations);
  p.failure = find_defect(p.spec, tag_, false);
  if (!p.failure.empty()) {
    p.blocks.clear();
    return p.finish(run_, percent_);
  }
  if (p.spec.values) timed.block.extra = p.spec.values();
  p.spent_s += timed.block.seconds * static_cast<double>(p.iterations);
  p.blocks.push_back(std::move(timed.block));
  any_block = true;
  const bool last = p.blocks.size() >= kMaxSamples || timed.ended_s > end_s_;
  if (last || (!tied_ && p.enough(percent_))) p.finish(run_, percent_);
  run_.beat(p.spec.metric);
}

void CaseRounds::finish_tied() {
  if (!std::all_of(all_.begin(), all_.end(), [&](const CaseProgress& p) { return p.done || p.enough(percent_); }))
    return;
  for (CaseProgress& p : all_)
    if (!p.done) p.finish(run_, percent_);
}

std::vector<double> CaseRounds::measure() {
  for (CaseProgress& p : all_)
    if (p.spec.missing && !p.resumed) p.finish(run_, percent_);
  verify_all();
  std::mt19937_64 random(run_.seed());
  std::vector<std::size_t> order(all_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  while (std::any_of(all_.begin(), all_.end(), [](const CaseProgress& p) { return !p.done; })) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order)
      if (!all_[i].done) visit(all_[i]);
    if (tied_) finish_tied();
  }
  std::vector<double> medians;
  for (CaseProgress& p : all_) {
    if (p.resumed) p.restore(run_);
    medians.push_back(p.value);
  }
  return medians;
}

}  // namespace

bool any_block_timed() { return any_block; }

bool too_late(const Run& run) {
  // Before the first call, MPI_Init and the transport probe ran. On busy hosts these alone can outlast a short budget.
  static const double begun_s = wall_s();
  int late = wall_s() > std::max(run.last_call_s(), begun_s + run.budget_s() + 1);
  check(MPI_Bcast(&late, 1, MPI_INT, 0, World::get().all()), "MPI_Bcast");
  return late != 0;
}

std::vector<double> measure(Run& run, std::vector<Case> cases, double share, bool tied) {
  return CaseRounds(run, std::move(cases), share, tied).measure();
}

}  // namespace mm::mpi

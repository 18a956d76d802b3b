#include "place/mix/simulation.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "place/mix/queue.hpp"
#include "place/mix/rates.hpp"

namespace mm::place::mix {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDone = 1e-12;  // work that is left of a job that has ended, relative to its run time

class Simulation {
 public:
  Simulation(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs)
      : jobs_(jobs), rates_(machine, settings), queue_(machine, settings, jobs), outcomes_(jobs.size()) {}

  std::vector<JobOutcome> run() {
    std::vector<std::size_t> order(jobs_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return jobs_[a].submit_s < jobs_[b].submit_s; });
    auto next = order.begin();
    while (next != order.end() || !running_.empty()) {
      const double arrival_s = next != order.end() ? jobs_[*next].submit_s : kNever;
      const double end_s = next_end_s();
      advance_to(std::min(arrival_s, end_s));
      finish();
      for (; next != order.end() && jobs_[*next].submit_s <= now_s_; ++next) queue_.submit(*next);
      start();
      rates_.set(running_, jobs_, queue_.taken());
    }
    return std::move(outcomes_);
  }

 private:
  double next_end_s() const {
    double end_s = kNever;
    for (const RunningJob& r : running_) end_s = std::min(end_s, now_s_ + r.left_s / r.rate);
    return end_s;
  }

  void advance_to(double time_s) {
    for (RunningJob& r : running_) r.left_s -= (time_s - now_s_) * r.rate;
    now_s_ = time_s;
  }

  void finish() {
    std::erase_if(running_, [&](const RunningJob& r) {
      // Rounding may leave some work for which the clock cannot advance.
      if (r.left_s > kDone * jobs_[r.job].run_s && now_s_ + r.left_s / r.rate > now_s_) return false;
      outcomes_[r.job].end_s = now_s_;
      queue_.finish(r.job);
      return true;
    });
  }

  void start() {
    for (Decision& decision : queue_.start()) {
      JobOutcome& outcome = outcomes_[decision.job];
      outcome.refused = decision.refused;
      if (!outcome.refused.empty()) continue;
      outcome.start_s = now_s_;
      outcome.cpus = decision.placement.layout.cpus();
      outcome.oversubscribed = decision.placement.oversubscribed;
      RunningJob r;
      r.job = decision.job;
      r.left_s = jobs_[r.job].run_s;
      r.node_share = rates_.node_share(decision.placement);
      r.placement = std::move(decision.placement);
      running_.push_back(std::move(r));
    }
  }

  const std::vector<MixJob>& jobs_;
  const Rates rates_;
  JobQueue queue_;
  std::vector<JobOutcome> outcomes_;
  std::vector<RunningJob> running_;
  double now_s_ = 0;
};

}  // namespace

std::vector<JobOutcome> simulate(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs) {
  return Simulation(machine, settings, jobs).run();
}

}  // namespace mm::place::mix

#include "place/mix/simulation.hpp"

#include <algorithm>
#include <limits>
#include <list>
#include <numeric>
#include <set>

#include "place/mix/rates.hpp"
#include "place/policy/policy.hpp"

namespace mm::place::mix {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kDone = 1e-12;  // work that is left of a job that has ended, relative to its run time

class Simulation {
 public:
  Simulation(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs)
      : machine_(machine), settings_(settings), jobs_(jobs), rates_(machine, settings), outcomes_(jobs.size()) {}

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
      for (; next != order.end() && jobs_[*next].submit_s <= now_s_; ++next) submit(*next);
      start();
      rates_.set(running_, jobs_, taken_);
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
      used_slots_ -= jobs_[r.job].slots;
      for (const int cpu : r.placement.layout.cpus()) {
        if (--taken_.jobs.at(cpu) == 0) taken_.jobs.erase(cpu);
        taken_.exclusive.erase(cpu);
      }
      return true;
    });
  }

  void submit(std::size_t job) {
    const auto size = static_cast<std::size_t>(jobs_[job].slots);
    const std::size_t limit =
        settings_.max_slots ? std::min<std::size_t>(rates_.slots(), static_cast<std::size_t>(*settings_.max_slots))
                            : rates_.slots();
    if (size > limit)
      outcomes_[job].refused = "it needs " + std::to_string(size) + " slots of " + std::to_string(limit);
    else
      waiting_.push_back(job);
  }

  void start() {
    std::set<int> too_large;  // numbers of slots for which there is no room now
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const int size = jobs_[*at].slots;
      if (!too_large.contains(size) && try_start(*at)) {
        at = waiting_.erase(at);
        continue;
      }
      if (settings_.discipline == Discipline::fcfs || rates_.slots() == too_large.size()) return;
      too_large.insert(size);
      ++at;
    }
  }

  bool try_start(std::size_t job) {
    const int slots = jobs_[job].slots;
    if (settings_.max_slots && used_slots_ + slots > *settings_.max_slots) return false;
    Request request = settings_.request;
    request.slots = slots;
    JobOutcome& outcome = outcomes_[job];
    RunningJob r;
    try {
      r.placement = place(machine_, request, taken_);
    } catch (const Busy&) {
      return false;
    } catch (const UsageError& error) {
      if (error.field != "slots") throw;
      outcome.refused = error.what();  // of a policy that cannot place so many slots on this machine at all
      return true;
    }
    r.job = job;
    r.left_s = jobs_[job].run_s;
    r.node_share = rates_.node_share(r.placement);
    occupy(taken_, r.placement, request.exclude);
    used_slots_ += slots;
    outcome.start_s = now_s_;
    outcome.cpus = r.placement.layout.cpus();
    outcome.oversubscribed = r.placement.oversubscribed;
    running_.push_back(std::move(r));
    return true;
  }

  const Machine& machine_;
  const Settings& settings_;
  const std::vector<MixJob>& jobs_;
  const Rates rates_;
  std::vector<JobOutcome> outcomes_;
  std::vector<RunningJob> running_;
  std::list<std::size_t> waiting_;
  Occupancy taken_;
  int used_slots_ = 0;
  double now_s_ = 0;
};

}  // namespace

std::vector<JobOutcome> simulate(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs) {
  return Simulation(machine, settings, jobs).run();
}

}  // namespace mm::place::mix

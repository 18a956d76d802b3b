#include "place/mix/queue.hpp"

#include <algorithm>
#include <set>

#include "place/policy/policy.hpp"
#include "place/policy/view.hpp"

namespace mm::place::mix {

JobQueue::JobQueue(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs)
    : machine_(machine), settings_(settings), jobs_(jobs), cpus_(jobs.size()) {
  slots_ = slots_of(machine, settings.request.kind, policy::allowed_to(machine, settings.request)).size();
}

std::vector<Decision> JobQueue::start() {
  std::vector<Decision> decisions;
  std::set<int> too_large;  // numbers of slots for which there is no room now
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const int size = jobs_[*at].slots;
    if (!too_large.contains(size) && try_start(*at, decisions) == Attempt::left) {
      at = waiting_.erase(at);
      continue;
    }
    if (settings_.discipline == Discipline::fcfs) break;
    too_large.insert(size);
    ++at;
  }
  return decisions;
}

JobQueue::Attempt JobQueue::try_start(std::size_t job, std::vector<Decision>& decisions) {
  const int size = jobs_[job].slots;
  std::size_t limit = slots_;
  if (settings_.max_slots) limit = std::min(limit, static_cast<std::size_t>(*settings_.max_slots));
  if (static_cast<std::size_t>(size) > limit) {
    const std::string reason = "it needs " + std::to_string(size) + " slots of " + std::to_string(limit);
    decisions.push_back({job, {}, reason});
    return Attempt::left;
  }
  if (settings_.max_slots && used_slots_ + size > *settings_.max_slots) return Attempt::waits;
  Request request = settings_.request;
  request.slots = size;
  Decision decision{job, {}, {}};
  try {
    decision.placement = place(machine_, request, taken_);
  } catch (const Busy&) {
    return Attempt::waits;
  } catch (const UsageError& error) {
    if (error.field != "slots") throw;
    decision.refused = error.what();  // the policy cannot place so many slots on this machine at all
  }
  if (decision.refused.empty()) {
    occupy(taken_, decision.placement, request.exclude);
    cpus_[job] = decision.placement.layout.cpus();
    used_slots_ += size;
  }
  decisions.push_back(std::move(decision));
  return Attempt::left;
}

void JobQueue::finish(std::size_t job) {
  used_slots_ -= jobs_[job].slots;
  for (const int cpu : cpus_[job]) {
    if (--taken_.jobs.at(cpu) == 0) taken_.jobs.erase(cpu);
    taken_.exclusive.erase(cpu);
  }
  cpus_[job].clear();
}

}  // namespace mm::place::mix

#include "mpi/harness/batch.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {

void CaseBatch::add(Case plan, double bytes, const std::function<Case()>& make) {
  World& world = World::get();
  double available = static_cast<double>(world.available_bytes());
  if (bytes > available / 2 && !held_.empty()) {
    measure_held(0.5 / static_cast<double>(rounds_));
    available = static_cast<double>(world.available_bytes());
  }
  try {
    const bool any =
        any_block_timed() || std::any_of(held_.begin(), held_.end(), [](const Case& c) { return !c.missing; });
    if (any && too_late(run_)) throw run_.out_of_budget();
    if (bytes > available)
      throw Absent("needs " + std::to_string(static_cast<long long>(bytes) >> 20) +
                       " MiB on each rank, available are " + std::to_string(static_cast<long long>(available) >> 20),
                   "smaller messages, fewer ranks per host, or more memory");
    plan = world.all_or_none(make);
  } catch (const Absent& error) {
    const bool first = reported_.insert(plan.conditions.value("protocol", "") + error.what()).second;
    plan.missing = first ? error.what() : "";
    plan.enable = error.enable;
  }
  held_.push_back(std::move(plan));
}

void CaseBatch::measure_held(double share) {
  if (!std::exchange(begun_, true)) flags_->clear();
  for (Case& c : held_)
    if (!c.flags) c.flags = flags_;
  const auto medians = measure(run_, std::exchange(held_, {}), share);
  medians_.insert(medians_.end(), medians.begin(), medians.end());
}

std::vector<double> CaseBatch::done() {
  measure_held(1.0 / static_cast<double>(rounds_));
  rounds_ -= rounds_ > 1 ? 1 : 0;
  begun_ = false;
  return std::exchange(medians_, {});
}

}  // namespace mm::mpi

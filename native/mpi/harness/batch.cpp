#include "mpi/harness/batch.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {

void Batch::add(Case what, double bytes, const std::function<Case()>& make) {
  World& world = World::get();
  double room = static_cast<double>(world.room());
  if (bytes > room / 2 && !held_.empty()) {
    measure_held(0.5 / static_cast<double>(rounds_));
    room = static_cast<double>(world.room());
  }
  try {
    const bool any =
        any_block_timed() || std::any_of(held_.begin(), held_.end(), [](const Case& c) { return !c.missing; });
    if (any && too_late(run_)) throw run_.out_of_budget();
    if (bytes > room)
      throw Absent("it needs " + std::to_string(static_cast<long long>(bytes) >> 20) + " MiB on each rank, " +
                       std::to_string(static_cast<long long>(room) >> 20) + " may be used",
                   "smaller messages, fewer ranks on a host, or more memory");
    what = world.all_or_none(make);
  } catch (const Absent& why) {
    const bool first = said_.insert(what.conditions.value("protocol", "") + why.what()).second;
    what.missing = first ? why.what() : "";
    what.enable = why.enable;
  }
  held_.push_back(std::move(what));
}

void Batch::measure_held(double share) {
  if (!std::exchange(begun_, true)) flags_->clear();
  for (Case& c : held_)
    if (!c.flags) c.flags = flags_;
  const auto medians = measure(run_, std::exchange(held_, {}), share);
  medians_.insert(medians_.end(), medians.begin(), medians.end());
}

std::vector<double> Batch::done() {
  measure_held(1.0 / static_cast<double>(rounds_));
  rounds_ -= rounds_ > 1 ? 1 : 0;
  begun_ = false;
  return std::exchange(medians_, {});
}

}  // namespace mm::mpi

#include "model/results.hpp"

#include <algorithm>

namespace mm::model {

Results::Results(const Trial& trial, int line_bytes) : trial_(trial), line_bytes_(line_bytes) {
  int groups = 1;
  for (const Actor& a : trial.actors) groups = std::max(groups, a.group + 1);
  groups_.resize(static_cast<std::size_t>(groups));
  for (GroupResult& r : groups_) {
    const auto n = static_cast<std::size_t>(trial.batches);
    for (auto* list : {&r.latency_ps, &r.reads, &r.bytes, &r.phase_ps, &r.phases}) list->assign(n, 0);
  }
}

void Results::phase_ended(const Actor& actor, std::uint64_t ended, Time from, Time now) {
  if (from < trial_.warm) return;
  GroupResult& group = groups_[static_cast<std::size_t>(actor.group)];
  const std::size_t batch = batch_of(actor, ended, now);
  group.phase_ps[batch] += static_cast<double>(now - from);
  group.phases[batch] += 1;
}

void Results::actor_ended(const Actor& actor, Time now) {
  GroupResult& group = groups_[static_cast<std::size_t>(actor.group)];
  group.ended = std::max(group.ended, now);
}

}  // namespace mm::model

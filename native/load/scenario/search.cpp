#include "load/scenario/search.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

namespace mm::load {
namespace {

constexpr double kSearchShare = 0.001;  // maximum share of time

}  // namespace

/// Returns the identifier of the most recently created process or thread; if it is unchanged, there are no new ones.
std::int64_t ProcessSearch::newest() {
  const std::string_view text = loadavg_.text();
  const std::size_t at = text.rfind(' ');
  return at == std::string_view::npos ? -1 : static_cast<std::int64_t>(leading_number(text.substr(at + 1)));
}

void ProcessSearch::run(const std::function<bool(pid_t)>& known, const std::function<bool(pid_t, pid_t)>& adopt) {
  const std::int64_t newest_id = newest();
  if (newest_id == newest_ && newest_id >= 0) {
    last_s_ = clock_.now();
    return;
  }
  if (clock_.now() < next_s_) return;
  const double before_s = own_cpu_s(), at_s = clock_.now();
  newest_ = newest_id;
  std::map<pid_t, pid_t> parents;
  std::set<pid_t> present;
  for (const pid_t pid : numbers_in("/proc")) {
    present.insert(pid);
    if (foreign_.contains(pid) || pid == ::getpid() || known(pid)) continue;
    if (const auto stat = process_stat(pid)) parents[pid] = stat->parent;
  }
  // A child's identifier may be smaller than its parent's after identifiers wrap.
  while (std::erase_if(parents, [&](const auto& child) { return adopt(child.first, child.second); }) > 0) {}
  for (const auto& [pid, parent] : parents) foreign_.insert(pid);
  std::erase_if(foreign_, [&](pid_t pid) { return !present.contains(pid); });
  last_s_ = at_s;
  next_s_ = at_s + std::min((own_cpu_s() - before_s) / kSearchShare, 1.0);
}

}  // namespace mm::load

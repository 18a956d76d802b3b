#pragma once
/// Finds processes that programs started since the last search.
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>

#include "load/scenario/run_clock.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {

class ProcessSearch {
 public:
  explicit ProcessSearch(const RunClock& clock) : clock_(clock) {}

  /// Offers each process that is not `known`, with its parent, to `adopt`, until no more are adopted; the rest are not
  /// offered again. Does nothing if no process can be new, or if the last search was too recent for its cost.
  void run(const std::function<bool(pid_t)>& known, const std::function<bool(pid_t pid, pid_t parent)>& adopt);
  /// Start of the last search: a process that is found later is younger.
  double last_s() const { return last_s_; }

 private:
  std::int64_t newest();

  const RunClock& clock_;
  PolledFile loadavg_{"/proc/loadavg"};
  std::set<pid_t> foreign_;
  std::int64_t newest_ = -1;
  double last_s_ = 0, next_s_ = 0;
};

}  // namespace mm::load

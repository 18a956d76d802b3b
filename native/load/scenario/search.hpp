#pragma once
/// Finds processes that programs have started since the last search.
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

  /// Offers each process that is not `known` to `adopt`, with its parent, until none is adopted any more; those that
  /// never are, are not offered again. Does nothing where no process can be new, or the last search was too costly.
  void run(const std::function<bool(pid_t)>& known, const std::function<bool(pid_t pid, pid_t parent)>& adopt);
  /// When the last search began: a process that is found later is younger.
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

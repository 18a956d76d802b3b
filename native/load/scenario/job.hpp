#pragma once
/// A program of a plan while it runs: its process, its pipes and how it ended.
#include <sys/resource.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"
#include "load/scenario/spawn.hpp"

namespace mm::load {

enum class Phase { setting_up, ready, released, ended, failed };

/// What the threads of a job were seen to do.
struct JobUse {
  double waiting_s = 0, sleeping_s = 0, ran_s = 0;
  long long migrations = 0;
  std::size_t threads = 0, processes = 0;
  std::map<int, std::uint64_t> bytes;  ///< node → B, of its processes when last counted
};

struct Job {
  explicit Job(const Start& start_) : start(&start_) {}

  const Start* start;
  Child child;
  Phase phase = Phase::setting_up;
  double released_s = 0, ended_s = 0;
  double base_cpu_s = 0, base_system_s = 0;  ///< CPU time before its release
  int wait_status = 0;
  rusage use{};
  double orphans_user_s = 0, orphans_system_s = 0;  ///< of its processes that the runner reaped
  bool timed_out = false, killed = false;

  bool waits() const { return phase == Phase::setting_up || phase == Phase::ready; }
  /// Reads once from its status pipe. `status_text` then has what it reported. False: nothing more is to be had now.
  bool read_status();
  /// Reads once from its standard output, and calls `take` with each whole line.
  void read_lines(const std::function<void(std::string_view)>& take);
  /// The same for all that is in the pipe.
  void drain(const std::function<void(std::string_view)>& take);
  void close_pipes();
  /// Writes its gate open; false where it has died.
  bool open_gate();
  /// Sets what it used before its release.
  void set_base();
  /// The line about it at the end of a run.
  json total(const JobUse& seen) const;

  std::string status_text;

 private:
  std::string unfinished_line_;
};

/// "ended with status 1", "was ended by signal 9", from what waitpid reports.
std::string ending(int wait_status);

/// All jobs of a run, and whose a process is.
struct Jobs {
  std::vector<Job> all;
  std::map<pid_t, std::size_t> by_pid;
};

}  // namespace mm::load

#pragma once
/// A running program of a plan: its process, its pipes and how it ended.
#include <sys/resource.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "load/scenario/processes/spawn.hpp"

namespace mm::load {

enum class Phase { setting_up, ready, released, ended, failed };

/// Sampled resource use of a job's threads.
struct JobUse {
  double waiting_s = 0, sleeping_s = 0, ran_s = 0;
  long long migrations = 0;
  std::size_t threads = 0, processes = 0;
  std::map<int, std::uint64_t> bytes;  ///< node → B of its processes, at the last count
};

struct Job {
  explicit Job(const Start& start_) : start(&start_) {}

  const Start* start;
  Child child;
  Phase phase = Phase::setting_up;
  double started_s = 0, ready_s = 0, released_s = 0, ended_s = 0;
  double base_cpu_s = 0, base_system_s = 0;  ///< CPU time before its release
  int wait_status = 0;
  rusage use{};
  double orphans_user_s = 0, orphans_system_s = 0;  ///< CPU time of its descendants that the runner reaped
  bool timed_out = false, killed = false;

  bool waits() const { return phase == Phase::setting_up || phase == Phase::ready; }
  /// Reads once from the status pipe and appends to `status_text`. Returns false if nothing can be read for now.
  bool read_status();
  /// Reads once from standard output and calls `handle` with each complete line.
  void read_lines(const std::function<void(std::string_view)>& handle);
  /// Does the same for all pending output.
  void drain(const std::function<void(std::string_view)>& handle);
  void close_pipes();
  /// Opens its gate; returns false if the process has died.
  bool open_gate();
  bool is_runnable() const;  ///< whether its process runs or waits for a CPU
  /// Records the CPU time before its release.
  void set_base();
  /// Returns its line at the end of a run.
  json total(const JobUse& seen_use) const;

  std::string status_text;

 private:
  std::string unfinished_line_;
};

/// Returns "ended with status 1" or "was ended by signal 9", from a status of waitpid.
std::string ending(int wait_status);

/// All jobs of a run, and the job of each process.
struct Jobs {
  std::vector<Job> all;
  std::map<pid_t, std::size_t> by_pid;
};

}  // namespace mm::load

#pragma once
/// All processes of a run and their threads: samples them and sums their resource use.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "load/scenario/job.hpp"
#include "load/scenario/journal.hpp"
#include "load/scenario/processes/pages.hpp"
#include "load/scenario/processes/threads.hpp"
#include "load/scenario/run_clock.hpp"
#include "load/scenario/search.hpp"

namespace mm::load {

struct Process {
  std::size_t job = 0;
  std::vector<Thread> threads;
  bool ended = false;
  double sampled_s = 0;  ///< time of the last sample; threads that were absent then are younger
  double since_s = 0, next_pages_s = 0;
  std::map<int, std::uint64_t> bytes;  ///< node → B, at the last count
};

class Processes {
 public:
  Processes(const RunClock& clock, const Journal& journal, const Jobs& jobs);

  /// Makes the state of a job's threads the base of their use, before its release. Returns the time.
  double set_base(std::size_t job);
  /// Samples every thread, finds new ones, and writes changes.
  void sample();
  /// Samples a process that has ended but is not reaped: its first thread can still be read.
  void sample_last(pid_t pid, double at_s);
  /// Completes all processes, all of which have ended.
  void finish_all();

  std::optional<std::size_t> job_of(pid_t pid) const;
  JobUse use_of(std::size_t job) const;
  std::size_t samples() const { return samples_; }

 private:
  Process& add(pid_t pid, std::size_t job);
  void find_processes();
  void find_threads(pid_t pid, Process& process);
  void sample_process(pid_t pid, Process& process, SampleLine& line, double at_s);
  void count_pages(pid_t pid, Process& process, double at_s);
  void finish_ended(Process& process);

  const RunClock& clock_;
  const Journal& journal_;
  const Jobs& jobs_;
  ProcessSearch search_;
  PageCounter pages_;
  std::map<pid_t, Process> all_;
  std::vector<JobUse> uses_;  ///< by job; use of the threads that have ended
  std::size_t samples_ = 0, threads_ = 0;
};

}  // namespace mm::load

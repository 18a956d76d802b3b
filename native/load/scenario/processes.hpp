#pragma once
/// All processes of a run and their threads: looks at them at every sample and adds up what they did.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "load/scenario/job.hpp"
#include "load/scenario/journal.hpp"
#include "load/scenario/pages.hpp"
#include "load/scenario/run_clock.hpp"
#include "load/scenario/search.hpp"
#include "load/scenario/threads.hpp"

namespace mm::load {

struct Process {
  std::size_t job = 0;
  std::vector<Thread> threads;
  bool ended = false;
  double looked_s = 0;  ///< a thread that was not there then is younger
  double since_s = 0, next_pages_s = 0;
  std::map<int, std::uint64_t> bytes;  ///< node → B, when last counted
};

class Processes {
 public:
  Processes(const RunClock& clock, const Journal& journal, const Jobs& jobs);

  /// Before a job is released: its threads until now become the base of what they do from then on. Returns that time.
  double set_base(std::size_t job);
  /// Looks at every thread, finds new ones, and writes what changed.
  void sample();
  /// At a process that has ended and is not reaped yet: its first thread can be read to the end.
  void last_look(pid_t pid, double at_s);
  /// Everything has ended.
  void settle_all();

  std::optional<std::size_t> job_of(pid_t pid) const;
  JobUse use_of(std::size_t job) const;
  std::size_t samples() const { return samples_; }

 private:
  Process& enter(pid_t pid, std::size_t job);
  void find_processes();
  void find_threads(pid_t pid, Process& process);
  void sample_process(pid_t pid, Process& process, SampleLine& line, double at_s);
  void count_pages(pid_t pid, Process& process, double at_s);
  void settle_ended(Process& process);

  const RunClock& clock_;
  const Journal& journal_;
  const Jobs& jobs_;
  ProcessSearch search_;
  PageCounter pages_;
  std::map<pid_t, Process> all_;
  std::vector<JobUse> uses_;  ///< by job; of threads that have ended
  std::size_t samples_ = 0, threads_ = 0;
};

}  // namespace mm::load

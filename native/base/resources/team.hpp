#pragma once
/// A team of pinned threads that start work together.
#include <sys/resource.h>

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"

namespace mm {

/// Returns the CPUs that this process may use, ascending.
std::vector<int> allowed_cpus();
/// Binds the calling thread to one CPU and verifies it. Throws Failure if the Linux kernel refuses.
void pin(int cpu);

/// Binds the calling thread, and all threads that it creates later, to these CPUs.
void bind_process(const std::vector<int>& cpus);

/// Returns the number of page faults, including major faults, which read from a disk (swapped pages).
inline long faults_of(const rusage& use) { return use.ru_minflt + use.ru_majflt; }

/// One thread per entry of `cpus`; repeat a CPU only if oversubscription is intended.
class Team {
 public:
  explicit Team(std::vector<int> cpus);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  struct Span {
    Ticks begin, end;
    bool moved;             ///< the thread ended on a CPU other than the one it is pinned to
    long switched, faults;  ///< involuntary switches and page faults during the work
  };
  /// Runs `work(rank)` on all threads, which a barrier releases together, and returns when all threads are done.
  const std::vector<Span>& run(const std::function<void(int)>& work);
  const std::vector<Span>& last() const;  ///< spans of the last run
  /// Returns the time from the first begin to the last end of the last run, in s.
  double elapsed_s() const;

  const std::vector<int>& cpus() const { return cpus_; }
  int size() const { return static_cast<int>(cpus_.size()); }

  /// Sets the threads to real-time priority or back. Returns whether they now have real-time priority: the Linux kernel
  /// may not permit it, and threads that share a CPU never get it.
  bool real_time(bool on);

 private:
  struct State;
  std::vector<int> cpus_;
  std::unique_ptr<State> state_;
};

}  // namespace mm

#pragma once
/// A team of pinned threads that start work together.
#include <sys/resource.h>

#include <functional>
#include <memory>
#include <vector>

#include "clock.hpp"

namespace mm {

/// CPUs that this process may use, ascending.
std::vector<int> allowed_cpus();
/// Binds the calling thread to one CPU and verifies it. Throws Failure if the Linux kernel refuses.
void pin(int cpu);

/// Binds the calling thread, and all threads that it creates later, to these CPUs.
void bind_process(const std::vector<int>& cpus);

/// Page faults, those that read from a disk (swapped pages) included.
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
    bool moved;             ///< the thread ended on another CPU than its own
    long switched, faults;  ///< involuntary switches and page faults during the work
  };
  /// Runs `work(rank)` on every thread, released together by a barrier; returns when all are done.
  const std::vector<Span>& run(const std::function<void(int)>& work);
  const std::vector<Span>& last() const;  ///< of the last run
  /// From the first begin to the last end of the last run, in s.
  double elapsed_s() const;

  const std::vector<int>& cpus() const { return cpus_; }
  int size() const { return static_cast<int>(cpus_.size()); }

  /// Sets the threads to real-time priority (true if the Linux kernel permits it) or back. Never with fewer CPUs than
  /// threads.
  bool real_time(bool on);

 private:
  struct State;
  std::vector<int> cpus_;
  std::unique_ptr<State> state_;
};

}  // namespace mm

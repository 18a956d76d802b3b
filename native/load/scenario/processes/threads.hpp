#pragma once
/// State of a thread as the operating system reports it, and its total use of CPUs.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "load/scenario/run_clock.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {

/// Returns the time on a CPU and the waiting time, ns, from the text of a schedstat; nullopt if it is invalid.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_schedstat(std::string_view text);
/// Returns se.nr_migrations from the text of /proc/PID/task/TID/sched; -1 if it is missing.
long long parse_migrations(std::string_view text);

/// The state of a thread at one time; times are totals since its start.
struct ThreadSample {
  double at_s = 0;
  std::uint64_t ran_ns = 0, waited_ns = 0, user_ticks = 0, system_ticks = 0;
  char state = '?';
  int cpu = -1;
};

/// Use of CPUs by one or more threads in an interval.
struct Use {
  double from_s = 0, to_s = 0, user_s = 0, system_s = 0, waiting_s = 0, sleeping_s = 0, ran_s = 0;
  long long migrations = 0;
  double wall_s() const { return to_s - from_s; }
  /// Returns the share of the wall time that the parts account for.
  double accounted_share() const;
};

struct Thread {
  Thread(std::size_t number_, std::size_t job_, pid_t process_, pid_t id_);

  /// Reads its state into `last`; sets `ended` if it is gone or its identifier belongs to another thread.
  void sample(const RunClock& clock);
  /// Reads the number of migrations. That file is expensive, so the interval grows with the age of the thread.
  void count_migrations(const RunClock& clock);
  /// Makes `last` the base of its use; earlier migrations do not count.
  void set_base(const RunClock& clock);
  /// Sets the base of a thread that started at `at_s`.
  void set_birth(double at_s, const RunClock& clock);
  Use use() const;

  std::size_t number, job;
  pid_t process, id;
  std::string command;
  std::uint64_t started = 0;  ///< ticks after boot; distinguishes threads that reuse an identifier
  ThreadSample base, last;    ///< at its release or start; the latest
  ThreadSample reported;      ///< the state in its last line of the journal
  long long moves = 0, base_migrations = -1, migrations = -1;
  double next_migrations_s = 0;
  std::uint64_t siblings = 0;  ///< threads of its process, including itself
  std::set<int> ran_on;
  bool ended = false;

 private:
  long long migrations_now() const;
  PolledFile stat_, schedstat_;
};

}  // namespace mm::load

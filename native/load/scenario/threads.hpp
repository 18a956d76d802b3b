#pragma once
/// What the operating system reports of one thread, and what its use of CPUs adds up to.
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

/// Times on a CPU and waiting for one, ns, from the text of a schedstat; none if it is not one.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_schedstat(std::string_view text);
/// se.nr_migrations from the text of /proc/PID/task/TID/sched; -1 if it is not there.
long long parse_migrations(std::string_view text);

/// The state of a thread at one time; its times are sums since its birth.
struct Look {
  double at_s = 0;
  std::uint64_t ran_ns = 0, waited_ns = 0, user_ticks = 0, system_ticks = 0;
  char state = '?';
  int cpu = -1;
};

/// What one thread, or several together, did between two times.
struct Use {
  double from_s = 0, to_s = 0, user_s = 0, system_s = 0, waiting_s = 0, sleeping_s = 0, ran_s = 0;
  long long migrations = 0;
  double wall_s() const { return to_s - from_s; }
  /// Share of the wall time that the parts account for.
  double closes() const;
};

struct Thread {
  Thread(std::size_t number_, std::size_t job_, pid_t process_, pid_t id_);

  /// Reads its state into `last`; sets `ended` if it is gone, or its identifier now belongs to another thread.
  void look(const RunClock& clock);
  /// Reading this file costs more than the others, so it is read less often the longer the thread runs.
  void count_migrations(const RunClock& clock);
  /// `last` becomes the base of its use. Its migrations until now do not count.
  void set_base(const RunClock& clock);
  /// The base of a thread born at `at_s`, which has done nothing before.
  void set_birth(double at_s, const RunClock& clock);
  Use use() const;

  std::size_t number, job;
  pid_t process, id;
  std::string command;
  std::uint64_t started = 0;  ///< ticks after boot; distinguishes threads that reuse an identifier
  Look base, last;            ///< at its release or birth; at the last look
  Look reported;              ///< as its last line in the journal has it
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

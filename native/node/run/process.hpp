#pragma once
/// A command of a user, from its start to the end of the last process that it started.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mm::node {

inline constexpr double kKilled_s = 10.0;  ///< seconds that killed processes have to end

using Variables = std::vector<std::pair<std::string, std::string>>;

struct Command {
  std::vector<std::string> argv;
  std::string folder;        ///< folder in which it runs
  std::string out, err;      ///< files for its output; may be the same
  Variables environment{};   ///< in addition to the environment of this process, without the variables of the job to
                             ///< which it belongs
  double timeout_s = 0;      ///< time after which it is ended, with all processes that it started
  std::uint64_t memory = 0;  ///< bytes of data of a process; 0: no limit
  std::uint64_t output = 0;  ///< maximum bytes of a file
  std::string watched{};     ///< folder that may hold `output` bytes altogether; "": none
};

/// How a command ended. Times, memory and faults include all its processes.
struct Ended {
  /// status, signal, time (it took too long), output (it wrote too much), missing (no executable file has its name),
  /// folder (its folder or the files of its output cannot be opened), or start (it cannot be started)
  std::string how;
  int code = 0;  ///< exit status, signal or error number
  double elapsed_s = 0, user_s = 0, system_s = 0;
  /// Peak memory of the largest process. 0 if it is hardly more than the memory of this process: Linux then reports the
  /// peak of this process, since a child begins as its copy and keeps its peak when it executes another program.
  std::uint64_t peak_bytes = 0;
  std::uint64_t minor_faults = 0, major_faults = 0, switches_involuntary = 0;
  int left = 0;   ///< processes that still ran after the command, and were killed
  int stuck = 0;  ///< processes that were killed, also at the limit of time or output, and have not ended

  bool good() const { return how == "status" && code == 0 && left == 0; }
};

struct Rest {
  int left = 0;   ///< descendants that still ran
  int stuck = 0;  ///< children that have not ended since: they wait for a device or a file system that does not answer
};

/// Kills all descendants of this process, and waits for them, but no longer than `most_s`.
Rest end_descendants(double most_s = kKilled_s);

/// Runs a command to its end. Pre: `adopt_orphans` was called, and this process has no other children. Throws Failure.
Ended run_to_end(const Command& command);

}  // namespace mm::node

#pragma once
/// A command of a user, from its start to the end of the last process that it started.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mm::node {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct Command {
  std::vector<std::string> argv;
  std::string folder;        ///< in which it runs
  std::string out, err;      ///< files for its output; may be the same
  Variables environment{};   ///< besides that of this process, but for variables of the job that it is part of
  double timeout_s = 0;      ///< after which it is ended, with all that it started
  std::uint64_t memory = 0;  ///< bytes of data of a process; 0: no limit
  std::uint64_t output = 0;  ///< bytes of a file
  std::string watched{};     ///< folder that may hold `output` bytes altogether; "": none
};

/// How a command ended. Times, memory and faults are those of all its processes.
struct Ended {
  /// status, signal, time (it took too long), output (it wrote too much), missing (it is not installed), or start
  std::string how;
  int code = 0;  ///< exit status, signal or error number
  double elapsed_s = 0, user_s = 0, system_s = 0;
  std::uint64_t peak_bytes = 0;  ///< of the largest process
  std::uint64_t minor_faults = 0, major_faults = 0, switches_involuntary = 0;
  int left = 0;  ///< processes that still ran after it, and were killed

  bool good() const { return how == "status" && code == 0 && left == 0; }
};

/// Becomes the parent of all processes that descendants leave behind, so that none of them is lost.
void adopt_orphans();

/// Kills all descendants of this process, and waits up to ten seconds for them. Returns how many still ran.
int end_descendants();

/// Runs a command to its end. Pre: `adopt_orphans` was called, and this process has no other children. Throws Failure.
Ended run_to_end(const Command& command);

}  // namespace mm::node

#pragma once
/// Starts the processes of a plan. Each waits at a gate until the runner releases it.
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "load/scenario/plan.hpp"

namespace mm::load {

/// What programs inherit: the settings that this process had before it became a runner.
struct Inherited {
  sigset_t mask{};
  cpu_set_t cpus{};
  rlimit files{};
  int nice = 0;
  pid_t parent = 0;
};

/// A started process and the runner's ends of its pipes, which do not block; -1: closed or none.
struct Child {
  pid_t pid = -1;
  int gate = -1;    ///< takes the line that releases it
  int status = -1;  ///< an empty line: ready; a text: why it could not start; closed: it executes its command
  int out = -1;     ///< standard output of a synthesised program
};

/// Failure where no process or pipe is to be had.
Child spawn(const Start& start, const Inherited& inherited);

void close_if_open(int& fd);

/// Control groups made for a run; removes them in the end.
class ControlGroups {
 public:
  ControlGroups() = default;
  ControlGroups(const ControlGroups&) = delete;
  ControlGroups& operator=(const ControlGroups&) = delete;
  ~ControlGroups();
  /// A folder that exists already is left as it is.
  void make(const std::string& folder);

 private:
  std::vector<std::string> made_;
};

}  // namespace mm::load

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

/// Settings of this process before it became a runner, which programs inherit.
struct Inherited {
  sigset_t mask{};
  cpu_set_t cpus{};
  rlimit files{};
  int nice = 0;
  pid_t parent = 0;
};

/// A started process and the runner's non-blocking ends of its pipes; -1: closed or none.
struct Child {
  pid_t pid = -1;
  int gate = -1;    ///< receives the line that releases it
  int status = -1;  ///< an empty line: ready; a text: the reason of a failed start; closed: the command was executed
  int out = -1;     ///< standard output of a synthesised program
};

/// Starts a process. Throws Failure if no process or pipe can be created.
Child spawn(const Start& start, const Inherited& inherited);

void close_if_open(int& fd);

/// Control groups created for a run; removed on destruction.
class ControlGroups {
 public:
  ControlGroups() = default;
  ControlGroups(const ControlGroups&) = delete;
  ControlGroups& operator=(const ControlGroups&) = delete;
  ~ControlGroups();
  /// Creates a control group. Does not change a folder that already exists.
  void make(const std::string& folder);

 private:
  std::vector<std::string> made_;
};

}  // namespace mm::load

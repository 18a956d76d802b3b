#pragma once
/// What the start and the end of every child process have in common. Limits, deadlines and output differ, and are
/// where the child is started.
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "sys/descriptor.hpp"

namespace mm {

/// A pipe whose ends close when a program is executed. The constructor throws Failure if no pipe can be created.
struct Pipe {
  Pipe();
  Fd reader, writer;
};

/// Forks this process. Returns the id of the child, and 0 in the child, which receives `signal` when this process ends.
/// The child ends immediately, with status 126, if `parent` has ended before the child could request the signal. Throws
/// Failure if no process can be created.
pid_t start_child(int signal = SIGKILL, pid_t parent = ::getpid());

/// Makes this process the parent of all processes that its descendants leave behind, so that no process is lost.
void adopt_orphans();

/// Returns the words as execv(3) takes them. They are valid as long as `words`.
std::vector<char*> argument_vector(const std::vector<std::string>& words);

/// Waits until a child ends. Returns its status, as of wait(2).
int wait_for_child(pid_t child);

}  // namespace mm

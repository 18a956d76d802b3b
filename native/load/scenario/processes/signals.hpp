#pragma once
/// Signals between the runner, its parent process, and the programs of a run.
#include <sys/types.h>

#include <csignal>

namespace mm::load {

/// Signals that a run receives by signalfd or sigwaitinfo.
sigset_t run_signals();
/// Resets actions that would disturb a run, and blocks `run_signals()`. Returns the previous mask.
sigset_t block_signals();

/// Returns the descriptor in `MESHMARK_NOTIFY`, which is then removed from the environment; -1: none. Throws Failure if
/// it is invalid.
int notify_descriptor();

/// Kills all descendants of this process and waits for them. Repeats this until no descendant is left, since a process
/// may start another meanwhile.
void kill_descendants();

/// Forwards signals to the runner and waits for it, so that if either process is killed, the other terminates the
/// programs. Returns the runner's exit status.
int wait_for_runner(pid_t runner);

}  // namespace mm::load

#pragma once
/// Signals between the two processes of a run, the runner and the one above it, and their programs.
#include <sys/types.h>

#include <csignal>

namespace mm::load {

/// Signals that a run takes by file descriptor or sigwaitinfo.
sigset_t run_signals();
/// Sets the actions of signals that would disturb a run, and blocks `run_signals()`. Returns the mask before.
sigset_t take_over_signals();

/// The descriptor in `MESHMARK_NOTIFY`, which it removes from the environment; -1: none. Failure: it is not one.
int notify_descriptor();

/// Kills all descendants of this process and waits for them. A process that starts another meanwhile is found in the
/// next round.
void end_descendants();

/// Waits for the runner and passes signals on to it, so that whichever of the two processes is killed, the other ends
/// the programs. Returns the runner's exit status.
int stand_by(pid_t runner);

}  // namespace mm::load

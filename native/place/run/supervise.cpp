#include "place/run/supervise.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/provenance.hpp"
#include "base/resources/child.hpp"
#include "place/command.hpp"
#include "place/run/launch.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place::job {

namespace {

constexpr double kGrace_s = 5;  // seconds between SIGTERM and SIGKILL at --timeout

void signal_all(int signal_number) {
  for (const pid_t pid : descendants(getpid())) {
    kill(pid, signal_number);
    kill(pid, SIGCONT);  // a stopped process does not handle SIGTERM
  }
}

/// Waits for the command, observes it, and forwards signals.
///
/// The command stays in this process's group, so that signals of the terminal reach both. Only signals that another
/// process sent to this one are forwarded (a signal to the whole group reaches the command twice). When the terminal
/// stops the command, this process stops too, so that the shell sees the job as stopped.
CommandOutcome supervise(const Options& o, const CommandPlacement& job, pid_t child, Fd started,
                         const Expectation& expected) {
  CommandOutcome outcome;
  outcome.start = utc_now();
  double begin_s = wall_s(), reported_s = 0;
  // The descriptor closes on exec: from then on, the child is the command.
  while (true) {
    const ssize_t n = read(started.get(), &reported_s, sizeof reported_s);
    if (n == sizeof reported_s) begin_s = reported_s;
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  started.close();

  std::optional<Observer> observer;
  if (o.verify) observer.emplace(job.machine, child, expected);
  double next_sample_s = begin_s, end_s = o.timeout_s > 0 ? begin_s + o.timeout_s : kForever;
  sigset_t all;
  sigfillset(&all);
  for (bool running = true; running;) {
    if (observer && wall_s() >= next_sample_s) {
      observer->sample();
      next_sample_s = wall_s() + observer->next_s();
    }
    if (wall_s() >= end_s) {
      signal_all(outcome.timed_out ? SIGKILL : SIGTERM);
      end_s = wall_s() + (outcome.timed_out ? 0.1 : kGrace_s);
      outcome.timed_out = true;
    }
    const double pause_s = std::clamp(std::min(observer ? next_sample_s : kForever, end_s) - wall_s(), 0.0, 3600.0);
    const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
    siginfo_t info{};
    const int signal = sigtimedwait(&all, &info, &pause);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      if (info.si_code != SI_KERNEL && info.si_pid != getpid()) kill(child, signal);
      continue;
    }
    // One signal may stand for several children, including adopted orphans.
    for (siginfo_t child_info{};
         waitid(P_ALL, 0, &child_info, WEXITED | WNOHANG | WNOWAIT) == 0 && child_info.si_pid != 0;
         child_info.si_pid = 0) {
      if (child_info.si_pid == child) {
        outcome.elapsed_s = wall_s() - begin_s;
        if (observer) observer->sample();  // before it is reaped, while its last counts can be read
        running = false;
      }
      waitpid(child_info.si_pid, child_info.si_pid == child ? &outcome.status : nullptr, 0);
    }
    siginfo_t stop_info{};
    if (running && waitid(P_PID, static_cast<id_t>(child), &stop_info, WSTOPPED | WNOHANG) == 0 &&
        stop_info.si_pid == child &&
        (stop_info.si_status == SIGTSTP || stop_info.si_status == SIGTTIN || stop_info.si_status == SIGTTOU)) {
      raise(SIGSTOP);
      kill(child, SIGCONT);
    }
  }
  if (outcome.timed_out) signal_all(SIGKILL);
  getrusage(RUSAGE_CHILDREN, &outcome.use);
  if (observer) {
    outcome.report = observer->report();
    std::set<std::string> unobserved;
    for (const ThreadVerdict& thread : outcome.report->threads)
      if (program_uses_daemon(thread.command)) unobserved.insert(thread.command);
    for (const std::string& launcher : unobserved)
      outcome.report->absent.push_back(
          "the ranks of " + launcher +
          ", which a daemon starts, so they cannot be observed from here; run meshmark run --each --verify "
          "within each rank");
  }
  return outcome;
}

}  // namespace

CommandOutcome run_supervised(const Options& o, CommandPlacement& job, const std::vector<std::string>& command) {
  Pipe exec_pipe;
  adopt_orphans();  // so that orphans stay observable, and are reaped
  sigset_t all, previous_mask;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &previous_mask);
  struct sigaction default_action{}, inherited_action{};
  default_action.sa_handler = SIG_DFL;  // if the parent ignores it, the Linux kernel would reap the command
  sigaction(SIGCHLD, &default_action, &inherited_action);
  // Without this process nobody would observe the command; a batch system that kills this process also means the
  // command.
  const pid_t child = start_child();
  if (child == 0) {
    sigaction(SIGCHLD, &inherited_action, nullptr);
    bind_here(o, job);
    sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
    const double begin_s = wall_s();
    if (write(exec_pipe.writer.get(), &begin_s, sizeof begin_s) < 0) _exit(kNotExecutable);
    become(command);
  }
  exec_pipe.writer.close();
  Expectation expected;
  expected.cpus = job.cpus;
  expected.each = (o.each && job.rank.index < 0) || !o.launcher.empty();
  expected.layout = job.placement.layout;
  expected.memory_nodes = requested_nodes(job.machine, job.memory, job.cpus);
  expected.strict_memory = job.memory.policy == "bind";
  return supervise(o, job, child, std::move(exec_pipe.reader), expected);
}

int pass_on(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int fatal = WTERMSIG(status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the command has written its own core dump
  std::signal(fatal, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, fatal);
  raise(fatal);
  sigprocmask(SIG_UNBLOCK, &mask, nullptr);
  return 128 + fatal;
}

}  // namespace mm::place::job

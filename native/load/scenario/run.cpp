#include "load/scenario/run.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/options/arguments.hpp"
#include "base/resources/child.hpp"
#include "load/scenario/plan.hpp"
#include "load/scenario/processes/signals.hpp"
#include "load/scenario/processes/spawn.hpp"
#include "load/scenario/processes/supervisor.hpp"

namespace mm::load {
namespace {

/// Moves the runner off the CPUs of the programs, if each program has its own CPUs and other CPUs are left.
void avoid_cpus_of(const RunPlan& plan, const cpu_set_t& allowed) {
  cpu_set_t unused = allowed;
  for (const Start& s : plan.programs) {
    if (s.cpus.empty()) return;
    for (const int cpu : s.cpus)
      if (cpu < CPU_SETSIZE) CPU_CLR(static_cast<std::size_t>(cpu), &unused);
  }
  if (CPU_COUNT(&unused) > 0) ::sched_setaffinity(0, sizeof unused, &unused);
}

/// Raises the runner's priority if permitted, so that samples are on time even when programs outnumber CPUs.
void raise_priority(const RunPlan& plan, const Inherited& inherited) {
  if (std::any_of(plan.programs.begin(), plan.programs.end(), [](const Start& s) { return s.priority == "fifo"; })) {
    sched_param parameter{};
    parameter.sched_priority = 2;
    ::sched_setscheduler(0, SCHED_FIFO, &parameter);
  } else {
    ::setpriority(PRIO_PROCESS, 0, std::max(-20, inherited.nice - 5));
  }
}

int runner_main(const RunPlan& plan, Inherited inherited, int notify) {
  ::setsid();  // signals to the parent's process group arrive once, through the parent
  adopt_orphans();
  inherited.parent = ::getpid();
  rlimit files = inherited.files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 1 << 16);
  ::setrlimit(RLIMIT_NOFILE, &files);
  avoid_cpus_of(plan, inherited.cpus);
  raise_priority(plan, inherited);
  const sigset_t blocked = run_signals();
  const int signals = ::signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) throw Failure(std::string("cannot create a signalfd: ") + std::strerror(errno));
  return Supervisor(plan, inherited, signals, notify).run();
}

}  // namespace

int run_verb(int argc, char** argv) {
  Arguments app{
      "Run the programs of a plan together, and sample all their threads.\n\n"
      "example: meshmark-load run plan.json",
      "meshmark-load run"};
  std::string path;
  app.add("PLAN", path, "written by meshmark load run").required();
  if (!app.read(argc, argv, "run")) return 0;
  const RunPlan plan = read_run_plan(path);
  Inherited inherited;
  if (::sched_getaffinity(0, sizeof inherited.cpus, &inherited.cpus) != 0)
    throw Failure(std::string("cannot read the CPUs of this process: ") + std::strerror(errno));
  ::getrlimit(RLIMIT_NOFILE, &inherited.files);
  inherited.nice = ::getpriority(PRIO_PROCESS, 0);
  const int notify = notify_descriptor();
  inherited.mask = block_signals();
  adopt_orphans();
  const pid_t runner = start_child(SIGUSR2);
  if (runner == 0) return runner_main(plan, inherited, notify);
  return wait_for_runner(runner);
}

}  // namespace mm::load

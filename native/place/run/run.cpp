#include "place/run/run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/resources/host.hpp"
#include "place/binding/spill.hpp"
#include "place/command.hpp"
#include "place/ledger/ledger.hpp"
#include "place/run/job.hpp"
#include "place/run/launch.hpp"
#include "place/run/options.hpp"
#include "place/run/record.hpp"
#include "place/run/supervise.hpp"

namespace mm::place {

using namespace job;

namespace {

/// Returns the launcher's command line that starts the ranks of the placement, including the command.
std::vector<std::string> launch_line(const Options& o, const CommandPlacement& job, std::vector<std::string> launcher) {
  if (!job.cpus.empty()) {
    // Ranks that are the launcher's children inherit its binding: it only sees these CPUs, and its memory policy
    // applies to them. Other launchers need explicit options.
    const bool bound = !form_uses_daemon(o.launcher);
    Machine visible = job.machine;
    if (bound) visible.allowed = job.cpus;
    if (bound && o.hard) visible.origin = "cpuset";  // the cpuset that it will be in; relative numbers refer to it
    const Form form = emit(o.launcher, visible, job.placement.layout, bound ? MemoryPolicy{} : job.memory);
    for (const auto& [name, value] : form.environment) setenv(name.c_str(), value.c_str(), 1);
    launcher = words_of(form);
    // The layout is for this node, so all ranks must run here, even if the job has more nodes.
    if (o.launcher.starts_with("slurm")) {
      const std::string step_node = variable("SLURMD_NODENAME"), host = host_name();
      const std::vector<std::string> node_options = {"-N", "1", "-w",
                                                     step_node.empty() ? host.substr(0, host.find('.')) : step_node};
      launcher.insert(launcher.begin() + 1, node_options.begin(), node_options.end());
    }
  }
  launcher[0] = program_of_library(launcher[0], o.launcher);
  launcher.insert(launcher.end(), o.command.begin(), o.command.end());
  return launcher;
}

/// Warns if the memory of the command will not remain on the nodes on which it begins.
void warn_of_spill(const Options& o, const CommandPlacement& job) {
  MemoryPolicy memory = job.memory;
  if (memory.policy == "default") memory.policy = "local";  // pages go to the node of the thread that touches them
  std::map<int, NodeRoom> rooms;
  for (const int node : requested_nodes(job.machine, memory, job.cpus)) rooms[node] = node_room(node);
  const std::string warning = spill_warning(rooms, job.machine.memory_nodes.size(), memory, o.needed_bytes);
  if (!warning.empty()) std::fprintf(stderr, "meshmark: warning: %s\n", warning.c_str());
}

}  // namespace

int run_verb(int argc, char** argv) {
  const auto options = read_options(argc, argv);
  if (!options) return 0;
  const Options& o = *options;
  if (const auto problem = exec_failure(o.command[0]); problem.first != 0) return complain(problem);
  std::vector<std::string> launcher;
  if (!o.launcher.empty()) {
    launcher = launcher_words(o.launcher, o.n > 0 ? o.n : 1);
    if (const auto problem = exec_failure(launcher[0]); problem.first != 0) return complain(problem);
  }
  if (const std::string& starter = launcher.empty() ? o.command[0] : launcher[0];
      o.strict && program_uses_daemon(starter))
    throw UsageError(
        "verify",
        "cannot be strict: a daemon starts the ranks of " + starter + ", so they cannot be observed from here",
        "in each rank: srun --cpu-bind=none … meshmark run --each --verify=strict …");
  int record = -1;
  if (!o.record.empty()) record = open(o.record.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (!o.record.empty() && record < 0)
    throw UsageError("record", "cannot write " + quote(o.record) + ": " + errno_text(), "a writable file");

  CommandPlacement job = decide(o);
  if (job.machine.memory_nodes.size() > 1) warn_of_spill(o, job);
  std::vector<std::string> command = o.command;
  if (o.each) place_threads(o, job);
  if (!o.launcher.empty()) command = launch_line(o, job, launcher);
  if (o.verbose) std::fprintf(stderr, "meshmark: %s\n", summary(o, job).c_str());
  if (!o.verify && record < 0 && o.timeout_s == 0) {
    bind_here(o, job);
    become(command);
  }

  const CommandOutcome outcome = run_supervised(o, job, command);
  if (outcome.timed_out) std::fprintf(stderr, "meshmark: terminated after %g s (--timeout)\n", o.timeout_s);
  if (outcome.report) std::fputs(to_text(*outcome.report).c_str(), stderr);
  if (record >= 0) append_record(record, o.record, record_lines(o, job, outcome));
  if (job.held) {
    try {
      Ledger().release(*job.held);
    } catch (const std::exception&) {  // the next process that scans the ledger removes it
    }
  }
  if (outcome.timed_out) return kTimedOut;
  if (o.strict && outcome.report && !outcome.report->held && outcome.status == 0) return 3;
  return pass_on(outcome.status);
}

}  // namespace mm::place

#pragma once
/// The plan of a run: which processes to start, when and where.
#include <map>
#include <string>
#include <vector>

namespace mm::load {

/// One process to start, as src/meshmark/load/scenario/run.py writes it.
struct Start {
  std::string name;
  int copy = 0;
  std::vector<std::string> argv;
  std::vector<std::string> recorded;  ///< `argv` as the journal contains it, without secrets
  bool synthesised = false;           ///< supports --wait: reports ready, and starts on a line from standard input
  double start_s = 0;                 ///< seconds after the start of the run
  std::vector<int> cpus;              ///< empty: the CPUs of the runner
  int nice = 0;                       ///< relative to the niceness of the runner
  std::string priority = "other";     ///< other, batch, idle, fifo
  std::string memory;                 ///< as in `meshmark run --memory`; empty: unchanged
  std::map<std::string, std::string> environment;
  std::string cgroup, cwd, out, error;  ///< paths; empty: no cgroup, the folder of the runner, /dev/null
};

struct RunPlan {
  std::string scenario;
  double sample_s = 0.1, timeout_s = 0, setup_s = 300;
  double canary_before_s = 0, canary_after_s = 0;
  bool canary_during = false;
  std::vector<Start> programs;
};

/// Reads a plan. Throws Failure with the file, the field, what was found and what is allowed.
RunPlan read_run_plan(const std::string& path);

/// Returns the scheduling policy (SCHED_OTHER, …) of a priority in a plan.
int scheduling_policy(const std::string& priority);

}  // namespace mm::load

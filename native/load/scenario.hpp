#pragma once
/// Many programs at once: starts them as a plan says, looks at every thread of theirs, and ends them all whatever
/// happens.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::load {

/// One process to start, as src/meshmark/load/run.py writes it.
struct Start {
  std::string name;
  int copy = 0;
  std::vector<std::string> argv;
  bool synthesised = false;        ///< understands --wait: says that it is ready, begins at a line on standard input
  double start_s = 0;              ///< after the common clock's start
  std::vector<int> cpus;           ///< empty: those of the runner
  int nice = 0;                    ///< added to the runner's
  std::string priority = "other";  ///< other, batch, idle, fifo
  std::string memory;              ///< as `meshmark run --memory` takes it; empty: left
  std::map<std::string, std::string> environment;
  std::string cgroup, cwd, out, error;  ///< paths; empty: none, the runner's, /dev/null
};

struct RunPlan {
  std::string scenario;
  double sample_s = 0.1, timeout_s = 0, setup_s = 300;
  double canary_before_s = 0, canary_after_s = 0;
  bool canary_during = false;
  std::vector<Start> programs;
};

/// Failure names the file, the field, what was found and what is allowed.
RunPlan read_run_plan(const std::string& path);

/// ran and waited, ns, of the text of a schedstat; none where it is no such text.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_schedstat(std::string_view text);
/// se.nr_migrations of the text of /proc/PID/task/TID/sched; -1 where it is not there.
long long parse_migrations(std::string_view text);

/// meshmark-load run PLAN
int run_verb(int argc, char** argv);

}  // namespace mm::load

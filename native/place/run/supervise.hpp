#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "place/observe.hpp"
#include "place/run/job.hpp"

namespace mm::place::job {

struct CommandOutcome {
  int status = 0;  ///< from wait(2)
  bool timed_out = false;
  double elapsed_s = 0;
  std::string start;
  rusage use{};
  std::optional<Report> report;
};

/// Starts the command with the binding of the job, observes it, enforces --timeout, and waits for its end.
CommandOutcome run_supervised(const Options& o, CommandPlacement& job, const std::vector<std::string>& command);

/// Ends this process like the command: with its status, or by its signal.
int pass_on(int status);

}  // namespace mm::place::job

#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../bind.hpp"
#include "../ledger.hpp"
#include "../policy.hpp"
#include "../syntax.hpp"
#include "options.hpp"
#include "ranks.hpp"

namespace mm::place::job {

/// The placement of a command, decided before anything starts.
struct Job {
  Machine machine;
  Request request;
  std::optional<Affinity> affinity;  ///< from LSF's string instead of a policy
  Memory memory;
  Rank rank;
  Placement placement;
  std::vector<int> cpus;  ///< of this process: its part as a rank, otherwise all; empty: not bound
  std::optional<Ledger::Held> held;
  std::string from;  ///< source of the policy, if not the command line
};

/// Reads site, profile and environment, reserves CPUs in the ledger and chooses the placement.
Job decide(const Options& o);
/// The placement in one line.
std::string summary(const Options& o, const Job& job);
/// Binds this process; the command and its children inherit the binding.
void bind_here(const Options& o, Job& job);
/// Sets the places of OpenMP threads: the run time binds thread i to place i.
void place_threads(const Options& o, const Job& job);

}  // namespace mm::place::job

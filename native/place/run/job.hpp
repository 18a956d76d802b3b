#pragma once
#include <optional>
#include <string>
#include <vector>

#include "place/binding/bind.hpp"
#include "place/ledger/ledger.hpp"
#include "place/policy/policy.hpp"
#include "place/run/options.hpp"
#include "place/run/ranks.hpp"
#include "place/syntax.hpp"

namespace mm::place::job {

/// The placement of a command, decided before anything starts.
struct CommandPlacement {
  Machine machine;
  Request request;
  std::optional<Affinity> affinity;  ///< set if LSF's affinity string replaces the policy
  MemoryPolicy memory;
  Rank rank;
  Placement placement;
  std::vector<int> cpus;  ///< CPUs of this process: its part if it is a rank, otherwise all; empty: not bound
  std::optional<Ledger::Held> held;
  std::string from;  ///< source of the policy, if not the command line
};

/// Reads site, profile and environment, reserves CPUs in the ledger and chooses the placement.
CommandPlacement decide(const Options& o);
/// Returns the placement in one line.
std::string summary(const Options& o, const CommandPlacement& job);
/// Binds this process; the command and its children inherit the binding.
void bind_here(const Options& o, CommandPlacement& job);
/// Sets the places of OpenMP threads: the run time binds thread i to place i.
void place_threads(const Options& o, const CommandPlacement& job);

}  // namespace mm::place::job

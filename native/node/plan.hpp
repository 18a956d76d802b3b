#pragma once
/// The plan of a node: which instruments run on it, and which of its files are recorded.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"

namespace mm::node {

/// Settings of a program of a user, which a step runs instead of an instrument.
struct UserProgram {
  int warmup = 0, runs = 1;  ///< warm-up runs, which do not count, and runs that count
  std::vector<std::pair<std::string, std::string>> environment;  ///< in addition to the environment of the node
  std::vector<std::pair<std::string, std::string>> files;  ///< text of each file, by its path below the folder of a run
  std::string results;                                     ///< file that a run leaves there; "": none
  std::vector<std::string> verify;                         ///< command after each run; empty: none
  double verify_timeout_s = 0;                             ///< time limit of this command
  std::uint64_t verify_output = 0;                         ///< bytes of a file that it may write
  int failures = 0;                                        ///< number of failed runs after which no more runs follow
  double timeout_s = 0;                                    ///< time limit of a run
  std::uint64_t memory = 0;                                ///< bytes of data of a process; 0: no limit
  std::uint64_t output = 0;                                ///< bytes that a run may write
  std::uint64_t tail_bytes = 0;                            ///< length of the end of each output that is stored
};

struct PlanStep {
  std::string id;
  std::vector<std::string> argv;         ///< an instrument and its options, or a program and its arguments
  double limit_s = 0;                    ///< time after which it is killed
  std::string machine{};                 ///< name of the machine in its results
  std::optional<UserProgram> program{};  ///< nullopt: the step is an instrument
  std::string scratch{};                 ///< the folder in which programs run
  std::string front = "meshmark-node";   ///< the program whose name begins messages of the instrument
};

/// Limits of results. A result outside of them is a problem of the node.
struct Limit {
  std::string instrument, metric;
  json conditions;  ///< the limits apply to results that have all of these conditions
  double low = 0, high = 0;
};

struct Plan {
  std::string id, kind;
  bool alone = true;               ///< refuse to run beside the work of others
  double limit_s = 0;              ///< time limit of the plan; steps that have not begun by then are left out
  std::vector<std::string> files;  ///< patterns as in glob(7), below /
  std::vector<PlanStep> steps;
  std::vector<Limit> limits;  ///< limits of the class to which this node belongs
};

/// Reads a plan that src/meshmark/fleet/plan.py wrote, with the limits for `hash`, the hash of this machine's hardware.
/// Throws Failure with the file, the field, what was found and what is allowed.
Plan read_plan(const std::string& path, const std::string& hash);

}  // namespace mm::node

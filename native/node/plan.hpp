#pragma once
/// The plan of a node: which instruments run on it, and which of its files are recorded.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "json.hpp"

namespace mm::node {

/// What surrounds a program of a user, which a step runs instead of an instrument.
struct Program {
  int warmup = 0, runs = 1;                                      ///< runs that do not count, and that do
  std::vector<std::pair<std::string, std::string>> environment;  ///< besides that of the node
  std::vector<std::pair<std::string, std::string>> files;        ///< by path below the folder of a run, with their text
  std::string results;                                           ///< file that a run leaves there; "": none
  std::vector<std::string> verify;                               ///< command after each run; empty: none
  double verify_timeout_s = 0;                                   ///< of that command
  std::uint64_t verify_output = 0;                               ///< bytes of a file that it may write
  int failures = 0;                                              ///< after which no more runs follow
  double timeout_s = 0;                                          ///< of a run
  std::uint64_t memory = 0;                                      ///< bytes of data of a process; 0: no limit
  std::uint64_t output = 0;                                      ///< bytes that a run may write
  std::uint64_t kept = 0;                                        ///< bytes of the end of each output
};

struct Step {
  std::string id;
  std::vector<std::string> argv;     ///< of an instrument, its name first, or of a program
  double limit_s = 0;                ///< after which it is killed
  std::string machine{};             ///< the name that its results carry
  std::optional<Program> program{};  ///< none: an instrument
  std::string scratch{};             ///< the folder in which programs run
};

/// Results outside of these limits are a problem of the node.
struct Limit {
  std::string instrument, metric;
  json conditions;  ///< of the results that it applies to: those that have all of these
  double low = 0, high = 0;
};

struct Plan {
  std::string id, kind;
  bool alone = true;               ///< refuse to run beside the work of others
  double limit_s = 0;              ///< of the whole plan; steps that have not begun by then are left out
  std::vector<std::string> files;  ///< patterns as of glob(7), below /
  std::vector<Step> steps;
  std::vector<Limit> limits;  ///< of the class that this node belongs to
};

/// Reads a plan that src/meshmark/fleet/plan.py wrote. `hash` is that of this machine's hardware, whose limits are
/// read. Throws Failure with the file, the field, what was found and what is allowed.
Plan read_plan(const std::string& path, const std::string& hash);

}  // namespace mm::node

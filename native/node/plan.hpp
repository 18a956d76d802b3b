#pragma once
/// The plan of a node: which instruments run on it, and which of its files are recorded.
#include <string>
#include <vector>

#include "json.hpp"

namespace mm::node {

struct Step {
  std::string id;
  std::vector<std::string> argv;  ///< of an instrument, its name first
  double limit_s = 0;             ///< after which it is killed
  std::string machine{};          ///< the name that its results carry
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

#pragma once
/// Audit of counters: loads of prescribed rates, and what the counters of memory and links report meanwhile.
#include <functional>
#include <string>
#include <vector>

#include "watch/sampler.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::watch {

/// A load whose traffic on memory and links is known. Nodes are indices of components.
struct AuditLoad {
  PacedAccess access;
  std::size_t cpu_node, memory_node;
};

/// The metrics that an audit compares with the bytes moved.
const std::vector<std::string>& audited_metrics();

/// Returns the loads that can check the counters of a machine: reads of the memory of each node with CPUs, writes if
/// writes are counted, and reads across each link whose traffic is counted. Empty if nothing is counted.
std::vector<AuditLoad> audit_loads(const Board& board, const Host& host);

struct AuditPlan {
  int rounds = 10;
  double load_s = 10;  ///< time per load
  /// Called with a load and the bytes that it has moved, before counters are read; tests advance simulated counters.
  std::function<void(const AuditLoad&, double)> before_reading = [](const AuditLoad&, double) {};
};

/// Runs all loads at four rates (none, and 1/4, 1/2, 3/4 of the highest), in several rounds that alternately ascend and
/// descend, so that drift affects all rates alike. Writes one JSON line per rate and round: `load`, `cpu_node`,
/// `memory_node`, `round`, `rate` (the index of the rate), `moved` (B/s), and the `values` of all metrics.
/// Throws Absent if nothing is counted or lines cannot be flushed.
void audit(Sampler& sampler, const AuditPlan& plan, const std::function<void(const std::string&)>& write);

}  // namespace mm::watch

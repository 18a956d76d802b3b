#pragma once
/// The rates at which running jobs progress.
#include <map>
#include <vector>

#include "place/mix/simulation.hpp"

namespace mm::place::mix {

/// A job that runs.
struct RunningJob {
  std::size_t job = 0;
  Placement placement;
  std::vector<double> node_share;  ///< share of its memory by node, in the order of `Machine::nodes`
  double left_s = 0;               ///< work that is left, as time alone
  double rate = 1;                 ///< progress relative to running alone
};

/// Computes rates; describes the CPUs that a policy may use.
class Rates {
 public:
  Rates(const Machine& machine, const Settings& settings);
  /// Returns the share of a job's memory by node.
  std::vector<double> node_share(const Placement& placement) const;
  /// Sets the rate of each job. `taken` states how many jobs hold each CPU.
  void set(std::vector<RunningJob>& running, const std::vector<MixJob>& jobs, const Occupancy& taken) const;

 private:
  double slot_rate(const std::vector<int>& part, const Occupancy& taken) const;
  void share_bandwidth(std::vector<RunningJob>& running, const std::vector<MixJob>& jobs) const;

  const Machine& machine_;
  const Settings& settings_;
  std::size_t cores_ = 0, cpus_ = 0;
  std::map<int, std::vector<int>> siblings_;  ///< CPUs of each core
};

}  // namespace mm::place::mix

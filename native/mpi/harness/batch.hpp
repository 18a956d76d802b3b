#pragma once
/// Groups of cases that fit into memory.
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mpi/harness/measure.hpp"

namespace mm::mpi {

/// Cases that are measured together, as far as they fit into memory at once, in the order in which they are added.
class Batch {
 public:
  /// `rounds`: how often done() will be called; each call gets an equal share of the remaining budget.
  Batch(Run& run, std::size_t rounds) : run_(run), rounds_(rounds) {}
  /// Adds the result of `make`, which all ranks or none produce. In the latter case the metric of `plan` is reported
  /// absent under its conditions. `bytes`: memory that each rank needs for it. Collective.
  void add(Case plan, double bytes, const std::function<Case()>& make);
  /// Measures what was added since the last call; returns the medians.
  std::vector<double> done();
  /// Flags of the last done(), for derived metrics.
  std::vector<std::string> flags() const { return {flags_->begin(), flags_->end()}; }

 private:
  void measure_held(double share);
  Run& run_;
  std::size_t rounds_;
  std::vector<Case> held_;
  std::vector<double> medians_;
  std::set<std::string> reported_;
  bool begun_ = false;  // cases that done() will return have been measured
  std::shared_ptr<std::set<std::string>> flags_ = std::make_shared<std::set<std::string>>();
};

}  // namespace mm::mpi

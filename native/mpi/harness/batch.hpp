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

/// Cases that are measured together as far as they fit into memory at once, in the order in which they were added.
class CaseBatch {
 public:
  /// `rounds` is how often done() will be called. Each call gets an equal share of the remaining budget.
  CaseBatch(Run& run, std::size_t rounds) : run_(run), rounds_(rounds) {}
  /// Adds the result of `make`, which either all ranks or none produce. If none does, the metric of `plan` is reported
  /// as absent under its conditions. `bytes` is the memory that each rank needs for the result. Collective.
  void add(Case plan, double bytes, const std::function<Case()>& make);
  /// Measures the cases that were added since the last call. Returns the medians.
  std::vector<double> done();
  /// Returns the flags of the last done(), for derived metrics.
  std::vector<std::string> flags() const { return {flags_->begin(), flags_->end()}; }

 private:
  void measure_held(double share);
  Run& run_;
  std::size_t rounds_;
  std::vector<Case> held_;
  std::vector<double> medians_;
  std::set<std::string> reported_;
  bool begun_ = false;  // whether cases that done() will return have been measured
  std::shared_ptr<std::set<std::string>> flags_ = std::make_shared<std::set<std::string>>();
};

}  // namespace mm::mpi

#pragma once
/// Cases in groups that fit into memory.
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "mpi/harness/measure.hpp"

namespace mm::mpi {

/// Cases that are measured together, as far as memory holds them at once, in the order in which they are added.
class Batch {
 public:
  /// `rounds`: how often done() will be called; each time what was added shares its part of the budget.
  Batch(Run& run, std::size_t rounds) : run_(run), rounds_(rounds) {}
  /// What `make` makes: on all ranks or on none, and then it is absent, with the conditions and the metric of `what`.
  /// `bytes`: that each rank needs for it. Collective.
  void add(Case what, double bytes, const std::function<Case()>& make);
  /// Measures; the medians of all that were added since it was called last.
  std::vector<double> done();
  /// Flags of what done() measured last, for what is derived from it.
  std::vector<std::string> flags() const { return {flags_->begin(), flags_->end()}; }

 private:
  void measure_held(double share);
  Run& run_;
  std::size_t rounds_;
  std::vector<Case> held_;
  std::vector<double> medians_;
  std::set<std::string> said_;
  bool begun_ = false;  // measuring what done() will return
  std::shared_ptr<std::set<std::string>> flags_ = std::make_shared<std::set<std::string>>();
};

}  // namespace mm::mpi

#pragma once
/// Memory latency and processor speed while programs run.
#include <memory>

#include "load/scenario/run_clock.hpp"
#include "watch/canary.hpp"

namespace mm::load {

class Canary {
 public:
  explicit Canary(const RunClock& clock) : clock_(clock) {}
  /// Allocates its memory; on failure, samples write nothing.
  void prepare();
  bool ready() const { return walker_ != nullptr; }
  /// Writes one line; `when`: before, during, after.
  void sample(const char* when);
  double cost_s = 0;  ///< CPU time of all samples

 private:
  const RunClock& clock_;
  std::unique_ptr<watch::Walker> walker_;
};

}  // namespace mm::load

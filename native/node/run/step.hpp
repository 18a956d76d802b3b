#pragma once
/// Runs one instrument or program of a plan in a separate process.
#include <csignal>
#include <functional>
#include <string>
#include <string_view>

#include "node/plan.hpp"

namespace mm::node {

/// How a step ended.
struct StepEnd {
  std::string status;  ///< ok, absent, failed, timed out, interrupted
  std::string reason;  ///< "" for ok
  double elapsed_s = 0;
};

/// Blocks the signals that end a run as long as it exists, so that a run ends with a complete file.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int descriptor() const { return descriptor_; }
  /// Returns whether a signal has arrived.
  bool arrived();
  /// In a child: restores the previous signal mask.
  void restore() const;

 private:
  sigset_t before_{};
  int descriptor_;
  bool arrived_ = false;
};

/// Runs `step` in a child, and passes its lines to `take`. The child and all processes that it started are killed at
/// `end_s`, in the time of wall_s(), or when a signal arrives.
StepEnd run_step(const PlanStep& step, double end_s, Interrupts& interrupts,
                 const std::function<void(std::string_view)>& take);

}  // namespace mm::node

#pragma once
/// One instrument of a plan, in a process of its own.
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

/// Receives the signals that end a run, while it waits for its steps.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int descriptor() const { return descriptor_; }
  /// Whether one has arrived.
  bool arrived();
  /// In a child: signals end it as they normally do.
  static void restore();

 private:
  int descriptor_;
  bool arrived_ = false;
};

/// Runs `step` in a child, and passes its lines to `take`. The child and all that it started are killed at `end_s`, in
/// the time of wall_s(), or by an interrupt.
StepEnd run_step(const Step& step, double end_s, Interrupts& interrupts,
                 const std::function<void(std::string_view)>& take);

}  // namespace mm::node

#pragma once
/// One instrument or program of a plan, in a process of its own.
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

/// Holds back the signals that end a run as long as it exists, so that a run ends with a complete file.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  int descriptor() const { return descriptor_; }
  /// Whether one has arrived.
  bool arrived();
  /// In a child: signals do what they did before.
  void restore() const;

 private:
  sigset_t before_{};
  int descriptor_;
  bool arrived_ = false;
};

/// Runs `step` in a child, and passes its lines to `take`. The child and all that it started are killed at `end_s`, in
/// the time of wall_s(), or by an interrupt.
StepEnd run_step(const Step& step, double end_s, Interrupts& interrupts,
                 const std::function<void(std::string_view)>& take);

}  // namespace mm::node

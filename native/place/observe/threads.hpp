#pragma once
#include "place/observe/state.hpp"

namespace mm::place::observe {

/// Samples threads: their masks, the CPUs on which they ran, their times and migrations.
class ThreadSampler {
 public:
  explicit ThreadSampler(Context& context) : context_(context) {}
  void sample(ObservedProcess& process, ObservedThread& thread);

 private:
  bool is_expected(const std::vector<int>& allowed) const;
  void check_mask(ObservedProcess& process, ObservedThread& thread, std::uint64_t waited_ns);
  void sample_sched(ObservedProcess& process, ObservedThread& thread);

  Context& context_;
};

}  // namespace mm::place::observe

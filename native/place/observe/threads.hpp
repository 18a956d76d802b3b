#pragma once
#include "place/observe/state.hpp"

namespace mm::place::observe {

/// Samples threads: their masks, the CPUs on which they ran, their times and migrations.
class ThreadSampler {
 public:
  explicit ThreadSampler(Context& context) : context_(context) {}
  void sample(Process& process, Thread& thread);

 private:
  bool is_expected(const std::vector<int>& allowed) const;
  void check_mask(Process& process, Thread& thread, std::uint64_t waited_ns);
  void sample_sched(Process& process, Thread& thread);

  Context& context_;
};

}  // namespace mm::place::observe

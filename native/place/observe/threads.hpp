#pragma once
#include "seen.hpp"

namespace mm::place::observe {

/// Looks at threads: their masks, the CPUs that they ran on, their times and migrations.
class ThreadLooks {
 public:
  explicit ThreadLooks(Context& context) : context_(context) {}
  void look_at(Process& process, Thread& thread);

 private:
  bool right(const std::vector<int>& allowed) const;
  void judge_mask(Process& process, Thread& thread, std::uint64_t waited_ns);
  void look_at_sched(Process& process, Thread& thread);

  Context& context_;
};

}  // namespace mm::place::observe

#pragma once
/// What would spoil a sample, read from /proc and /sys.
#include <string>
#include <vector>

#include "json.hpp"

namespace mm {

/// Conditions of the host that matter to every record: kernel, governor, huge pages, load, allowed CPUs.
json host_conditions();
double load_1min();
std::string kernel_release();
std::string host_name();

/// Per-CPU time since boot, in ticks of the kernel's accounting (10 ms as a rule).
struct CpuTimes {
  std::vector<long long> busy, steal;  ///< index = OS CPU number; busy holds user, nice, system and interrupts
};
CpuTimes read_cpu_times();
double ticks_per_second();

}  // namespace mm

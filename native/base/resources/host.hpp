#pragma once
/// Conditions of the host that affect samples, from /proc and /sys.
#include <string>
#include <vector>

#include "base/json.hpp"

namespace mm {

/// Returns the conditions of the host for every record: Linux kernel, governor, huge pages, load, allowed CPUs.
json host_conditions();
double load_1min();
/// Returns the release of the Linux kernel of the machine whose /proc is below `root` ("": this host); "" if the tree
/// lacks it.
std::string kernel_release(const std::string& root = "");
std::string host_name();

/// Time per CPU since boot, in clock ticks (usually 10 ms).
struct CpuTimes {
  std::vector<long long> busy, steal;  ///< index: OS CPU number; busy is user, nice, system and interrupts
};
CpuTimes read_cpu_times();
double ticks_per_second();

}  // namespace mm

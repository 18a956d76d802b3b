#pragma once
/// Finds the CPUs that are busy before a job is placed.
#include <set>

namespace mm::place {

/// Returns the CPUs that were busy for most of the next 20 ms, by OS index; at once and without any if no other thread
/// of this machine is runnable.
std::set<int> cpus_in_use();

}  // namespace mm::place

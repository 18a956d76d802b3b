#pragma once
/// Checks whether a node does other work, which a check would disturb and which would disturb the check.
#include <string>

namespace mm::node {

/// Returns what else runs here: Slurm jobs other than ours, or busy CPUs; "" if nothing does. Takes a quarter of a
/// second.
std::string other_work();

}  // namespace mm::node

#pragma once
/// Whether a node does other work, which a check would disturb and which would disturb it.
#include <string>

namespace mm::node {

/// What else runs here: jobs of Slurm other than ours, or busy CPUs; "" if nothing does. Takes a quarter of a second.
std::string other_work();

}  // namespace mm::node

#pragma once
#include <string>

namespace mm::place::job {

/// The rank of this process among the ranks on this node.
struct Rank {
  int index = -1, size = 0;  ///< index -1: not a rank; size 0: the launcher does not report the number of ranks
  std::string job;           ///< shared by the ranks of one launch
};

/// Reads the rank from the variables of MPI libraries and launchers. Throws UsageError if one is not a number.
Rank rank_of_environment();

}  // namespace mm::place::job

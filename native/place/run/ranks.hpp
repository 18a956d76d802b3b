#pragma once
#include <string>

namespace mm::place::job {

/// Which of the ranks on this node this process is.
struct Rank {
  int index = -1, size = 0;  ///< -1: of none; 0: the launcher does not say how many
  std::string job;           ///< what the ranks of one launch have in common
};

/// By the variables of MPI libraries and launchers. UsageError: one is not a number.
Rank rank_of_environment();

}  // namespace mm::place::job

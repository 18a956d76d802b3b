#pragma once
/// One timed block of a case on all ranks.
#include <cstdint>
#include <string>
#include <vector>

#include "mpi/harness/case.hpp"

namespace mm::mpi {

struct Block {
  double seconds = 0;  ///< per iteration, on the slowest rank
  int marks = 0;       ///< mm::Mark, of all ranks
  std::vector<double> ranks;
  Values extra;        ///< the case's extra metrics
  double begun_s = 0;  ///< by this rank's wall_s()
};

/// The same on all ranks, except for `block.begun_s`.
struct TimedBlock {
  double ended_s = 0;  ///< by rank 0's wall_s()
  Block block;
};

/// Runs `iterations` on every participating rank. Collective.
TimedBlock time_block(const Case& c, std::uint64_t iterations);

/// A description of the first defect on the lowest rank, or "" if there is none. The same on all ranks. Collective.
std::string find_defect(const Case& c, std::uint32_t tag, bool whole);

}  // namespace mm::mpi

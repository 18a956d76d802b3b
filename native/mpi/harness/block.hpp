#pragma once
/// One timed block of a case on all ranks.
#include <cstdint>
#include <string>
#include <vector>

#include "mpi/harness/case.hpp"

namespace mm::mpi {

struct BlockSample {
  double seconds = 0;  ///< time per iteration in s, on the slowest rank
  int marks = 0;       ///< mm::Mark bits of all ranks
  std::vector<double> ranks;
  Values extra;        ///< values of the case's extra metrics
  double begun_s = 0;  ///< by this rank's wall_s()
};

/// The result of a timed block. It is the same on all ranks, except for `block.begun_s`.
struct TimedBlock {
  double ended_s = 0;  ///< by rank 0's wall_s()
  BlockSample block;
};

/// Runs `iterations` on every participating rank and returns their time. Collective.
TimedBlock time_block(const Case& c, std::uint64_t iterations);

/// Returns a description of the first defect on the lowest rank, or "" if there is no defect. The result is the same on
/// all ranks. Collective.
std::string find_defect(const Case& c, std::uint32_t tag, bool whole);

}  // namespace mm::mpi

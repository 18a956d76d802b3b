#pragma once
/// One timed block of a case on all ranks.
#include <cstdint>
#include <string>
#include <vector>

#include "mpi/harness/case.hpp"

namespace mm::mpi {

struct Block {
  double seconds = 0;  ///< an iteration, the slowest rank's
  int marks = 0;       ///< mm::Mark, of all ranks
  std::vector<double> ranks;
  Values also;         ///< the case's further metrics
  double begun_s = 0;  ///< by this rank's wall_s()
};

/// The same on all ranks, but for `block.begun_s`.
struct TimedBlock {
  double ended_s = 0;  ///< by rank 0's wall_s()
  Block block;
};

/// Runs so many iterations on every rank that takes part. Collective.
TimedBlock time_block(const Case& c, std::uint64_t iterations);

/// "" or the first defect of the lowest rank, in words; the same on all ranks. Collective.
std::string find_defect(const Case& c, std::uint32_t tag, bool whole);

}  // namespace mm::mpi

#pragma once
/// The measuring loop of the MPI instruments. It verifies each case, determines the iterations of a block, and then
/// runs rounds of blocks in shuffled order. All ranks start a block at once and are observed; the data are verified
/// after the block.
#include <vector>

#include "base/harness/instrument.hpp"
#include "mpi/harness/case.hpp"

namespace mm::mpi {

/// Measures the cases within `share` of the remaining budget. A case with wrong data is reported as absent, with rank,
/// word, expected and actual value. Returns the medians by case, NaN where a case is absent. If `tied`, all cases
/// continue until the last one is done. Otherwise each case ends on its own, and on a machine whose speed varies one
/// case may have covered more of a slow phase than another. Collective.
std::vector<double> measure(Run& run, std::vector<Case> cases, double share, bool tied = false);

/// Returns whether the budget is spent, so that nothing new may start. Rank 0 decides for all ranks. Collective.
bool too_late(const Run& run);
/// Returns whether this process has timed a block, or resumed a run that had one. Until then the most advanced case may
/// exceed the budget, because otherwise a short budget would be spent on verification without a result. The same on
/// every rank.
bool any_block_timed();

}  // namespace mm::mpi

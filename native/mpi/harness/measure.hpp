#pragma once
/// The measuring loop of the MPI instruments: verify each case, determine the iterations of a block, then run rounds of
/// blocks in shuffled order. All ranks start a block at once and are observed; the data are verified after it.
#include <vector>

#include "base/instrument.hpp"
#include "mpi/harness/case.hpp"

namespace mm::mpi {

/// Measures the cases within `share` of the remaining budget. Collective. A case with wrong data is reported absent,
/// with rank, word, expected and actual value. Returns the medians by case, NaN where absent. `tied`: all cases
/// continue until the last one is done. Otherwise each ends on its own, and on a machine whose speed varies one case
/// may have covered more of a slow phase than another.
std::vector<double> measure(Run& run, std::vector<Case> cases, double share, bool tied = false);

/// Whether the budget is spent, so that nothing new may start: rank 0 decides for all. Collective.
bool too_late(const Run& run);
/// Whether this process has timed a block, or resumed a run with one. Until then the most advanced case may exceed the
/// budget, or a short budget would be spent on verification without a result. The same on every rank.
bool any_block_timed();

}  // namespace mm::mpi

#pragma once
/// The one loop that measures among ranks: verify, find how many iterations make a block, then rounds of blocks in
/// shuffled order. All ranks begin a block at once and are observed; the data are verified after it.
#include <vector>

#include "base/instrument.hpp"
#include "mpi/harness/case.hpp"

namespace mm::mpi {

/// Measures the cases, which share `share` of the time that is left of the budget. Collective. What fails to bring the
/// right data is reported absent, with rank, word, expected and got. Returns the medians by case, NaN where absent.
/// `tied`: all go on until the last is done. Else each ends by itself, and on a machine that changes its pace one may
/// have seen more of a slow stretch than the other.
std::vector<double> measure(Run& run, std::vector<Case> cases, double share, bool tied = false);

/// Whether the budget is spent so far that nothing new may be begun: rank 0 decides for all. Collective.
bool too_late(const Run& run);
/// Whether this process has timed a block, or resumed a run that had. Until then nothing is too late for the case that
/// is furthest, or a short budget would be spent on proofs without a result. The same on every rank.
bool any_block_timed();

}  // namespace mm::mpi

#pragma once
/// The state of a case during measurement.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/harness/instrument.hpp"
#include "mpi/harness/block.hpp"
#include "mpi/harness/case.hpp"

namespace mm::mpi {

constexpr std::size_t kMinSamples = 7;

struct CaseProgress {
  Case spec;
  std::size_t index = 0;
  std::uint64_t iterations = 1;  ///< per block
  std::vector<BlockSample> blocks;
  bool done = false, resumed = false;
  std::string start, failure;
  double spent_s = 0;
  double value = std::numeric_limits<double>::quiet_NaN();  ///< median, once the case is done

  /// Returns the time per iteration in s, of all blocks or only of the undisturbed ones.
  std::vector<double> samples(bool undisturbed) const;
  /// Returns whether only undisturbed blocks count, because a disturbance is not a property of the library. Returns
  /// false if fewer than half of the blocks would remain.
  bool undisturbed_only() const;
  std::vector<std::string> flags() const;
  /// Returns whether the interval of the samples is inside `percent`.
  bool enough(double percent) const;
  /// Returns the share of the blocks that have any of these marks.
  double share_marked(int marks) const;

  /// Reports the results, or what failed, and ends the case. Collective.
  void finish(Run& run, double percent);
  /// Ends a case that never had a block. Collective.
  void finish_out_of_budget(Run& run, double percent);
  /// Restores the blocks and the median from an earlier output. Collective.
  void restore(Run& run);

 private:
  void report_absent(Run& run) const;
  json observed_conditions() const;
};

}  // namespace mm::mpi

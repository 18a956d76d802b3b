#pragma once
/// A case and what has been measured of it.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/instrument.hpp"
#include "mpi/harness/block.hpp"
#include "mpi/harness/case.hpp"

namespace mm::mpi {

constexpr std::size_t kMinSamples = 7;

struct CaseProgress {
  Case what;
  std::size_t index = 0;
  std::uint64_t iterations = 1;  ///< of a block
  std::vector<Block> blocks;
  bool done = false, resumed = false;
  std::string start, failure;
  double spent_s = 0;
  double value = std::numeric_limits<double>::quiet_NaN();  ///< median, once it is done

  /// s an iteration, of all blocks or of undisturbed ones.
  std::vector<double> samples(bool undisturbed) const;
  /// Whether only undisturbed blocks count: what others did to a block says nothing of the library. But half of the
  /// blocks gone is no measurement.
  bool undisturbed_only() const;
  std::vector<std::string> flags(double percent) const;
  /// Whether the interval of the samples is inside `percent`.
  bool enough(double percent) const;
  /// Share of the blocks with any of these marks.
  double share_marked(int marks) const;

  /// Reports results, or what failed, and ends the case. Collective.
  void finish(Run& run, double percent);
  /// Ends a case that never got a block. Collective.
  void finish_out_of_budget(Run& run, double percent);
  /// Takes over the blocks of an earlier output and its median. Collective.
  void restore(Run& run, double percent);

 private:
  void report_absent(Run& run) const;
  json observed_conditions() const;
};

}  // namespace mm::mpi

#pragma once
/// The one loop that measures among ranks: verify, find how many iterations make a block, then rounds of blocks in
/// shuffled order, each begun at once by all, watched on every rank, and checked after it.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/instrument.hpp"
#include "world.hpp"

namespace mm::comm {

/// What is wrong with a payload: the first word that is not what its owner sent.
struct Defect {
  std::string where;  ///< "north", "slot 3"
  std::uint64_t index = 0, expected = 0, got = 0;
};

/// One way of doing one thing, among all ranks. The same cases in the same order on every rank.
struct Case {
  json conditions;     ///< scalars: paradigm, protocol, words, …
  std::string metric;  ///< s an iteration, the slowest rank's
  /// Timed: so many iterations. Empty on a rank that takes no part.
  std::function<void(std::uint64_t iterations)> run;
  /// Untimed: what is sent from now on carries this tag; `whole`: every word of it, else a few.
  std::function<void(std::uint32_t tag, bool whole)> mark{};
  /// Untimed, after `run`: the first word received that does not carry it.
  std::function<std::vector<Defect>(std::uint32_t tag, bool whole)> defects{};
  double share = 1;      ///< of an iteration that the metric is: a half where it is a round trip
  double bytes = 0;      ///< sent and received by all ranks an iteration: "bandwidth_net", unless 0
  bool passive = false;  ///< the target does not wait: what came is looked at only when all have returned
};

/// A word of payload: which iteration's, whose and which one.
inline std::uint64_t payload(std::uint32_t tag, int owner, int side, std::uint64_t index) {
  return (std::uint64_t{tag & 0xffff} << 48) | (static_cast<std::uint64_t>(owner & 0xffff) << 32) |
         (static_cast<std::uint64_t>(side & 0xf) << 28) | (index & 0xfffffff);
}

/// Indices at which a payload is marked and checked between blocks.
std::vector<std::size_t> samples_of(std::size_t words);

/// Measures the cases, which share `share` of the time that is left of the budget. Collective. What fails to bring the
/// right data is reported absent, with rank, word, expected and got. Returns the medians by case, NaN where absent.
std::vector<double> measure(Run& run, std::vector<Case> cases, double share);

}  // namespace mm::comm

#pragma once
/// A case: one way of doing one thing among all ranks, with what proves its data.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/instrument.hpp"

namespace mm::mpi {

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
  /// It cannot be had here: why, or "" where that was said before. Only conditions and metric count then.
  std::optional<std::string> missing{};
  std::string enable{};

  // Of programs, which prove more than words and tell more than one time.
  /// An iteration takes so long that a block is one, and that it is proven once before it is timed.
  bool single = false;
  /// Untimed, collective, after `run`: what is wrong, in words and the same on all ranks, or "".
  std::function<std::string()> proof{};
  /// Further metrics of a block, which need no interval of the asked width.
  std::vector<std::string> also{};
  /// Untimed, collective, after a block: their values, the same on all ranks.
  std::function<Values()> values{};
  /// Collective, at the end: conditions to add.
  std::function<json()> observe{};
  /// If given, the flags of its results are added here, for what is derived from them. The same on all ranks.
  std::shared_ptr<std::set<std::string>> flags{};
  /// If given, the metric in every round, NaN in those that do not count. The same on all ranks.
  std::shared_ptr<std::vector<double>> rounds{};
};

/// A word of payload: which iteration's, whose and which one.
inline std::uint64_t payload(std::uint32_t tag, int owner, int side, std::uint64_t index) {
  return (std::uint64_t{tag & 0xffff} << 48) | (static_cast<std::uint64_t>(owner & 0xffff) << 32) |
         (static_cast<std::uint64_t>(side & 0xf) << 28) | (index & 0xfffffff);
}

/// Visits every index of a payload, or the few at which it is marked and checked between blocks.
template <class Visit>
void each_word(std::size_t words, bool whole, const Visit& visit) {
  if (whole || words <= 4)
    for (std::size_t i = 0; i < words; ++i) visit(i);
  else
    for (const std::size_t i : {std::size_t{0}, words / 3, words / 2, words - 1}) visit(i);
}

}  // namespace mm::mpi

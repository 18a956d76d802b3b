#pragma once
/// A case: one operation by one method among all ranks, and the verification of its data.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/harness/instrument.hpp"

namespace mm::mpi {

/// The first word of a payload that differs from what its owner sent.
struct Defect {
  std::string where;  ///< "north", "slot 3"
  std::uint64_t index = 0, expected = 0, got = 0;
};

/// One operation by one method among all ranks. All ranks have the same cases in the same order.
struct Case {
  json conditions;     ///< scalars: paradigm, protocol, words, …
  std::string metric;  ///< name of the metric in s per iteration, on the slowest rank
  /// The timed part. Empty on a rank that does not participate.
  std::function<void(std::uint64_t iterations)> run;
  /// Untimed: fills the payload of later messages with this tag; if `whole`, every word and not only a sample.
  std::function<void(std::uint32_t tag, bool whole)> fill{};
  /// Untimed, after `run`: returns the first received word without this tag.
  std::function<std::vector<Defect>(std::uint32_t tag, bool whole)> defects{};
  double share = 1;      ///< the metric as a share of an iteration: a half where an iteration is a round trip
  double bytes = 0;      ///< bytes that all ranks send and receive per iteration: "bandwidth_net", unless 0
  bool passive = false;  ///< whether the target does not wait, so that verification needs a barrier first
  /// Why the case is absent here, or "" if that was already reported. If it is set, only conditions and metric are
  /// used.
  std::optional<std::string> missing{};
  std::string enable{};

  // For applications and NPB kernels, which verify more than words and have further metrics.
  /// True if one iteration is long enough for a block. It is then verified once before it is timed.
  bool single = false;
  /// Untimed, collective, after `run`: returns a description of what is wrong, the same on all ranks, or "".
  std::function<std::string()> verify{};
  /// Extra metrics of a block. Their intervals need not reach the requested width.
  std::vector<std::string> extra_metrics{};
  /// Untimed, collective, after a block: returns the values of the extra metrics, the same on all ranks.
  std::function<Values()> values{};
  /// Collective, at the end: returns conditions to add.
  std::function<json()> observe{};
  /// If not null, collects the flags of the results for derived metrics, the same on all ranks.
  std::shared_ptr<std::set<std::string>> flags{};
  /// If not null, collects the metric per round, NaN for excluded blocks, the same on all ranks.
  std::shared_ptr<std::vector<double>> rounds{};
};

/// Returns a word of payload, which identifies the iteration, the owner, the side and the index.
inline std::uint64_t payload(std::uint32_t tag, int owner, int side, std::uint64_t index) {
  return (std::uint64_t{tag & 0xffff} << 48) | (static_cast<std::uint64_t>(owner & 0xffff) << 32) |
         (static_cast<std::uint64_t>(side & 0xf) << 28) | (index & 0xfffffff);
}

/// Visits every index of a payload, or the few that are filled and verified between blocks.
template <class Visit>
void each_word(std::size_t words, bool whole, const Visit& visit) {
  if (whole || words <= 4)
    for (std::size_t i = 0; i < words; ++i) visit(i);
  else
    for (const std::size_t i : {std::size_t{0}, words / 3, words / 2, words - 1}) visit(i);
}

}  // namespace mm::mpi

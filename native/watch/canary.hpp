#pragma once
/// The canary: timed loads that miss all caches, and their latency as a function of other traffic on this machine.
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/resources/memory.hpp"
#include "kernels/chase.hpp"
#include "watch/source.hpp"

namespace mm::watch {

/// Walks memory of one node. It flushes the lines of each walk, so that the next one goes to memory whatever the size
/// of the caches. All lines lie in one huge page, so that address translation is not measured.
class Walker {
 public:
  /// Throws if the memory is unavailable.
  Walker(int node, bool bound, std::uint64_t seed);
  /// Returns the latency of a load in s, the median of 24 chunks of 32; takes about 0.2 ms.
  double walk();

 private:
  std::shared_ptr<Arena> arena_;
  Link* at_;
};

/// The traffic of others, B/s, as a function of the canary's latency: a curve with a band, from `calibrate`.
class LoadedCurve {
 public:
  LoadedCurve() = default;
  /// Reads points [B/s, low, middle, high of the latency in s], in ascending B/s. Throws Failure for anything else.
  explicit LoadedCurve(const json& points);
  explicit operator bool() const { return traffic_.size() > 1; }
  /// Returns whether the latency at maximum traffic clearly exceeds the latency without traffic.
  bool shows_traffic() const { return traffic_.size() > 1 && low_.back() > high_.front(); }
  double max_traffic() const { return traffic_.empty() ? 0 : traffic_.back(); }

  struct Estimate {
    double low, middle, high;  ///< B/s
  };
  /// Returns the traffic at which a walk's median has this latency, which lies in [low, high].
  Estimate traffic(double low, double middle, double high) const;

 private:
  std::vector<double> traffic_, low_, middle_, high_;
};

/// Measures the curve of every node: all its CPUs but one read its memory at `steps` + 1 equally spaced rates, from 0
/// to the maximum, and the canary walks on the remaining CPU. Returns the content of the file that `--canary` reads: by
/// node number, the points (`nodes`), and whether traffic shows in the curve (`tells`). Takes about `seconds` per step
/// and node.
json calibrate(const Host& host, int steps, double seconds);

}  // namespace mm::watch

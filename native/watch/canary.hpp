#pragma once
/// The canary: loads that miss every cache, timed; and how long they take at which traffic of others on this machine.
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/memory.hpp"
#include "kernels/chase.hpp"
#include "source.hpp"

namespace mm::watch {

/// Walks memory of one node. The lines it has walked are flushed afterwards, so the next walk goes to memory whatever
/// the size of the caches, and all of them lie in one huge page, so it measures no address translation.
class Walker {
 public:
  /// Throws where the memory cannot be had.
  Walker(int node, bool bound, std::uint64_t seed);
  /// s a load, the median of 24 chunks of 32; about 0.2 ms.
  double walk();
  static bool possible();  ///< whether a line can be flushed on this processor

 private:
  std::shared_ptr<Arena> arena_;
  Link* at_;
};

/// How much others move, B/s, by how long the canary's loads take: a curve with its band, made by `calibrate`.
class LoadedCurve {
 public:
  LoadedCurve() = default;
  /// From points [B/s, low, middle, high of the latency in s], by growing traffic.
  /// Throws Failure where they are not that.
  explicit LoadedCurve(const json& points);
  explicit operator bool() const { return traffic_.size() > 1; }
  /// Whether the latency with most traffic is beyond doubt longer than with none.
  bool tells() const { return traffic_.size() > 1 && low_.back() > high_.front(); }
  double most() const { return traffic_.empty() ? 0 : traffic_.back(); }

  struct Estimate {
    double low, middle, high;  ///< B/s
  };
  /// What the traffic was when a walk's median took so long, known to lie in [low, high].
  Estimate traffic(double low, double middle, double high) const;

 private:
  std::vector<double> traffic_, low_, middle_, high_;
};

/// Measures the curve of every node: its CPUs but one stream from its memory at paces of `steps` equal steps, and the
/// canary walks on the one that is left. Returns the file that `--canary` reads: `nodes`, the points of each by its
/// number, and `tells`, whether its curve does. Takes about `seconds` a step and node.
json calibrate(const Host& host, int steps, double seconds);

}  // namespace mm::watch

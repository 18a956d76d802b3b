#pragma once
/// Conditions of a point: marks of its samples, observed conditions, and flags for violated conditions.
#include <string>
#include <utility>
#include <vector>

#include "base/harness/instrument.hpp"
#include "base/marks.hpp"
#include "base/resources/host.hpp"

namespace mm {

/// A point with its measurements so far.
struct PointProgress {
  Point point;
  std::size_t index = 0;
  std::vector<std::vector<double>> samples;  ///< per metric
  std::vector<int> marks;
  /// Per sample: time of the reference loop over its best time. The loop runs before and after the burst; the smaller
  /// ratio counts.
  std::vector<double> clock_ratios;
  std::string start;
  double spent_s = 0, overhead = 0;
  std::vector<std::string> flags;  ///< flags of its results, once it is done
  bool done = false, shielded = false;
  bool wide = true;     ///< its interval is wider than requested
  bool inside = false;  ///< the burst runs on the thread of the only member; otherwise it calls team->run itself

  bool without_samples() const { return samples.empty() || samples[0].empty(); }
  double share_marked(int mark) const;
};

/// Use of the CPUs by the hypervisor and by other processes since the start. The Linux kernel accounts in ticks of
/// usually 10 ms.
class OtherUse {
 public:
  struct Shares {
    double stolen;  ///< largest share of steal time on any of the CPUs
    /// CPU time of other processes, as a share of the time of all CPUs or of the given CPUs, whichever share is larger.
    /// It excludes this process, its descendants, and its ancestors, which read its output.
    double others;
  };
  void start();
  double elapsed_s() const;
  Shares shares(const std::vector<int>& cpus) const;

 private:
  CpuTimes before_;
  double begun_s_ = 0, own_s_ = 0;
};

/// Returns the conditions and flags of a finished point. `shield` is the option's value, `percent` the requested half
/// width of the interval.
std::pair<json, std::vector<std::string>> observed(const PointProgress& progress, const std::string& shield,
                                                   double percent, const OtherUse& other);

}  // namespace mm

#pragma once
/// What a point ran under: marks of its samples, observed conditions, and flags of those that were violated.
#include <string>
#include <utility>
#include <vector>

#include "host.hpp"
#include "instrument.hpp"
#include "marks.hpp"

namespace mm {

/// A point and what has been measured of it.
struct Progress {
  Point point;
  std::size_t index = 0;
  std::vector<std::vector<double>> samples;  ///< by metric
  std::vector<int> marks;
  std::vector<double> reference_ratios;  ///< by sample: time of the reference loop over its best time
  std::string start;
  double spent_s = 0, overhead = 0;
  bool done = false, shielded = false;
  bool wide = true;     ///< its interval is wider than asked for
  bool inside = false;  ///< the burst runs on the one member's thread; else it calls team->run itself

  bool without_samples() const { return samples.empty() || samples[0].empty(); }
  double share_marked(int mark) const;
};

/// Time that a hypervisor took from CPUs since the start.
class StolenTime {
 public:
  void start();
  double elapsed_s() const;
  /// The largest share of the time since the start that was stolen from one of the CPUs.
  double share(const std::vector<int>& cpus) const;

 private:
  CpuTimes before_;
  double begun_s_ = 0;
};

/// Conditions and flags of a finished point; `shield` is the option.
std::pair<json, std::vector<std::string>> observed(const Progress& progress, const std::string& shield,
                                                   const StolenTime& stolen);

}  // namespace mm

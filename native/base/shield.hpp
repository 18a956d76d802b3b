#pragma once
/// The shield of a burst: real-time priority for its team, and the other CPUs held idle.
#include <memory>
#include <string>
#include <vector>

#include "team.hpp"

namespace mm {

/// Shields a team from its construction until `release`, or its end.
class Shield {
 public:
  /// `kind` is off, on or hold; hold also occupies those of `cpus` that the team does not use.
  Shield(Team& team, const std::string& kind, const std::vector<int>& cpus);
  ~Shield();
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;

  /// Ends it; returns how long the team ran at real-time priority, in s, 0 where the kernel did not allow it.
  double release();

 private:
  class Holder;
  Team& team_;
  bool real_time_, released_ = false;
  std::unique_ptr<Holder> holder_;
  double from_s_ = 0;
};

/// Keeps real-time work below its share of any stretch of time, well below the kernel's throttle.
class RealTimeShare {
 public:
  void start();
  /// Real-time work has run for so long; sleeps for as long as it owes the others.
  void ran(double real_time_s);

 private:
  double spent_s_ = 0, window_s_ = 0;
};

}  // namespace mm

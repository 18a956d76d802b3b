#pragma once
/// Shields bursts by real-time priority for the team, and optionally keeps other processes off the other CPUs.
#include <memory>
#include <string>
#include <vector>

#include "base/resources/team.hpp"

namespace mm {

/// Shields a team from construction until `release` or destruction.
class Shield {
 public:
  /// `kind` is off, on or hold; hold also occupies the CPUs in `cpus` that the team does not use.
  Shield(Team& team, const std::string& kind, const std::vector<int>& cpus);
  ~Shield();
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;

  /// Ends the shield. Returns how long the team ran at real-time priority, in s; 0 if the Linux kernel did not permit
  /// it.
  double release();

 private:
  class Holder;
  Team& team_;
  bool real_time_, released_ = false;
  std::unique_ptr<Holder> holder_;
  double from_s_ = 0;
};

/// Keeps the share of real-time work well below the Linux kernel's throttle.
class RealTimeShare {
 public:
  void start();
  /// Accounts for real-time work of that duration, and sleeps if its share is too high.
  void ran(double real_time_s);

 private:
  double spent_s_ = 0, window_s_ = 0;
};

}  // namespace mm

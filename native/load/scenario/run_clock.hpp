#pragma once
/// Times of a run, in s after its start, as all its lines contain them.
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/clock.hpp"
#include "base/resources/host.hpp"

namespace mm::load {

inline constexpr double kNever_s = std::numeric_limits<double>::infinity();

/// Starts on construction.
class RunClock {
 public:
  /// Returns the time in s after the start.
  double now() const { return wall_s() - begin_s_; }
  /// Converts clock ticks after boot to s after the start.
  double of_boot_ticks(std::uint64_t ticks) const { return static_cast<double>(ticks) / ticks_per_second() - boot_s_; }

 private:
  double begin_s_ = wall_s();
  double boot_s_ = static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9;  ///< s from boot to the start
};

/// Returns the CPU time of this process, s.
inline double own_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// Returns a time rounded to whole nanoseconds, as lines contain it.
inline double rounded(double s) { return std::round(s * 1e9) / 1e9; }

}  // namespace mm::load

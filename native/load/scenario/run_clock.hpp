#pragma once
/// Times of a run, in s after its start, as all its lines have them.
#include <cmath>
#include <cstdint>
#include <limits>

#include "clock.hpp"
#include "host.hpp"

namespace mm::load {

inline constexpr double kNever_s = std::numeric_limits<double>::infinity();

/// Starts on construction.
class RunClock {
 public:
  /// s after the start.
  double now() const { return wall_s() - begin_s_; }
  /// Converts clock ticks after boot.
  double of_boot_ticks(std::uint64_t ticks) const { return static_cast<double>(ticks) / ticks_per_second() - boot_s_; }

 private:
  double begin_s_ = wall_s();
  double boot_s_ = static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9;  ///< from boot to the start
};

/// CPU time of this process, s.
inline double own_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// Rounded to whole nanoseconds, as written in lines.
inline double rounded(double s) { return std::round(s * 1e9) / 1e9; }

}  // namespace mm::load

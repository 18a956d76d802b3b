#pragma once
/// Times of a run: all lines that it writes give seconds after it began.
#include <cmath>
#include <cstdint>
#include <limits>

#include "clock.hpp"
#include "host.hpp"

namespace mm::load {

inline constexpr double kNever_s = std::numeric_limits<double>::infinity();

/// Starts with its construction.
class RunClock {
 public:
  /// s after the start.
  double now() const { return wall_s() - begin_s_; }
  /// The same of a time that the operating system gives in clock ticks after boot.
  double of_boot_ticks(std::uint64_t ticks) const { return static_cast<double>(ticks) / ticks_per_second() - boot_s_; }

 private:
  double begin_s_ = wall_s();
  double boot_s_ = static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9;  ///< from boot to the start
};

/// CPU time of this process, s.
inline double own_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// To whole nanoseconds, as lines have it.
inline double rounded(double s) { return std::round(s * 1e9) / 1e9; }

}  // namespace mm::load

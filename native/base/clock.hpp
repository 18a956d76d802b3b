#pragma once
/// The cheapest invariant clock: the time-stamp counter if it is invariant, otherwise the Linux kernel's raw monotonic
/// clock. The tick rate is calibrated once at start.
#include <sys/time.h>

#include <cstdint>
#include <ctime>
#include <string>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace mm {

using Ticks = std::uint64_t;

inline Ticks kernel_ns(clockid_t id = CLOCK_MONOTONIC_RAW) noexcept {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<Ticks>(t.tv_sec) * 1'000'000'000u + static_cast<Ticks>(t.tv_nsec);
}

/// Reads the counter after all earlier loads have completed and before any later one starts.
inline Ticks ticks() noexcept {
#if defined(__x86_64__)
  unsigned aux;
  const Ticks t = __rdtscp(&aux);
  _mm_lfence();
  return t;
#elif defined(__aarch64__)
  Ticks t;
  asm volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(t)::"memory");
  return t;
#else
  return kernel_ns();
#endif
}

struct ClockInfo {
  std::string name;         ///< "tsc", "cntvct" or "monotonic_raw"
  double seconds_per_tick;  ///< s, calibrated against CLOCK_MONOTONIC_RAW
  double overhead_s;        ///< s, median of back-to-back reads
  bool invariant;           ///< as the processor declares (constant_tsc and nonstop_tsc)
};

/// Returns the properties of the clock, which is calibrated on first use (about 20 ms). Raises Absent if the processor
/// lacks rdtscp. A program calls this function before `ticks`, which does not check.
const ClockInfo& clock_info();

inline double seconds(Ticks ticks) { return static_cast<double>(ticks) * clock_info().seconds_per_tick; }

inline double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

/// Returns the wall time in seconds since an arbitrary start; for budgets, not for samples.
inline double wall_s() { return static_cast<double>(kernel_ns(CLOCK_MONOTONIC)) * 1e-9; }

/// Returns the current time in UTC as ISO 8601 with milliseconds.
std::string utc_now();

/// Performs a chain of `adds` dependent additions of a register, which take one clock cycle each. Additions of a
/// constant would not suit, because processors since Golden Cove execute several of them per cycle when they rename
/// registers. Returns the sum, so that the compiler keeps the chain.
inline std::uint64_t dependent_adds(std::uint64_t adds) noexcept {
  std::uint64_t x = adds, step = 3;
#if defined(__x86_64__)
  for (std::uint64_t i = adds / 16; i != 0; --i)
    asm volatile(
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
        "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
        : "+r"(x)
        : "r"(step)
        : "cc");
#elif defined(__aarch64__)
  for (std::uint64_t i = adds / 8; i != 0; --i)
    asm volatile(
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\t"
        "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1"
        : "+r"(x)
        : "r"(step));
#else
  for (std::uint64_t i = adds; i != 0; --i) asm volatile("" : "+r"(x += step) : "r"(step));
#endif
  return x;
}

}  // namespace mm

#include "base/clock.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <vector>

#include "base/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mm {
namespace {

/// Raises Absent if the processor lacks the instruction that `ticks` reads the counter with, which would end the
/// program.
void require_counter() {
#if defined(__x86_64__)
  constexpr unsigned kRdtscp = 1U << 27;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) == 0 || (edx & kRdtscp) == 0)
    throw Absent(
        "this processor lacks the instruction rdtscp, with which times are measured",
        "in a virtual machine, choose a processor model that has rdtscp, such as host; otherwise, measure on a "
        "processor of 2008 or later");
#endif
}

bool declared_invariant() {
#if defined(__x86_64__)
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("flags", 0) == 0)
      return line.find(" constant_tsc") != std::string::npos && line.find(" nonstop_tsc") != std::string::npos;
  return false;
#else
  return true;
#endif
}

/// Reads both clocks back to back and keeps the pair with the shortest bracket, which has the least noise.
std::pair<Ticks, Ticks> paired_read() {
  Ticks best = ~Ticks{0}, at_ns = 0, at_ticks = 0;
  for (int i = 0; i < 50; ++i) {
    const Ticks before = ticks(), ns = kernel_ns(), after = ticks();
    if (after - before < best) best = after - before, at_ns = ns, at_ticks = before + (after - before) / 2;
  }
  return {at_ticks, at_ns};
}

ClockInfo calibrate() {
  require_counter();
  ClockInfo info{};
#if defined(__x86_64__)
  info.name = "tsc";
#elif defined(__aarch64__)
  info.name = "cntvct";
#else
  info.name = "monotonic_raw";
#endif
  info.invariant = declared_invariant();
  const auto [t0, n0] = paired_read();
  Ticks now = n0;
  while (now - n0 < 20'000'000) now = kernel_ns();
  const auto [t1, n1] = paired_read();
  info.seconds_per_tick = static_cast<double>(n1 - n0) * 1e-9 / static_cast<double>(t1 - t0);
  std::vector<Ticks> gaps;
  for (int i = 0; i < 1001; ++i) {
    const Ticks a = ticks(), b = ticks();
    gaps.push_back(b - a);
  }
  std::nth_element(gaps.begin(), gaps.begin() + 500, gaps.end());
  info.overhead_s = static_cast<double>(gaps[500]) * info.seconds_per_tick;
  return info;
}

}  // namespace

const ClockInfo& clock_info() {
  static const ClockInfo info = calibrate();
  return info;
}

std::string utc_now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  std::tm utc{};
  gmtime_r(&t.tv_sec, &utc);
  std::array<char, 40> text{};
  const auto n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + n, text.size() - n, ".%03ldZ", t.tv_nsec / 1'000'000);
  return text.data();
}

}  // namespace mm

#include "place/sample/in_use.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "base/resources/host.hpp"
#include "base/text.hpp"
#include "sys/files.hpp"

namespace mm::place {
namespace {

constexpr std::chrono::milliseconds kSample{20};
constexpr double kBusy = 0.5;  // least share of the sample

/// Returns whether threads other than this one are runnable: the fourth word of loadavg is running/existing.
bool others_are_runnable() {
  const std::string text = read_text("/proc/loadavg");
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return true;
  const std::size_t begin = text.rfind(' ', slash) + 1;
  return text.substr(begin, slash - begin) != "1";
}

}  // namespace

std::set<int> cpus_in_use() {
  if (!others_are_runnable()) return {};
  const CpuTimes before = read_cpu_times();
  std::this_thread::sleep_for(kSample);
  const CpuTimes after = read_cpu_times();
  const double ticks = kBusy * std::chrono::duration<double>(kSample).count() * ticks_per_second();
  std::set<int> in_use;
  for (std::size_t cpu = 0; cpu < std::min(before.busy.size(), after.busy.size()); ++cpu)
    if (static_cast<double>(after.busy[cpu] - before.busy[cpu]) >= ticks) in_use.insert(static_cast<int>(cpu));
  return in_use;
}

}  // namespace mm::place

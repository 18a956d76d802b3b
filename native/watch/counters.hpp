#pragma once
/// Hardware (and the kernel's own) counters: PMUs of the event_source tree, and how their events are written.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/counts.hpp"
#include "definitions.hpp"

namespace mm::watch {

/// A folder of /sys/bus/event_source/devices.
struct Pmu {
  std::string name, folder;
  std::uint32_t type = 0;
  std::vector<int> cpus;  ///< that its counters are read on; none: every CPU
};

/// All PMUs below a root, by name, those with numbers in the order of the numbers.
std::vector<Pmu> find_pmus(const std::string& root);

using perf::Counts;
using perf::Encoding;
using perf::Kernel;
using perf::real_kernel;

/// `event=0x04,umask=0x3` by the bit fields of the PMU's format; none where a term is unknown or no number.
std::optional<Encoding> encode(const std::string& pmu_folder, std::string_view terms);
/// An event by its alias, or else by its terms.
std::optional<Encoding> encode(const std::string& pmu_folder, const EventDefinition& event);

}  // namespace mm::watch

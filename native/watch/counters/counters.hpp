#pragma once
/// Counters of the hardware and of the Linux kernel: PMUs of the event_source tree, and the encoding of their events.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/resources/counts.hpp"
#include "watch/counters/definitions.hpp"

namespace mm::watch {

/// A folder of /sys/bus/event_source/devices.
struct Pmu {
  std::string name, folder;
  std::uint32_t type = 0;
  std::vector<int> cpus;  ///< CPUs on which its counters are read; empty: every CPU
};

/// Returns all PMUs under a root, by name, with trailing numbers in numeric order.
std::vector<Pmu> find_pmus(const std::string& root);

using perf::Encoding;
using perf::PerfKernel;
using perf::PmuCounts;
using perf::real_kernel;

/// Encodes `event=0x04,umask=0x3` by the bit fields of the PMU's format. Returns nullopt if a term is unknown or
/// invalid.
std::optional<Encoding> encode(const std::string& pmu_folder, std::string_view terms);
/// Encodes an event by its alias, or else by its terms.
std::optional<Encoding> encode(const std::string& pmu_folder, const EventDefinition& event);

}  // namespace mm::watch

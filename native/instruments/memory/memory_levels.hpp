// Levels of the memory hierarchy that a curve of latency over footprint shows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/harness/stats.hpp"

namespace mm {

/// A plateau of the curve, with its place in the hierarchy.
struct MemoryLevel {
  Plateau plateau;
  int number;        ///< 1 for the first cache
  bool is_memory;    ///< whether it is the memory behind all caches
  bool end_is_seen;  ///< whether the curve rises after it, so that the end of the plateau is the capacity of the level
};

/// Returns the levels, from small to large.
///
/// A curve need not begin in the first cache, since a budget may end before small footprints are measured: levels are
/// counted from the smallest cache that holds the first footprint. The last level is memory if it extends beyond every
/// cache and the curve hardly rises after it: the curve either ends on this level, or ends below 2.5 times the latency
/// of this level, as if only misses of the TLB raised it. Level 1 is never memory: a curve without a step does not show
/// which level serves the loads.
///
/// @param footprints in bytes, ascending
/// @param latencies in s, one per footprint
/// @param caches bytes of each level of cache, the first level first; 0 where the operating system does not report it
std::vector<MemoryLevel> memory_levels(std::span<const std::size_t> footprints, std::span<const double> latencies,
                                       std::span<const std::size_t> caches);

}  // namespace mm

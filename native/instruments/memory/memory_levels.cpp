#include "instruments/memory/memory_levels.hpp"

#include <algorithm>

namespace mm {

std::vector<MemoryLevel> memory_levels(std::span<const std::size_t> footprints, std::span<const double> latencies,
                                       std::span<const std::size_t> caches) {
  const std::vector<Plateau> plateaus = levels(latencies);
  std::size_t largest = 0;
  int number = 1;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    largest = std::max(largest, caches[i]);
    if (caches[i] > 0 && caches[i] < footprints.front()) number = static_cast<int>(i) + 2;
  }
  std::vector<MemoryLevel> result;
  for (const Plateau& plateau : plateaus) {
    const bool is_last = result.size() + 1 == plateaus.size();
    const bool at_end = plateau.last + 1 == footprints.size();
    const bool beyond_caches = footprints[plateau.last] > largest;
    const bool holds = at_end || latencies.back() < 2.5 * plateau.level;
    const bool is_memory = number > 1 && is_last && beyond_caches && holds;
    result.push_back({plateau, number++, is_memory, !is_memory && !at_end});
  }
  return result;
}

}  // namespace mm

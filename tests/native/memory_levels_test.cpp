#include "instruments/memory/memory_levels.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;
const std::vector<std::size_t> kCaches{48 * kKiB, 1 * kMiB, 32 * kMiB};

/// The levels of a curve whose footprints double from `first_bytes`: "1 cache, 2 cache without end, 3 memory".
std::string levels(std::size_t first_bytes, const std::vector<double>& latencies,
                   const std::vector<std::size_t>& caches = kCaches) {
  std::vector<std::size_t> footprints;
  for (std::size_t i = 0; i < latencies.size(); ++i) footprints.push_back(first_bytes << i);
  std::string text;
  for (const mm::MemoryLevel& level : mm::memory_levels(footprints, latencies, caches)) {
    EXPECT_FALSE(level.is_memory && level.end_is_seen);
    text += (text.empty() ? "" : ", ") + std::to_string(level.number) + (level.is_memory ? " memory" : " cache");
    if (!level.is_memory && !level.end_is_seen) text += " without end";
  }
  return text;
}

TEST(MemoryLevels, AWholeCurveHasCachesWithTheirEndsAndMemory) {
  // 8 KiB to 256 MiB
  EXPECT_EQ(levels(8 * kKiB, {1, 1, 1, 4, 4, 4, 4, 4, 15, 15, 15, 15, 15, 80, 90, 91}),
            "1 cache, 2 cache, 3 cache, 4 memory");
}

TEST(MemoryLevels, ACurveWithinTheFirstCacheShowsNoEnd) {
  EXPECT_EQ(levels(1 * kKiB, {1, 1, 1, 1, 1, 1}), "1 cache without end");
}

TEST(MemoryLevels, ACurveThatEndsInACacheHasNoMemory) {
  EXPECT_EQ(levels(8 * kKiB, {1, 1, 1, 4, 4, 4}), "1 cache, 2 cache without end");
}

TEST(MemoryLevels, WithoutSmallFootprintsLevelsAreCountedFromTheCacheOfTheFirst) {
  EXPECT_EQ(levels(64 * kMiB, {80, 81, 80, 82, 81, 80}), "4 memory");
  EXPECT_EQ(levels(2 * kMiB, {15, 15, 15, 15, 15, 80, 81, 80}), "3 cache, 4 memory");
}

TEST(MemoryLevels, UnknownCachesLeaveTheOrderOfTheCurve) {
  EXPECT_EQ(levels(8 * kKiB, {1, 1, 1, 80, 81, 80}, {0, 0, 0}), "1 cache, 2 memory");
}

TEST(MemoryLevels, MissesOfTheTlbMayRaiseTheEndOfMemory) {
  EXPECT_EQ(levels(8 * kMiB, {4, 4, 4, 80, 81, 80, 80, 120, 170}), "3 cache, 4 memory");
}

}  // namespace

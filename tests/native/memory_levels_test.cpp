#include "instruments/memory_levels.hpp"

#include <gtest/gtest.h>

namespace {

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;
const std::vector<std::size_t> kCaches{48 * kKiB, 1 * kMiB, 32 * kMiB};

/// A curve whose footprints double from `first_bytes`.
std::vector<mm::MemoryLevel> levels(std::size_t first_bytes, const std::vector<double>& latencies,
                                    const std::vector<std::size_t>& caches = kCaches) {
  std::vector<std::size_t> footprints;
  for (std::size_t i = 0; i < latencies.size(); ++i) footprints.push_back(first_bytes << i);
  return mm::memory_levels(footprints, latencies, caches);
}

TEST(MemoryLevels, AWholeCurveHasCachesWithTheirEndsAndMemory) {
  // 8 KiB to 256 MiB
  const auto result = levels(8 * kKiB, {1, 1, 1, 4, 4, 4, 4, 4, 15, 15, 15, 15, 15, 80, 90, 91});
  ASSERT_EQ(result.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result[i].number, i + 1);
  EXPECT_FALSE(result[2].is_memory);
  EXPECT_TRUE(result[2].end_is_seen);
  EXPECT_TRUE(result[3].is_memory);
  EXPECT_FALSE(result[3].end_is_seen);
}

TEST(MemoryLevels, ACurveWithinTheFirstCacheShowsNoEnd) {
  const auto result = levels(1 * kKiB, {1, 1, 1, 1, 1, 1});
  ASSERT_EQ(result.size(), 1U);
  EXPECT_EQ(result[0].number, 1);
  EXPECT_FALSE(result[0].is_memory);
  EXPECT_FALSE(result[0].end_is_seen);
}

TEST(MemoryLevels, ACurveThatEndsInACacheHasNoMemory) {
  const auto result = levels(8 * kKiB, {1, 1, 1, 4, 4, 4});
  ASSERT_EQ(result.size(), 2U);
  EXPECT_FALSE(result[1].is_memory);
  EXPECT_FALSE(result[1].end_is_seen);
}

TEST(MemoryLevels, WithoutSmallFootprintsLevelsAreCountedFromTheCacheOfTheFirst) {
  const auto one = levels(64 * kMiB, {80, 81, 80, 82, 81, 80});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].number, 4);
  EXPECT_TRUE(one[0].is_memory);
  const auto two = levels(2 * kMiB, {15, 15, 15, 15, 15, 80, 81, 80});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].number, 3);
  EXPECT_TRUE(two[0].end_is_seen);
  EXPECT_TRUE(two[1].is_memory);
}

TEST(MemoryLevels, UnknownCachesLeaveTheOrderOfTheCurve) {
  const auto result = levels(8 * kKiB, {1, 1, 1, 80, 81, 80}, {0, 0, 0});
  ASSERT_EQ(result.size(), 2U);
  EXPECT_EQ(result[0].number, 1);
  EXPECT_TRUE(result[1].is_memory);
}

TEST(MemoryLevels, MissesOfTheTlbMayRaiseTheEndOfMemory) {
  const std::vector<double> slow{4, 4, 4, 80, 81, 80, 80, 120, 170};
  EXPECT_TRUE(levels(8 * kMiB, slow, {48 * kKiB, 1 * kMiB, 32 * kMiB}).back().is_memory);
}

}  // namespace

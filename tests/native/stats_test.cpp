#include "base/harness/stats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace {

TEST(Median, OfOddAndEvenCounts) {
  const std::vector<double> odd{3, 1, 2}, even{4, 1, 3, 2};
  EXPECT_EQ(mm::median(odd), 2);
  EXPECT_EQ(mm::median(even), 2.5);
}

// Published table of order-statistic ranks for the median at 95 %.
TEST(MedianRank, AgreesWithTheBinomialTable) {
  EXPECT_EQ(mm::median_rank(5), 0u);
  EXPECT_EQ(mm::median_rank(6), 1u);
  EXPECT_EQ(mm::median_rank(8), 1u);
  EXPECT_EQ(mm::median_rank(9), 2u);
  EXPECT_EQ(mm::median_rank(20), 6u);
  EXPECT_EQ(mm::median_rank(50), 18u);
  EXPECT_EQ(mm::median_rank(100), 40u);
}

TEST(MedianInterval, CoversTheMedianOfASkewedDistribution) {
  std::mt19937_64 random{7};
  std::lognormal_distribution<double> noise{0, 1};
  int covered = 0;
  constexpr int kTrials = 2000;
  for (int t = 0; t < kTrials; ++t) {
    std::vector<double> samples(15);
    for (double& s : samples) s = noise(random);
    const auto interval = mm::median_interval(samples);
    if (!interval) GTEST_FAIL() << "no interval of 15 samples";
    covered += interval->first <= 1 && 1 <= interval->second;  // the median of this distribution is 1
  }
  EXPECT_GE(covered, kTrials * 0.95);
  EXPECT_LE(covered, kTrials * 0.985);  // an interval that always covers is useless
}

TEST(MedianInterval, IsRefusedBelowSixSamples) {
  const std::vector<double> five{1, 2, 3, 4, 5};
  EXPECT_FALSE(mm::median_interval(five));
}

TEST(MedianInterval, IsBetweenTheOrderStatisticsOfItsRank) {
  const std::vector<double> six{4, 6, 1, 3, 5, 2}, nine{9, 1, 8, 2, 7, 3, 6, 4, 5};
  EXPECT_EQ(mm::median_interval(six), (std::pair<double, double>{1, 6}));
  EXPECT_EQ(mm::median_interval(nine), (std::pair<double, double>{2, 8}));
}

// By the normal approximation, where the binomial terms of the exact one are too small for a double.
TEST(MedianRank, OfManySamplesContinuesThatOfFewer) {
  EXPECT_EQ(mm::median_rank(999), 469u);
  EXPECT_EQ(mm::median_rank(1000), 469u);
  EXPECT_EQ(mm::median_rank(2000), 956u);
}

TEST(InsideWidth, ComparesHalfTheIntervalWithTheMedian) {
  const std::vector<double> samples{1, 2, 3, 4, 5, 6};  // 3.5, and 2.5 to either side: 71.4 %
  EXPECT_TRUE(mm::inside_width(samples, 72));
  EXPECT_FALSE(mm::inside_width(samples, 71));
  const std::vector<double> below{-1, -2, -3, -4, -5, -6};
  EXPECT_TRUE(mm::inside_width(below, 72));
  EXPECT_FALSE(mm::inside_width(below, 71));
  EXPECT_TRUE(mm::inside_width(std::vector<double>(6, 2.0), 0));
  EXPECT_FALSE(mm::inside_width(std::vector<double>(5, 2.0), 100)) << "five samples have no interval";
}

TEST(Plateaus, HaveTheirNumberOfPointsAndTheirTolerance) {
  const std::vector<double> y{1, 1.5, 8, 8, 8, 40, 300};
  EXPECT_EQ(mm::plateaus(y, 0.5).size(), 2u) << "1.5 is just within";
  EXPECT_EQ(mm::plateaus(y, 0.49).size(), 1u);
  EXPECT_EQ(mm::plateaus(y, 0.5, 3).size(), 1u);
  EXPECT_TRUE(mm::plateaus(y, 0.5, 4).empty());
  EXPECT_EQ(mm::plateaus(y, 0.5, 1).size(), 4u);
  // Of two stretches of the same length the flatter one is the plateau.
  const auto flatter = mm::plateaus(std::vector<double>{1.0, 1.1, 1.2, 1.25}, 0.15);
  ASSERT_EQ(flatter.size(), 1u);
  const auto two = mm::plateaus(std::vector<double>{10, 11.4, 11.5, 30}, 0.15);
  ASSERT_EQ(two.size(), 1u);
  const auto chosen = mm::plateaus(std::vector<double>{10, 11.4, 12, 30}, 0.15);
  ASSERT_EQ(chosen.size(), 1u);
  EXPECT_EQ(chosen[0].first, 1u);
  EXPECT_EQ(chosen[0].last, 2u);
}

TEST(Plateaus, NeighboursOfOneLevelAreOneWithTheMedianOfBoth) {
  // The spike in the middle belongs to neither stretch, and the second is within the tolerance of the first.
  const std::vector<double> y{10, 10, 10, 14, 11, 11, 11, 40};
  const auto found = mm::plateaus(y, 0.1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 0u);
  EXPECT_EQ(found[0].last, 6u);
  EXPECT_EQ(found[0].level, 11);
}

TEST(Levels, ArePlateausThatAreFarEnoughApart) {
  const std::vector<double> y{10, 10, 13, 13, 20, 20};
  const auto found = mm::levels(y, 1.4);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].last, 3u);
  EXPECT_EQ(found[0].level, 11.5);  // the median of both stretches
  EXPECT_EQ(found[1].level, 20);
  EXPECT_EQ(mm::levels(y, 1.3).size(), 3u) << "as far apart as that";
  EXPECT_EQ(mm::levels(y, 1.8).size(), 1u);
}

// Three levels with noise and one point on each slope.
TEST(Plateaus, FindsLevelsAndNotSlopes) {
  const std::vector<double> y{1.70, 1.71, 1.69, 1.70, 4.0, 6.1, 6.0, 6.2, 15, 35, 36, 34.5, 80, 139, 141, 150, 156};
  const auto found = mm::plateaus(y, 0.15);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].first, 0u);
  EXPECT_EQ(found[0].last, 3u);
  EXPECT_NEAR(found[1].level, 6.1, 0.01);
  EXPECT_NEAR(found[2].level, 35, 0.01);
  EXPECT_EQ(found[3].last, 16u);
}

TEST(Plateaus, AnEverRisingCurveHasNone) {
  std::vector<double> y;
  for (int i = 0; i < 12; ++i) y.push_back(std::pow(1.3, i));
  EXPECT_TRUE(mm::plateaus(y, 0.15).empty());
}

TEST(Plateaus, TranslationMissesMakeNoLevelOfTheirOwn) {
  const std::vector<double> y{1.25, 1.25, 1.26, 3.8, 3.8, 15, 15.2, 40, 111, 115, 128, 130, 131, 144, 165};
  ASSERT_EQ(mm::plateaus(y).size(), 5u);
  const auto found = mm::levels(y);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[3].first, 8u);
  EXPECT_GE(found[3].last, 13u);
}

TEST(Plateaus, RandomStepsAreFoundWhateverTheNoise) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> noise{0.98, 1.02};
    std::uniform_int_distribution<int> length{3, 6};
    std::vector<double> y;
    std::vector<std::size_t> ends;
    double level = 1;
    for (int step = 0; step < 4; ++step, level *= 4) {
      for (int n = length(random); n > 0; --n) y.push_back(level * noise(random));
      ends.push_back(y.size() - 1);
    }
    const auto found = mm::plateaus(y, 0.15);
    ASSERT_EQ(found.size(), 4u) << "seed " << seed;
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i].last, ends[i]) << "seed " << seed;
  }
}

}  // namespace

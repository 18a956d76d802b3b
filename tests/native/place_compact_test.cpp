/// Compact sets: what the whole search finds and proves, on small problems by brute force, on larger ones by the
/// bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include "cluster_problems.hpp"
#include "place/search/bounds.hpp"

namespace {

using namespace mm::place;

// All subsets (with several units per class: all compositions) are the oracle; the seed is fixed.
TEST(Compact, FindsWhatBruteForceFindsAndNoBoundIsAboveIt) {
  std::mt19937_64 random(20260101);
  int exact = 0, searched = 0;
  for (int round = 0; round < 400; ++round) {
    const std::size_t classes = 2 + random() % 11;
    const bool single = round % 2 == 0, odd = round % 7 == 0;
    ClusterProblem p;
    int units = 0;
    for (std::size_t a = 0; a < classes; ++a) {
      p.capacity.push_back(single ? 1 : static_cast<int>(random() % (classes > 7 ? 3 : 4)));
      p.cell.push_back(static_cast<int>(a));
      units += p.capacity.back();
      p.weight.emplace_back(classes);
    }
    if (units == 0) continue;
    p.count = 1 + static_cast<int>(random() % static_cast<unsigned>(units));
    const std::int64_t spread = round % 3 == 0 ? 3 : 1000;
    for (std::size_t a = 0; a < classes; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        const auto w = static_cast<std::int64_t>(random() % static_cast<unsigned long>(spread));
        p.weight[a][b] = p.weight[b][a] = a == b && !odd ? 0 : w;  // odd: local may be farther than remote
      }
    const std::int64_t best = by_brute_force(p);
    const Cluster found = least_cluster(p);
    EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0), p.count);
    for (std::size_t a = 0; a < classes; ++a) EXPECT_LE(found.counts[a], p.capacity[a]);
    EXPECT_EQ(cost_of(p, found.counts), found.cost);
    EXPECT_EQ(found.cost, best) << "round " << round;
    EXPECT_TRUE(found.optimal) << "round " << round;
    EXPECT_LE(degree_bound(p), best) << "round " << round;
    EXPECT_LE(grid_bound(p), best) << "round " << round;
    if (round % 8 < 2) {
      EXPECT_LE(spectral_bound(p), best) << "round " << round;
    }
    exact += found.optimal ? 1 : 0;
    // Exchanges find every optimum here, so branch and bound has to find it from a bad start.
    if (const Cluster alone = by_branch_and_bound(p); alone.optimal) {
      EXPECT_EQ(alone.cost, best) << "round " << round;
      EXPECT_EQ(cost_of(p, alone.counts), best) << "round " << round;
      EXPECT_EQ(std::accumulate(alone.counts.begin(), alone.counts.end(), 0), p.count);
      ++searched;
    } else {
      EXPECT_TRUE(odd) << "round " << round;
    }
  }
  EXPECT_GT(exact, 350);
  EXPECT_GT(searched, 320);
}

// Computed by hand: of two nodes of three, a whole one and one unit of the other; never two parts where one suffices.
TEST(BranchAndBound, ClosesASetOfWholeClassesWithAPart) {
  const ClusterProblem p{{{0, 5, 9}, {5, 0, 9}, {9, 9, 0}}, {3, 3, 3}, {0, 1, 2}, 4};
  const Cluster found = by_branch_and_bound(p);
  EXPECT_TRUE(found.optimal);
  EXPECT_EQ(found.cost, 15);
  EXPECT_EQ(found.bound, 15);
  EXPECT_EQ(by_brute_force(p), 15);
  // The first class is partly used, although it is first.
  EXPECT_EQ(by_branch_and_bound({{{0, 5, 5}, {5, 0, 1}, {5, 1, 0}}, {2, 2, 2}, {0, 1, 2}, 5}).counts,
            (std::vector<int>{1, 2, 2}));
}

ClusterProblem grid(const std::vector<int>& lengths, bool ring, int each, int count) {
  ClusterProblem p;
  const int n = std::accumulate(lengths.begin(), lengths.end(), 1, std::multiplies<>());
  const auto hops = [&](int a, int b) {
    int sum = 0;
    for (std::size_t i = lengths.size(); i-- > 0; a /= lengths[i], b /= lengths[i]) {
      const int d = std::abs(a % lengths[i] - b % lengths[i]);
      sum += ring ? std::min(d, lengths[i] - d) : d;
    }
    return sum;
  };
  for (int a = 0; a < n; ++a) {
    p.capacity.push_back(each);
    p.cell.push_back(a);
    p.weight.emplace_back();
    for (int b = 0; b < n; ++b) p.weight.back().push_back(10 + 6 * hops(a, b));
  }
  p.count = count;
  return p;
}

ClusterProblem grid(int rows, int columns, bool ring, int each, int count) {
  return grid({rows, columns}, ring, each, count);
}

ClusterProblem by_chance(int units, int count, std::int64_t least, std::int64_t most, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ClusterProblem p = grid({units}, false, 1, count);
  for (std::size_t a = 0; a < p.weight.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      p.weight[a][b] = p.weight[b][a] =
          least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least));
  return p;
}

TEST(GridBound, IsTheOptimumOnToriAndMeshes) {
  for (const bool ring : {false, true})
    for (const auto& [rows, columns] : {std::pair{3, 4}, {4, 4}, {2, 7}, {3, 5}, {1, 9}})
      for (int count = 2; count <= std::min(8, rows * columns); ++count) {
        const ClusterProblem p = grid(rows, columns, ring, 1, count);
        EXPECT_EQ(grid_bound(p), by_brute_force(p)) << rows << "x" << columns << (ring ? " torus " : " mesh ") << count;
      }
  for (const std::vector<int>& lengths : {std::vector{2, 3, 3}, {3, 3, 2}, {2, 2, 4}, {2, 2, 2, 2}})
    for (const bool ring : {false, true})
      for (int count = 2; count <= 9; ++count) {
        const ClusterProblem p = grid(lengths, ring, 1, count);
        EXPECT_EQ(grid_bound(p), by_brute_force(p)) << lengths.size() << (ring ? "-d torus " : "-d mesh ") << count;
      }
  // Whole nodes of three; with a remainder it is only a bound.
  const ClusterProblem whole = grid(3, 3, false, 3, 9), rest = grid(3, 3, false, 3, 8);
  EXPECT_EQ(grid_bound(whole), by_brute_force(whole));
  EXPECT_LE(grid_bound(rest), by_brute_force(rest));
  EXPECT_GT(grid_bound(rest), 0);
}

TEST(GridBound, HoldsUnderNoise) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    ClusterProblem p = grid(3, 4, round % 2 == 0, 1, 2 + round % 5);
    for (std::size_t a = 0; a < 12; ++a)
      for (std::size_t b = 0; b < a; ++b) p.weight[a][b] = p.weight[b][a] += static_cast<std::int64_t>(random() % 9);
    EXPECT_LE(grid_bound(p), by_brute_force(p)) << "round " << round;
  }
}

// Parts with noise, and weights that differ little; the bound is only useful if it is close.
TEST(SpectralBound, IsNearTheOptimumAndNeverAboveIt) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const ClusterProblem p = by_chance(18, 6, seed < 3 ? 100 : 900, 1000, seed);
    const std::int64_t best = by_brute_force(p);
    EXPECT_LE(spectral_bound(p), best) << seed;
    EXPECT_GT(spectral_bound(p), best * 9 / 10) << seed;
  }
  // All equal: only rounding separates bound and optimum.
  const ClusterProblem same = by_chance(12, 5, 700, 701, 0);
  EXPECT_LE(spectral_bound(same), 7000);
  EXPECT_GE(spectral_bound(same), 6999);
}

TEST(Compact, BeyondBruteForceIsWithinFivePercentOfTheBound) {
  ClusterProblem held = grid({4, 4, 4}, true, 1, 16), noisy = grid({4, 4, 4}, true, 1, 16);
  std::mt19937_64 random(5);
  for (std::size_t a = 0; a < held.capacity.size(); ++a) {
    held.capacity[a] = random() % 4 == 0 ? 0 : 1;
    for (std::size_t b = 0; b < a; ++b)
      noisy.weight[a][b] = noisy.weight[b][a] = noisy.weight[a][b] * (970 + static_cast<std::int64_t>(random() % 61));
  }
  for (const ClusterProblem& p : {grid({4, 4, 4}, true, 1, 16), grid({2, 2, 2, 2, 2, 2}, false, 1, 24),
                                  grid({5, 5, 5}, true, 1, 27), grid({8, 8, 8}, true, 2, 64), held, noisy,
                                  by_chance(64, 16, 1000, 4000, 1), by_chance(64, 32, 1000, 4000, 2)}) {
    const Cluster found = least_cluster(p);
    EXPECT_EQ(cost_of(p, found.counts), found.cost);
    EXPECT_GE(found.cost, found.bound);
    EXPECT_LE(static_cast<double>(found.cost), 1.05 * static_cast<double>(found.bound)) << p.weight.size();
  }
}

// Work is counted, so a small share of it must affect what is proven, but not correctness.
TEST(Compact, WithLittleWorkStillAnswersAndItsBoundHolds) {
  ClusterProblem p = by_chance(64, 16, 1000, 4000, 1);
  const Cluster full = least_cluster(p);
  p.effort = 1e-5;
  const Cluster quick = least_cluster(p);
  EXPECT_EQ(std::accumulate(quick.counts.begin(), quick.counts.end(), 0), 16);
  EXPECT_EQ(cost_of(p, quick.counts), quick.cost);
  EXPECT_LE(quick.bound, full.cost);
  EXPECT_LT(quick.bound, full.bound);
}

TEST(Compact, OnLargerToriIsWithinFivePercentOfTheBound) {
  for (const auto& [rows, columns, each, count] :
       {std::tuple{8, 8, 1, 16}, {8, 8, 1, 11}, {4, 8, 2, 24}, {16, 16, 1, 32}, {4, 4, 16, 64}}) {
    const ClusterProblem p = grid(rows, columns, true, each, count);
    const Cluster found = least_cluster(p);
    EXPECT_GE(found.cost, found.bound);
    EXPECT_LE(static_cast<double>(found.cost), 1.05 * static_cast<double>(found.bound)) << rows << "x" << columns;
  }
}

}  // namespace

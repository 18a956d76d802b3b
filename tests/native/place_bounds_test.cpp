/// Bounds of compact sets: never above the brute-force optimum for any matrix, and close to it on hierarchies, tori and
/// meshes.
#include "place/search/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "cluster_problems.hpp"

namespace {

using namespace mm::place;

/// One of many kinds of small matrices.
ClusterProblem any_kind(Random& random, std::string& kind) {
  const std::vector<std::vector<int>> grids = {{3, 3}, {2, 5}, {4, 3}, {2, 2, 3}, {9}, {11}, {2, 2, 2}, {3, 4}, {10}};
  const int each = random() % 4 == 0 ? 2 : 1;
  const auto& lengths = grids[random() % grids.size()];
  const int grid_cells = product(lengths), n = 4 + static_cast<int>(random() % 8);
  const double noise = random() % 2 == 0 ? 0 : 0.03;
  const auto shaken = [&](double d) { return d * between(random, 1 - noise, 1 + noise); };
  const auto some = [&](int cells) { return 2 + static_cast<int>(random() % static_cast<unsigned>(cells * each - 2)); };
  switch (random() % 8) {
    case 0:
      kind = "torus";
      break;
    case 1:
      kind = "mesh";
      break;
    case 2:
      kind = "tree";
      return problem(12, each, some(12), [&](int a, int b) { return shaken(level(a, b, {2, 2, 3})); });
    case 3:
      kind = "random";
      return problem(n, each, some(n), [&](int, int) { return between(random, 11, 40); });
    case 4:
      kind = "ties";
      return problem(n, each, some(n), [&](int, int) { return 1 + static_cast<double>(random() % 2); });
    case 5:
      kind = "zeros";
      return problem(n, each, some(n), [&](int, int) { return random() % 3 == 0 ? 7 : 0; });
    case 6:
      kind = "range";
      return problem(n, each, some(n), [&](int, int) { return std::pow(10, between(random, -3, 9)); });
    default:
      kind = "alike";
      return problem(n, each, some(n), [&](int, int) { return 500 + 1e-3 * static_cast<double>(random() % 2); });
  }
  const bool ring = kind == "torus";
  ClusterProblem p =
      problem(grid_cells, each, some(grid_cells), [&](int a, int b) { return shaken(hops(a, b, lengths, ring)); });
  for (auto& capacity : p.capacity) capacity = random() % 12 == 0 ? 0 : capacity;
  p.count = std::min(p.count, std::accumulate(p.capacity.begin(), p.capacity.end(), 0));
  return p;
}

TEST(Bounds, AreNeverAboveBruteForceWhateverTheMatrix) {
  Random random(20261121);
  for (int round = 0; round < 2000; ++round) {
    std::string kind;
    const ClusterProblem p = any_kind(random, kind);
    if (p.count < 1) continue;
    const Value best = by_brute_force(p);
    const Bounded tree = tree_bound(p);
    EXPECT_LE(tree.bound, best) << kind << " " << round;
    EXPECT_GE(cost_of(p, tree.counts), best) << kind << " " << round;
    EXPECT_EQ(std::accumulate(tree.counts.begin(), tree.counts.end(), 0), p.count) << kind << " " << round;
    for (std::size_t c = 0; c < p.capacity.size(); ++c) EXPECT_LE(tree.counts[c], p.capacity[c]);
    EXPECT_LE(translation_bound(p), best) << kind << " " << round;
    EXPECT_LE(degree_bound(p), best) << kind << " " << round;
    EXPECT_LE(grid_bound(p), best) << kind << " " << round;
    if (round % 4 == 0) {
      EXPECT_LE(spectral_bound(p), best) << kind << " " << round;
      const Cluster found = least_cluster(p);
      EXPECT_EQ(found.cost, best) << kind << " " << round;
      EXPECT_EQ(found.cost, cost_of(p, found.counts)) << kind << " " << round;
      EXPECT_LE(found.bound, best) << kind << " " << round;
    }
  }
}

// If the distances between any two branches are uniform, or with two units, the bound is exact.
TEST(TreeBound, IsTheOptimumOnTreesAndOfPairs) {
  for (const std::vector<int>& branches : {std::vector{2, 2, 3}, {3, 4}, {2, 2, 2}, {2, 3, 2}})
    for (const int each : {1, 2})
      for (int count = 2; count <= 8; ++count) {
        const ClusterProblem p =
            problem(product(branches), each, count, [&](int a, int b) { return level(a, b, branches); });
        const Value best = by_brute_force(p);
        EXPECT_EQ(tree_bound(p).bound, best) << count;
        EXPECT_EQ(cost_of(p, tree_bound(p).counts), best) << count;
      }
  Random random(3);
  const ClusterProblem p = problem(40, 1, 2, [&](int, int) { return between(random, 11, 40); });
  Value least = p.weight[0][1];
  for (std::size_t a = 0; a < 40; ++a)
    for (std::size_t b = 0; b < a; ++b) least = std::min(least, p.weight[a][b]);
  EXPECT_EQ(tree_bound(p).bound, least);
}

// Computed by hand: half a ring of four is two neighbours; three of a ring of five have two pairs at one hop, one at
// two.
TEST(TranslationBound, IsNearTheOptimumOnSmallTori) {
  for (const auto& [lengths, count] :
       {std::pair{std::vector{4}, 2}, {{5}, 3}, {{4, 4}, 4}, {{4, 4}, 8}, {{2, 2, 2, 2}, 4}}) {
    const ClusterProblem p =
        problem(product(lengths), 1, count, [&](int a, int b) { return hops(a, b, lengths, true); });
    const Value best = by_brute_force(p);
    EXPECT_LE(translation_bound(p), best);
    EXPECT_GT(static_cast<double>(translation_bound(p)), 0.95 * static_cast<double>(best))
        << lengths.size() << " " << count;
  }
}

// Typical machines: measured matrices of sockets, dies and cores, and tori and meshes, including measured ones.
TEST(Compact, OnLargeMachinesIsWithinFivePercentOfTheBound) {
  Random random(4);
  const auto within = [](const ClusterProblem& p, const std::string& what) {
    const Cluster found = least_cluster(p);
    EXPECT_EQ(cost_of(p, found.counts), found.cost) << what;
    EXPECT_GE(found.cost, found.bound) << what;
    ClusterProblem without = p;  // proofs do not change the choice
    without.prove = false;
    EXPECT_EQ(least_cluster(without).counts, found.counts) << what;
    EXPECT_LE(static_cast<double>(found.cost), 1.05 * static_cast<double>(found.bound)) << what;
  };
  for (const int count : {2, 9, 32, 100, 128})
    for (const double noise : {0.0, 0.03})
      within(problem(256, 1, count,
                     [&](int a, int b) { return level(a, b, {4, 8, 8}) * between(random, 1 - noise, 1 + noise); }),
             "tree, " + std::to_string(count));
  for (const auto& [lengths, ring, noise, count] : {std::tuple{std::vector{16, 16}, true, 0.0, 100},
                                                    {{16, 16}, true, 0.03, 60},
                                                    {{16, 16}, false, 0.0, 60},
                                                    {{2, 2, 2, 2, 2, 2, 2, 2}, true, 0.0, 100},
                                                    {{4, 8, 8}, true, 0.03, 64}}) {
    const auto& of = lengths;
    const bool closed = ring;
    const double share = noise;
    within(problem(256, 1, count,
                   [&](int a, int b) { return hops(a, b, of, closed) * between(random, 1 - share, 1 + share); }),
           "grid of " + std::to_string(of.size()) + ", " + std::to_string(count));
  }
}

// Without structure the bound is weaker, but better than the bound by degree, and deterministic.
TEST(SpectralBound, OfRandomMatricesIsAboveThatByDegreeAndRepeats) {
  Random random(5);
  const ClusterProblem p = problem(128, 1, 24, [&](int, int) { return between(random, 11, 40); });
  const Value bound = spectral_bound(p);
  EXPECT_GT(static_cast<double>(bound), 1.2 * static_cast<double>(degree_bound(p)));
  EXPECT_EQ(bound, spectral_bound(p));
  EXPECT_GE(least_cluster(p).cost, bound);
}

}  // namespace

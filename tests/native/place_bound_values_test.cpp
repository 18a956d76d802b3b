/// Values of the bounds of compact sets: their limits, values computed by other means, and recorded ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "cluster_problems.hpp"
#include "place/search/bounds.hpp"

namespace mm::place {
namespace {

ClusterProblem torus(const std::vector<int>& lengths, int each, int count) {
  return problem(product(lengths), each, count, [&](int a, int b) { return hops(a, b, lengths, true); });
}
ClusterProblem mesh(const std::vector<int>& lengths, int each, int count) {
  return problem(product(lengths), each, count, [&](int a, int b) { return hops(a, b, lengths, false); });
}
ClusterProblem tree(const std::vector<int>& branches, int each, int count, double noise, std::uint64_t seed) {
  Random random(seed);
  return problem(product(branches), each, count,
                 [&](int a, int b) { return level(a, b, branches) * between(random, 1 - noise, 1 + noise); });
}
ClusterProblem by_chance(int units, int count, std::uint64_t seed) {
  Random random(seed);
  return problem(units, 1, count, [&](int, int) { return between(random, 11, 40); });
}

ClusterProblem with_effort(ClusterProblem p, double effort) {
  p.effort = effort;
  return p;
}

/// Values of floating-point methods, which may differ in their last digits between compilers.
void expect_near(Value found, double expected, const std::string& what) {
  EXPECT_NEAR(static_cast<double>(found), expected, 1e-6 * expected + 1) << what;
}

// ---------------------------------------------------------------- trees

// Two branches at a mean distance of 5 and 7 from each other: the two nearest are joined first, whatever their order.
TEST(TreeBound, JoinsTheBranchesThatAreNearestOnTheMean) {
  // Computed by hand: {0, 1} and {2, 3} are exact; across, each unit has two distances, of which one or both count.
  const ClusterProblem p = problem_of({{0, 1, 6, 8}, {1, 0, 7, 9}, {6, 7, 0, 2}, {8, 9, 2, 0}}, 3);
  const Bounded found = tree_bound(p);
  EXPECT_EQ(found.bound, 14);  // 0, 1 and 2: 1 + 6 + 7
  EXPECT_EQ(found.counts, (std::vector<int>{1, 1, 1, 0}));
}

TEST(TreeBound, OfEqualBranchesIsThatOfTheFirst) {
  const ClusterProblem p = tree({2, 2, 2}, 2, 3, 0, 1);
  const Bounded found = tree_bound(p);
  EXPECT_EQ(found.bound, 50000);  // two units of one class, one beside it
  EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0), 3);
}

TEST(TreeBound, SkipsClassesWithoutUnits) {
  ClusterProblem p = tree({2, 2, 2}, 1, 3, 0, 1);
  p.capacity = {0, 1, 0, 0, 0, 1, 0, 1};
  EXPECT_EQ(tree_bound(p).bound, by_brute_force(p));
  EXPECT_EQ(tree_bound(p).counts, (std::vector<int>{0, 1, 0, 0, 0, 1, 0, 1}));
  p.count = 1;
  EXPECT_EQ(tree_bound(p).bound, 0);
  p.capacity = {0, 0, 0, 0, 0, 0, 4, 0};
  p.count = 4;
  p.weight[6][6] = 3;
  EXPECT_EQ(tree_bound(p).bound, 18);
  EXPECT_EQ(tree_bound(p).counts, (std::vector<int>{0, 0, 0, 0, 0, 0, 4, 0}));
}

// A step for each pair of classes.
TEST(TreeBound, IsNoneWhereItWouldTakeTooMuchWork) {
  constexpr double kTreeWork = 4e6;
  const ClusterProblem p = tree({3, 4}, 1, 4, 0, 1);
  const Bounded none = tree_bound(with_effort(p, 143 / kTreeWork));
  EXPECT_EQ(none.bound, 0);
  EXPECT_TRUE(none.counts.empty());
  EXPECT_EQ(tree_bound(with_effort(p, 145 / kTreeWork)).bound, by_brute_force(p));
}

// Which branches are joined decides how much the bound is worth: recorded for matrices that are no trees.
TEST(TreeBound, OfOtherMatricesIsAsRecorded) {
  EXPECT_EQ(tree_bound(tree({2, 3, 4}, 2, 9, 0.2, 1)).bound, 917614);
  EXPECT_EQ(tree_bound(tree({2, 3, 4}, 1, 9, 0.2, 2)).bound, 1450786);
  EXPECT_EQ(tree_bound(tree({2, 3, 4}, 2, 9, 0.2, 3)).bound, 930100);
  EXPECT_EQ(tree_bound(by_chance(24, 7, 1)).bound, 311826);
  EXPECT_EQ(tree_bound(by_chance(24, 7, 2)).bound, 295110);
  EXPECT_EQ(tree_bound(by_chance(60, 20, 3)).bound, 2927157);
  ClusterProblem uneven = tree({2, 3, 4}, 1, 12, 0.4, 4);
  for (std::size_t c = 0; c < uneven.capacity.size(); ++c) uneven.capacity[c] = static_cast<int>(c % 4);
  EXPECT_EQ(tree_bound(uneven).bound, 1972214);
}

// ---------------------------------------------------------------- tori and meshes

// Optima of the linear programme by another solver (HiGHS), for all triangles; ours is at most 2e-5 below.
TEST(TranslationBound, IsTheOptimumOfItsLinearProgramme) {
  const std::tuple<std::vector<int>, int, int, double> tori[] = {{{4}, 1, 2, 16000},
                                                                 {{5}, 1, 3, 54000},
                                                                 {{4, 4}, 1, 5, 190000},
                                                                 {{4, 4}, 2, 10, 760000},
                                                                 {{6, 6}, 1, 9, 782689.655},
                                                                 {{6, 6}, 2, 18, 3130758.62},
                                                                 {{2, 2, 2, 2}, 1, 5, 190000},
                                                                 {{3, 4, 5}, 1, 12, 1377822.44},
                                                                 {{3, 4, 5}, 2, 24, 5511289.75},
                                                                 {{3, 5}, 1, 6, 276000},
                                                                 {{5, 5}, 1, 7, 424358.992},
                                                                 {{8, 8}, 1, 10, 1005000},
                                                                 {{3, 3, 4}, 1, 7, 392000}};
  for (const auto& [lengths, each, count, optimum] : tori) {
    const auto found = static_cast<double>(translation_bound(torus(lengths, each, count)));
    EXPECT_LE(found, optimum + 0.01) << lengths.size() << " " << count;
    EXPECT_GE(found, optimum * (1 - 2e-5) - 1) << lengths.size() << " " << count;
  }
}

/// A torus where a hop costs differently in each dimension.
ClusterProblem uneven_torus(const std::vector<int>& lengths, const std::vector<int>& hop, int count) {
  return problem(product(lengths), 1, count, [&](int a, int b) {
    int sum = 10;
    for (std::size_t i = lengths.size(); i-- > 0; a /= lengths[i], b /= lengths[i]) {
      const int d = std::abs(a % lengths[i] - b % lengths[i]);
      sum += hop[i] * std::min(d, lengths[i] - d);
    }
    return sum;
  });
}

TEST(TranslationBound, DistinguishesEqualDimensionsWhoseHopsCostDifferently) {
  for (const auto& [lengths, hop, count, optimum] : {std::tuple{std::vector{4, 4}, std::vector{6, 7}, 6, 300000.0},
                                                     {{5, 5}, {10, 12}, 7, 588000.0},
                                                     {{4, 4, 4}, {8, 8, 9}, 9, 879750.0},
                                                     {{6, 6}, {10, 11}, 9, 1089642.857}}) {
    const auto found = static_cast<double>(translation_bound(uneven_torus(lengths, hop, count)));
    EXPECT_LE(found, optimum) << count;
    EXPECT_GE(found, optimum * (1 - 2e-5) - 1) << count;
  }
}

// Meshes are parts of larger tori, which weakens the bound; recorded.
TEST(TranslationBound, OfMeshesIsAsRecorded) {
  for (const auto& [lengths, each, count, recorded] : {std::tuple{std::vector{4, 4}, 1, 5, 187411.0},
                                                       {{4, 4}, 1, 8, 591097.0},
                                                       {{4, 4}, 2, 10, 749644.0},
                                                       {{3, 5}, 1, 6, 294371.0},
                                                       {{6, 6}, 1, 9, 782753.0},
                                                       {{3, 4, 5}, 1, 12, 1425689.0},
                                                       {{3, 4, 5}, 2, 24, 5702742.0},
                                                       {{8, 8}, 1, 21, 5825251.0}}) {
    const auto found = static_cast<double>(translation_bound(mesh(lengths, each, count)));
    EXPECT_NEAR(found, recorded, 1e-5 * recorded + 1) << lengths.size() << " " << count;
  }
}

TEST(TranslationBound, IsNoneWithoutAGrid) {
  EXPECT_EQ(translation_bound(torus({3}, 1, 2)), 0);
  EXPECT_EQ(translation_bound(torus({4}, 1, 1)), 0);
  EXPECT_EQ(translation_bound(by_chance(24, 7, 1)), 0);
  ClusterProblem p = torus({5}, 1, 2);
  EXPECT_GE(translation_bound(p), 15999);
  p.cell = {0, 1, 2, 3, 5};
  EXPECT_EQ(translation_bound(p), 0) << "a position without a class";
}

// 20 steps for each pair of cells.
TEST(TranslationBound, IsNoneWhereItWouldTakeTooMuchWork) {
  constexpr double kProgrammeWork = 1.6e8;
  const ClusterProblem p = torus({4, 4}, 1, 4);
  EXPECT_EQ(translation_bound(with_effort(p, 5119 / kProgrammeWork)), 0);
  EXPECT_GE(translation_bound(with_effort(p, 5121 / kProgrammeWork)), 107990);
}

// Fewer steps of the simplex method prove less; recorded.
TEST(TranslationBound, GrowsWithTheWork) {
  Random random(9);
  ClusterProblem p = mesh({16, 16}, 1, 60);
  for (std::size_t a = 0; a < 256; ++a)
    for (std::size_t b = 0; b < a; ++b) p.weight[a][b] = p.weight[b][a] += static_cast<Value>(random() % 1000);
  for (const auto& [steps, recorded] : {std::pair{1310721.0, 69149464.0}, {3e6, 70712572.0}, {1.6e8, 70728000.0}}) {
    const auto bound = static_cast<double>(translation_bound(with_effort(p, steps / 1.6e8)));
    EXPECT_NEAR(bound, recorded, 1e-5 * recorded + 1) << steps;
  }
}

// ---------------------------------------------------------------- the spectrum

/// The bound with so many steps of an effort of 1.
Value spectral_within(const ClusterProblem& p, double steps) { return spectral_bound(with_effort(p, steps / 9e8)); }

// A proof needs n³/2 + 100 n² steps.
TEST(SpectralBound, IsNoneOfTooFewUnitsOrWithTooLittleWork) {
  const ClusterProblem p = by_chance(10, 4, 1);
  EXPECT_EQ(spectral_within(p, 10499), 0);
  EXPECT_GT(spectral_within(p, 10501), 0);
  EXPECT_EQ(spectral_bound(by_chance(10, 1, 1)), 0);
  EXPECT_GT(spectral_bound(by_chance(10, 2, 1)), 0);
  EXPECT_GT(spectral_bound(by_chance(10, 9, 1)), 0);
  EXPECT_EQ(spectral_bound(by_chance(10, 10, 1)), 0);
}

// Each step of the ascent takes (power / 2 + 1/2) n³ + 200 n², with powers from 3. What it gains decides how much is
// proven within the work: recorded after 0, 1, 3 … such steps and at its end.
TEST(SpectralBound, ClimbsAsRecorded) {
  const std::pair<ClusterProblem, std::vector<double>> all[] = {
      {by_chance(24, 7, 1), {300650, 337400, 338978, 344478, 360886, 367399, 377540}},
      {by_chance(40, 20, 2), {3967069, 4081754, 4113142, 4138404, 4163334, 4184958, 4216049}},
      {torus({6, 6}, 1, 12), {1391423, 1423471, 1493476, 1507900, 1508720, 1508989, 1508989}},
      {mesh({5, 5}, 1, 6), {231042, 260325, 268825, 275067, 283144, 289264, 290539}},
      {tree({2, 3, 4}, 1, 9, 0.2, 1), {549283, 759202, 1108399, 1315599, 1364838, 1410871, 1419499}}};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    const auto& [p, recorded] = all[i];
    const auto n = static_cast<double>(p.weight.size()), once = n * n * n / 2 + 100 * n * n,
               step = 2 * n * n * n + 200 * n * n;
    std::size_t at = 0;
    for (const double steps : {0.0, 1.5, 3.0, 6.0, 13.5, 30.0})
      expect_near(spectral_within(p, once + steps * step + 1), recorded[at++],
                  std::to_string(i) + ", " + std::to_string(steps));
    expect_near(spectral_bound(p), recorded[at], std::to_string(i) + ", all");
  }
}

TEST(SpectralBound, StopsWhereItProvesEnough) {
  const ClusterProblem p = by_chance(24, 7, 1);
  expect_near(spectral_bound(p, 1), 300650, "no step");
  const Value some = spectral_bound(p, 350000);
  EXPECT_GE(some, 349000);
  EXPECT_LT(some, 377000);
}

// ---------------------------------------------------------------- which bounds the whole search uses

// The bounds that suggest a choice are always computed, until one suffices.
TEST(LeastCluster, HasTheHighestOfItsBounds) {
  const ClusterProblem chance = by_chance(60, 20, 1), steps = tree({4, 4, 4}, 1, 20, 0.2, 1);
  const Cluster a = least_cluster(chance), b = least_cluster(steps), c = least_cluster(mesh({8, 8}, 1, 21));
  EXPECT_EQ(a.bound, spectral_bound(chance, a.cost));
  EXPECT_FALSE(a.optimal);
  EXPECT_EQ(b.bound, tree_bound(steps).bound);
  EXPECT_EQ(c.bound, grid_bound(mesh({8, 8}, 1, 21)));
  EXPECT_TRUE(c.optimal);
  ClusterProblem unproven = chance;
  unproven.prove = false;
  EXPECT_EQ(least_cluster(unproven).bound, tree_bound(chance).bound);
  EXPECT_EQ(least_cluster(unproven).counts, a.counts);
  EXPECT_EQ(least_cluster(torus({5}, 1, 2)).bound, 16000);
}

// Parts of nodes, for which the grid's bound is only in proportion.
TEST(LeastCluster, UsesTheLinearProgrammeOfALargeTorus) {
  for (const auto& [each, count] : {std::pair{3, 50}, {4, 47}}) {
    ClusterProblem p = torus({8, 8}, each, count);
    const Value others = std::max({degree_bound(p), grid_bound(p), tree_bound(p).bound});
    const Cluster found = least_cluster(p);
    EXPECT_GT(translation_bound(p), others);
    EXPECT_EQ(found.bound, translation_bound(p));
    p.prove = false;
    EXPECT_EQ(least_cluster(p).bound, others);
  }
}

// Costs with little work, where each start and exchange counts; recorded.
TEST(LeastCluster, FindsWithLittleWorkWhatIsRecorded) {
  const std::pair<ClusterProblem, std::vector<Value>> all[] = {
      {by_chance(200, 40, 1), {17617536, 17617536, 17426887}},
      {tree({4, 8, 8}, 1, 60, 0.2, 1), {82941074, 82941074, 82886703}},
      {mesh({12, 12}, 1, 50), {46396000, 46396000, 46300000}}};
  for (const auto& [p, costs] : all) {
    std::size_t at = 0;
    for (const double effort : {1e-5, 1e-4, 1e-3}) {
      const Cluster found = least_cluster(with_effort(p, effort));
      EXPECT_EQ(found.cost, costs[at++]) << p.weight.size() << " " << effort;
      EXPECT_EQ(found.cost, cost_of(p, found.counts));
    }
  }
}

}  // namespace
}  // namespace mm::place

/// Search for compact sets: its starts, its exchanges, branch and bound, and the work that each may take.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "cluster_problems.hpp"
#include "place/search/choice.hpp"
#include "place/search/exact.hpp"

namespace mm::place {
namespace {

using search::Choice;
using search::Exact;

constexpr double kStartWork = 2e7, kExchangeWork = 1.5e7;  // of an effort of 1, in steps

using Counts = std::vector<int>;
using Weights = std::vector<std::vector<Value>>;

/// `far` between all classes but those listed; 0 within a class.
Weights weights(std::size_t classes, Value far, const std::vector<std::tuple<std::size_t, std::size_t, Value>>& near) {
  Weights w(classes, std::vector<Value>(classes, far));
  for (std::size_t c = 0; c < classes; ++c) w[c][c] = 0;
  for (const auto& [a, b, d] : near) w[a][b] = w[b][a] = d;
  return w;
}

ClusterProblem with_effort(ClusterProblem p, double effort) {
  p.effort = effort;
  return p;
}

/// Classes of up to three units, some without any, with weights of few different values; `concave`: two units of one
/// class are never farther apart than those of two classes.
ClusterProblem of_few_values(Random& random, std::size_t classes, bool concave) {
  Weights w(classes, std::vector<Value>(classes));
  Counts capacity;
  int units = 0;
  for (std::size_t a = 0; a < classes; ++a) {
    units += capacity.emplace_back(static_cast<int>(random() % 4));
    for (std::size_t b = 0; b < a; ++b) w[a][b] = w[b][a] = 3 + static_cast<Value>(random() % 4);
    w[a][a] = static_cast<Value>(random() % (concave ? 4 : 12));
  }
  if (units == 0) capacity[0] = units = 1;
  return problem_of(std::move(w), 1 + static_cast<int>(random() % static_cast<unsigned>(units)), std::move(capacity));
}

// ---------------------------------------------------------------- starts

// Without effort there is one start, the first class, and no exchange.
TEST(Starts, GrowByTheUnitThatCostsLeastBesideTheChosenOnes) {
  // The ball of the two nearest, 1 and 2, costs 13.
  const Weights w = weights(4, 10, {{0, 1, 1}, {0, 2, 2}, {0, 3, 3}, {1, 3, 1}});
  const Choice found = search::heuristic(with_effort(problem_of(w, 3), 0));
  EXPECT_EQ(found.counts, (Counts{1, 1, 0, 1}));
  EXPECT_EQ(found.cost, 5);
}

TEST(Starts, TakeTheNearestUnitsWhereGrowthIsMisled) {
  // Class 1 is near to class 2, the nearest of the first, and far from all others: growth takes it, and costs 18. Class
  // 5 is as far from the first as 3 and 4 are.
  const Weights w = weights(6, 50,
                            {{0, 2, 1},
                             {0, 3, 2},
                             {0, 4, 2},
                             {0, 1, 3},
                             {0, 5, 2},
                             {2, 3, 2},
                             {2, 4, 2},
                             {1, 2, 0},
                             {3, 4, 0},
                             {1, 3, 10},
                             {1, 4, 10}});
  const Choice found = search::heuristic(with_effort(problem_of(w, 4), 0));
  EXPECT_EQ(found.counts, (Counts{1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(found.cost, 9);
}

TEST(Starts, PreferTheFirstOfEqualClasses) {
  EXPECT_EQ(search::heuristic(with_effort(problem_of(weights(6, 7, {}), 3), 0)).counts, (Counts{1, 1, 1, 0, 0, 0}));
}

// The ball takes all units of its class, even if those of others are nearer; here growth costs more.
TEST(Starts, BeginWithTheUnitsOfTheirOwnClass) {
  Weights w = weights(4, 40, {{0, 1, 4}, {0, 2, 6}});
  w[0][0] = 5;
  w[2][2] = 1;
  // Growth: 0, 1, then 0 again, for 4 + 9 = 13, then 2 for 12 + 40; the ball: 0 twice, 1, and 2.
  const ClusterProblem p = problem_of(w, 3, {2, 1, 2, 1});
  const Choice found = search::heuristic(with_effort(p, 0));
  EXPECT_EQ(found.counts, (Counts{2, 1, 0, 0}));
  EXPECT_EQ(found.cost, 13);
}

TEST(Starts, SkipClassesWithoutUnits) {
  const Weights w = weights(5, 10, {{2, 3, 1}});
  EXPECT_EQ(search::heuristic(with_effort(problem_of(w, 2, {0, 0, 1, 1, 1}), 0)).counts, (Counts{0, 0, 1, 1, 0}));
  EXPECT_EQ(search::heuristic(with_effort(problem_of(w, 1, {0, 0, 0, 0, 1}), 0)).counts, (Counts{0, 0, 0, 0, 1}));
}

/// The cost that few starts find if the only cheap set is three units of one class, which no exchange can reach.
Value cost_with_starts(std::size_t cheap, double steps, Counts capacity = Counts(10, 1)) {
  Weights w = weights(10, 100, {});
  w[cheap][cheap] = 1;
  capacity[cheap] = 3;
  return search::heuristic(with_effort(problem_of(w, 3, capacity), steps / kStartWork)).cost;
}

// A start takes 2 steps per unit and class, and one per class: here 70.
TEST(Starts, AreAsManyAsTheWorkAllowsAndSpreadEvenly) {
  for (std::size_t cheap = 3; cheap < 10; ++cheap) {
    EXPECT_EQ(cost_with_starts(cheap, 69), 300) << cheap;
    EXPECT_EQ(cost_with_starts(cheap, 71), cheap == 5 ? 3 : 300) << cheap;
    EXPECT_EQ(cost_with_starts(cheap, 139), cheap == 5 ? 3 : 300) << cheap;
    EXPECT_EQ(cost_with_starts(cheap, 141), cheap == 4 || cheap == 8 ? 3 : 300) << cheap;
    EXPECT_EQ(cost_with_starts(cheap, 701), 3) << cheap;
  }
  EXPECT_EQ(cost_with_starts(0, 0), 3);
}

TEST(Starts, MoveToTheNextClassThatHasUnits) {
  Counts capacity(10, 1);
  capacity[5] = 0;
  EXPECT_EQ(cost_with_starts(6, 71, capacity), 3);
  EXPECT_EQ(cost_with_starts(7, 71, capacity), 300);
  for (std::size_t c = 5; c < 10; ++c) capacity[c] = 0;
  EXPECT_EQ(cost_with_starts(4, 71, capacity), 300);
}

// Not the cheapest start, but the cheapest set that exchanges make of any.
TEST(Starts, AreAllImprovedAndTheBestIsReturned) {
  Random random(11);
  for (int round = 0; round < 40; ++round) {
    const ClusterProblem p = problem(12, 1, 5, [&](int, int) { return static_cast<double>(random() % 100); });
    const Choice found = search::heuristic(p);
    EXPECT_EQ(found.cost, by_brute_force(p)) << round;
    EXPECT_EQ(found.cost, cost_of(p, found.counts)) << round;
  }
}

// ---------------------------------------------------------------- exchanges

/// With work for so many steps of exchanges.
Choice improved_with(ClusterProblem p, const Counts& counts, double steps) {
  p.effort = steps / (kExchangeWork / 4);
  return search::improved(p, counts);
}

TEST(Exchanges, DoNothingWithoutWork) {
  const ClusterProblem p = problem_of(weights(4, 9, {{0, 1, 1}, {2, 3, 5}}), 2);
  const Choice same = improved_with(p, {0, 0, 1, 1}, 0);
  EXPECT_EQ(same.counts, (Counts{0, 0, 1, 1}));
  EXPECT_EQ(same.cost, 5);
}

// A round takes a step for every class with a unit and class with room, and four per class: here 2 · 3 + 20.
TEST(Exchanges, MakeTheBestOneInEachRound) {
  // From {3, 4}: 4 → 0 saves 3, 3 → 2 saves 5; then 4 → 1 saves 3.
  const ClusterProblem p =
      problem_of(weights(5, 20, {{3, 4, 9}, {0, 3, 6}, {2, 4, 4}, {1, 2, 1}, {0, 4, 8}, {1, 3, 7}}), 2);
  for (const double steps : {1.0, 25.5}) {
    const Choice once = improved_with(p, {0, 0, 0, 1, 1}, steps);
    EXPECT_EQ(once.counts, (Counts{0, 0, 1, 0, 1})) << steps;
    EXPECT_EQ(once.cost, 4) << steps;
  }
  const Choice twice = improved_with(p, {0, 0, 0, 1, 1}, 26.5);
  EXPECT_EQ(twice.counts, (Counts{0, 1, 1, 0, 0}));
  EXPECT_EQ(twice.cost, 1);
}

// Of equal exchanges, the first; none that costs the same.
TEST(Exchanges, PreferTheFirstAndRefuseThoseWithoutGain) {
  EXPECT_EQ(search::improved(problem_of(weights(4, 5, {}), 2), {0, 0, 1, 1}).counts, (Counts{0, 0, 1, 1}));
  const ClusterProblem p = problem_of(weights(4, 9, {{0, 2, 4}, {1, 2, 4}}), 2);
  EXPECT_EQ(search::improved(p, {0, 0, 1, 1}).counts, (Counts{1, 0, 1, 0}));
}

// One of three units alone would cost more elsewhere; all three cost less.
TEST(Exchanges, MoveAsManyUnitsAsFitWhereOneWouldNotHelp) {
  Weights w = weights(2, 20, {});
  w[0][0] = 10;
  EXPECT_EQ(search::improved(problem_of(w, 3, {3, 3}), {3, 0}).counts, (Counts{0, 3}));
  EXPECT_EQ(search::improved(problem_of(w, 3, {3, 2}), {3, 0}).counts, (Counts{3, 0}));
  EXPECT_EQ(search::improved(problem_of(w, 4, {4, 4}), {3, 1}).counts, (Counts{0, 4}));
}

void expect_no_better_exchange(const ClusterProblem& p, const Choice& c) {
  for (std::size_t i = 0; i < p.capacity.size(); ++i)
    for (std::size_t j = 0; j < p.capacity.size(); ++j) {
      const int most = std::min(c.counts[i], p.capacity[j] - c.counts[j]);
      if (i == j || most < 1) continue;
      for (const int t : {1, most}) {
        Counts other = c.counts;
        other[i] -= t, other[j] += t;
        ASSERT_GE(cost_of(p, other), c.cost) << i << " " << j << " " << t;
      }
    }
}

TEST(Exchanges, LeaveNoneThatSaves) {
  Random random(12);
  for (int round = 0; round < 300; ++round) {
    const ClusterProblem p = of_few_values(random, 3 + random() % 6, round % 2 == 0);
    Counts counts(p.capacity.size(), 0);
    for (int left = p.count; left > 0; --left) {
      std::size_t c = random() % counts.size();
      while (counts[c] == p.capacity[c]) c = (c + 1) % counts.size();
      ++counts[c];
    }
    const Choice found = search::improved(p, counts);
    EXPECT_EQ(found.cost, cost_of(p, found.counts)) << round;
    EXPECT_LE(found.cost, cost_of(p, counts)) << round;
    EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0), p.count) << round;
    expect_no_better_exchange(p, found);
  }
}

TEST(Exchanges, OfManyClassesLeaveNoneThatSaves) {
  Random random(13);
  const ClusterProblem p = problem(210, 1, 105, [&](int, int) { return between(random, 10, 40); });
  Counts counts(210, 0);
  std::fill_n(counts.begin(), 105, 1);
  const Choice found = search::improved(p, counts);
  EXPECT_EQ(found.cost, cost_of(p, found.counts));
  for (std::size_t i = 0; i < 210; ++i)
    for (std::size_t j = 0; j < 210; ++j)
      if (found.counts[i] == 1 && found.counts[j] == 0) {
        EXPECT_GE(found.change(i, j, 1), 0);
      }
}

/// `half` of twice as many classes. The last of the rest is far from the first, which makes it a bad class to take, and
/// near to all others: only this exchange saves 95.
std::pair<ClusterProblem, Counts> with_one_hidden_exchange(std::size_t half) {
  const std::size_t last = 2 * half - 1;
  std::vector<std::tuple<std::size_t, std::size_t, Value>> near;
  for (std::size_t c = 1; c < last; ++c) near.emplace_back(c, last, 9);
  near.emplace_back(0, last, 500);
  Counts counts(2 * half, 0);
  std::fill_n(counts.begin(), half, 1);
  return {problem_of(weights(2 * half, 10, near), static_cast<int>(half)), counts};
}

// Up to 96 · 96 exchanges are all considered; of more, first those of the 48 most and least expensive classes.
TEST(Exchanges, OfManyClassesAreFirstThoseOfTheMostAndLeastExpensive) {
  const auto [few, few_counts] = with_one_hidden_exchange(96);
  EXPECT_EQ(improved_with(few, few_counts, 1).cost, cost_of(few, few_counts) - 95);
  const auto [many, many_counts] = with_one_hidden_exchange(97);
  const Value before = cost_of(many, many_counts);
  const double round = 48 * 48 + 4 * 194;
  EXPECT_EQ(improved_with(many, many_counts, round - 1).cost, before);
  EXPECT_EQ(improved_with(many, many_counts, round + 1).cost, before - 96);
}

TEST(Exchanges, OfManyClassesBeginWithTheMostExpensiveAndTheCheapest) {
  Random random(14);
  for (const std::size_t worst : {std::size_t{0}, std::size_t{50}, std::size_t{99}}) {
    ClusterProblem p = problem(200, 1, 100, [&](int, int) { return between(random, 20, 21); });
    const std::size_t best = 100 + worst;
    for (std::size_t c = 0; c < 200; ++c) {
      if (c != worst) p.weight[c][worst] = p.weight[worst][c] = 40000;
      if (c != best) p.weight[c][best] = p.weight[best][c] = 1000;
    }
    Counts counts(200, 0);
    std::fill_n(counts.begin(), 100, 1);
    Counts expected = counts;
    expected[worst] = 0, expected[best] = 1;
    EXPECT_EQ(improved_with(p, counts, 1).counts, expected) << worst;
  }
}

// ---------------------------------------------------------------- branch and bound

TEST(NearestSums, AddTheNearestUnitsOfAllClassesAndOfTheirOwn) {
  Weights w = weights(3, 0, {{0, 1, 4}, {0, 2, 2}, {1, 2, 3}});
  w[1][1] = 1;
  EXPECT_EQ(search::nearest_sums(problem_of(w, 3, {1, 2, 1})), (Weights{{0, 2, 6}, {0, 1, 4}, {0, 2, 5}}));
  EXPECT_EQ(search::nearest_sums(problem_of(w, 2, {1, 2, 1})), (Weights{{0, 2}, {0, 1}, {0, 2}}));
  EXPECT_EQ(search::nearest_sums(problem_of(w, 1, {1, 2, 1})), (Weights{{0}, {0}, {0}}));
  EXPECT_EQ(search::nearest_sums(problem_of(w, 3, {1, 2, 0})), (Weights{{0, 4, 8}, {0, 1, 5}, {0, 2, 5}}));
}

TEST(DegreeBound, IsHalfTheSumOfTheSmallestSumsRoundedUp) {
  const ClusterProblem path = problem_of({{0, 1, 2, 3}, {1, 0, 1, 2}, {2, 1, 0, 1}, {3, 2, 1, 0}}, 3);
  EXPECT_EQ(degree_bound(path), 4);  // (2 + 2 + 3) / 2
  ClusterProblem p = path;
  p.count = 1;
  EXPECT_EQ(degree_bound(p), 0);
  p.count = 2;
  EXPECT_EQ(degree_bound(p), 1);
  p.capacity = {1, 0, 1, 1};
  p.count = 3;
  EXPECT_EQ(degree_bound(p), 6);  // (5 + 3 + 4) / 2
  p.capacity = {2, 0, 0, 1};
  EXPECT_EQ(degree_bound(p), 6);  // twice 0 + 3, once 3 + 3
}

// Moving units between two partly used classes is then concave in their number.
TEST(Concave, IsAProblemWhoseClassesAreNotWiderThanTheirDistance) {
  Weights w = weights(2, 3, {});
  w[0][0] = w[1][1] = 3;
  EXPECT_TRUE(search::is_concave(problem_of(w, 2, {2, 2})));
  w[0][0] = 4;
  EXPECT_FALSE(search::is_concave(problem_of(w, 2, {2, 2})));
  EXPECT_TRUE(search::is_concave(problem_of(w, 2, {1, 2})));
  EXPECT_TRUE(search::is_concave(problem_of(w, 2, {2, 1})));
  w[1][1] = 2;
  EXPECT_TRUE(search::is_concave(problem_of(w, 2, {2, 2})));
  Weights three = weights(3, 3, {});
  three[2][2] = 7;
  EXPECT_FALSE(search::is_concave(problem_of(three, 2, {2, 1, 2})));
  EXPECT_TRUE(search::is_concave(problem_of(three, 2, {1, 1, 2})));
}

/// A choice of the first units.
Choice first_units(const ClusterProblem& p) {
  Choice c(p);
  int left = p.count;
  for (std::size_t i = 0; i < p.capacity.size() && left > 0; ++i) {
    const int n = std::min(left, p.capacity[i]);
    if (n > 0) c.add(i, n);
    left -= n;
  }
  return c;
}

bool complete_within(const ClusterProblem& p, double steps) { return Exact(p, first_units(p), steps).run(); }

// A step per class, six where classes have several units; the bound ends the search at once.
TEST(Exact, OfEqualDistancesTakesOneNode) {
  const ClusterProblem single = problem_of(weights(5, 7, {}), 3);
  EXPECT_TRUE(complete_within(single, 5));
  EXPECT_FALSE(complete_within(single, 4));
  Weights w = weights(4, 7, {});
  for (std::size_t c = 0; c < 4; ++c) w[c][c] = 7;
  const ClusterProblem several = problem_of(w, 3, {2, 2, 2, 1});
  EXPECT_TRUE(complete_within(several, 24));
  EXPECT_FALSE(complete_within(several, 23));
}

// Classes of several units need no order among their bounds, which are weaker; the numbers were recorded.
TEST(Exact, CutsOffSetsThatCannotBeBetter) {
  Random random(15);
  const ClusterProblem single = problem(24, 1, 6, [&](int, int) { return between(random, 10, 40); });
  ClusterProblem several = problem(12, 2, 7, [&](int, int) { return between(random, 10, 40); });
  several.capacity[3] = 1, several.capacity[7] = 0, several.capacity[9] = 3;
  for (const auto& [p, steps] : {std::pair{&single, 82032.0}, {&several, 7704.0}}) {
    double low = 0, high = 1e9;
    while (high - low > 1) {
      const double middle = std::floor((low + high) / 2);
      (complete_within(*p, middle) ? high : low) = middle;
    }
    EXPECT_EQ(high, steps);
  }
}

TEST(Exact, FindsTheOptimumFromABadStart) {
  Random random(16);
  for (int round = 0; round < 400; ++round) {
    const ClusterProblem p = of_few_values(random, 3 + random() % 6, true);
    Exact exact(p, first_units(p), 1e9);
    ASSERT_TRUE(search::is_concave(p));
    ASSERT_TRUE(exact.run());
    EXPECT_EQ(exact.best().cost, by_brute_force(p)) << round;
    EXPECT_EQ(exact.best().cost, cost_of(p, exact.best().counts)) << round;
    EXPECT_EQ(std::accumulate(exact.best().counts.begin(), exact.best().counts.end(), 0), p.count) << round;
  }
}

TEST(Exact, KeepsItsStartWhereNothingIsBetterOrNoWorkIsLeft) {
  const ClusterProblem p = problem_of(weights(4, 9, {{0, 1, 1}, {2, 3, 1}}), 2);
  Choice last(p);
  last.add(2, 1), last.add(3, 1);
  Exact all(p, last, 100);
  EXPECT_TRUE(all.run());
  EXPECT_EQ(all.best().counts, (Counts{0, 0, 1, 1}));
  Choice bad(p);
  bad.add(0, 1), bad.add(2, 1);
  Exact none(p, bad, 0);
  EXPECT_FALSE(none.run());
  EXPECT_EQ(none.best().cost, 9);
}

// ---------------------------------------------------------------- the whole search

TEST(LeastCluster, MergesOnlyClassesThatNothingDistinguishes) {
  Random random(17);
  int proven = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::size_t classes = 2 + random() % 5;
    ClusterProblem p = of_few_values(random, classes, true);
    for (auto& row : p.weight)
      for (Value& w : row) w = w < 3 ? 3 - (w % 2) : 3 + w / 6;  // so few values that many classes are alike
    for (std::size_t a = 0; a < classes; ++a)
      for (std::size_t b = 0; b < a; ++b) p.weight[b][a] = p.weight[a][b];
    const Cluster found = least_cluster(p);
    EXPECT_EQ(found.cost, by_brute_force(p)) << round;
    EXPECT_EQ(found.cost, cost_of(p, found.counts)) << round;
    EXPECT_LE(found.bound, found.cost) << round;
    EXPECT_EQ(found.optimal, found.bound == found.cost) << round;
    proven += found.optimal ? 1 : 0;
    EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0), p.count) << round;
    for (std::size_t c = 0; c < classes; ++c) {
      EXPECT_GE(found.counts[c], 0) << round;
      EXPECT_LE(found.counts[c], p.capacity[c]) << round;
    }
  }
  EXPECT_GE(proven, 1490);  // merged classes may be wider than their distance from others
}

TEST(LeastCluster, FillsTheFirstOfEqualClassesFirst) {
  Weights w = weights(4, 7, {});
  for (std::size_t c = 0; c < 4; ++c) w[c][c] = 7;
  EXPECT_EQ(least_cluster(problem_of(w, 3, {2, 2, 2, 2})).counts, (Counts{2, 1, 0, 0}));
}

// 8 of 32 units are 10.5 million sets, searched to the end.
TEST(LeastCluster, IsProvenForSmallProblemsWhateverTheMatrix) {
  Random random(18);
  const ClusterProblem p = problem(32, 1, 8, [&](int, int) { return between(random, 10, 40); });
  const Cluster found = least_cluster(p);
  EXPECT_TRUE(found.optimal);
  EXPECT_EQ(found.bound, found.cost);
  EXPECT_GT(found.cost, degree_bound(p));
}

// Within a class farther than between two: up to 64 units are searched one by one.
TEST(LeastCluster, SplitsClassesThatAreWiderThanTheirDistance) {
  for (const int classes : {8, 32, 33}) {
    ClusterProblem p = problem(classes, 2, 3, [](int a, int b) { return std::abs(a - b) % 2 == 0 ? 2 : 1; });
    for (std::size_t c = 0; c < p.weight.size(); ++c) p.weight[c][c] = 9000;
    const Cluster found = least_cluster(p);
    EXPECT_EQ(found.cost, 4000) << classes;  // two of one parity, one of the other
    EXPECT_EQ(found.cost, cost_of(p, found.counts)) << classes;
    EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), 0), 3) << classes;
    EXPECT_EQ(found.optimal, classes <= 32) << classes;
    EXPECT_LE(found.bound, found.cost) << classes;
  }
}

TEST(BranchAndBound, StartsFromTheFirstUnitsInOrder) {
  const Cluster same = by_branch_and_bound(problem_of(weights(5, 4, {}), 3));
  EXPECT_EQ(same.counts, (Counts{1, 1, 1, 0, 0}));
  EXPECT_EQ(same.cost, 12);
  EXPECT_EQ(same.bound, 12);
  EXPECT_TRUE(same.optimal);
  Weights w = weights(2, 3, {});
  w[0][0] = w[1][1] = 4;
  const Cluster unproven = by_branch_and_bound(problem_of(w, 2, {2, 2}));
  EXPECT_FALSE(unproven.optimal);
  EXPECT_EQ(unproven.bound, 0);
  EXPECT_EQ(unproven.cost, 4);
}

}  // namespace
}  // namespace mm::place

/// Grids for bounds of compact sets: tori and their differences, matrices, the shape of a grid, and its best set.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "cluster_problems.hpp"
#include "place/search/bounds.hpp"
#include "place/search/shapes/grid.hpp"
#include "place/search/shapes/square.hpp"
#include "place/search/shapes/torus.hpp"

namespace mm::place {
namespace {

using search::GridBound;
using search::kNever;
using search::Square;
using search::Torus;
using Sizes = std::vector<std::size_t>;
using Doubles = std::vector<double>;

// ---------------------------------------------------------------- matrices

Square symmetric(std::size_t n, Random& random) {
  Square a{n, Doubles(n * n)};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) a.row(i)[j] = a.row(j)[i] = between(random, -1, 1);
  return a;
}

double entry_of_square(const Square& a, std::size_t i, std::size_t j) {
  double sum = 0;
  for (std::size_t k = 0; k < a.n; ++k) sum += a.row(i)[k] * a.row(k)[j];
  return sum;
}

// Sizes around the blocks of 64 and the groups of 4.
TEST(Square, OfASymmetricMatrixIsItsProductWithItself) {
  Random random(1);
  for (const std::size_t n : {1, 2, 3, 4, 5, 63, 64, 65, 67, 130}) {
    const Square a = symmetric(n, random), b = search::squared(a);
    ASSERT_EQ(b.n, n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) ASSERT_NEAR(b.row(i)[j], entry_of_square(a, i, j), 1e-12) << n;
  }
}

// Sizes around the blocks of 32 and the groups of 4.
TEST(Square, ThatIsPositiveDefiniteHasACholeskyFactor) {
  Random random(2);
  for (const std::size_t n : {1, 2, 3, 4, 5, 31, 32, 33, 35, 38, 64, 65, 71}) {
    Square a = search::squared(symmetric(n, random));
    for (std::size_t i = 0; i < n; ++i) a.row(i)[i] += 0.5;
    Square r = a;
    ASSERT_TRUE(search::has_cholesky(r)) << n;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = i; j < n; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k <= i; ++k) sum += r.row(k)[i] * r.row(k)[j];
        ASSERT_NEAR(sum, a.row(i)[j], 1e-10) << n << " " << i << " " << j;
      }
  }
}

TEST(Square, ThatIsNotPositiveDefiniteHasNone) {
  for (const std::size_t n : {1, 2, 5, 32, 33, 40, 70})
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1})
      for (const double value : {0.0, -1e-3}) {
        Square a{n, Doubles(n * n, 0)};
        for (std::size_t i = 0; i < n; ++i) a.row(i)[i] = 2;
        a.row(at)[at] = value;
        EXPECT_FALSE(search::has_cholesky(a)) << n << " " << at << " " << value;
      }
  Square a{2, {1, 2, 2, 3}};  // the diagonal alone does not tell
  EXPECT_FALSE(search::has_cholesky(a));
}

// ---------------------------------------------------------------- tori

TEST(Torus, NumbersItsCellsRowByRow) {
  EXPECT_EQ(search::digits(0, {2, 3, 4}), (Sizes{0, 0, 0}));
  EXPECT_EQ(search::digits(23, {2, 3, 4}), (Sizes{1, 2, 3}));
  EXPECT_EQ(search::digits(13, {2, 3, 4}), (Sizes{1, 0, 1}));
  for (std::size_t cell = 0; cell < 24; ++cell)
    EXPECT_EQ(search::number(search::digits(cell, {2, 3, 4}), {2, 3, 4}), cell);
}

TEST(Torus, KindsOfDifferencesIgnoreTheirSigns) {
  const Torus ring = search::torus_of({5}, false);
  EXPECT_EQ(ring.of, (Sizes{0, 1, 2, 2, 1}));
  EXPECT_EQ(ring.first, (Sizes{0, 1, 2}));
  EXPECT_EQ(ring.times, (Doubles{1, 2, 2}));
  EXPECT_EQ(ring.lengths, (Sizes{5}));
  const Torus even = search::torus_of({4}, true);
  EXPECT_EQ(even.of, (Sizes{0, 1, 2, 1}));
  EXPECT_EQ(even.times, (Doubles{1, 2, 1}));
}

TEST(Torus, KindsOfDifferencesMayIgnoreTheOrderOfEqualLengths) {
  const Torus square = search::torus_of({3, 3}, true), ordered = search::torus_of({3, 3}, false);
  EXPECT_EQ(square.times, (Doubles{1, 4, 4}));
  EXPECT_EQ(square.of, (Sizes{0, 1, 1, 1, 2, 2, 1, 2, 2}));
  EXPECT_EQ(square.first, (Sizes{0, 1, 4}));
  EXPECT_EQ(ordered.times, (Doubles{1, 2, 2, 4}));
  EXPECT_EQ(ordered.of, (Sizes{0, 1, 1, 2, 3, 3, 2, 3, 3}));
  EXPECT_EQ(search::torus_of({2, 2, 2}, true).times, (Doubles{1, 3, 3, 1}));
  EXPECT_EQ(search::torus_of({2, 2, 2}, false).times.size(), 8U);
  EXPECT_EQ(search::torus_of({2, 3}, true).times, (Doubles{1, 2, 1, 2}));
  EXPECT_EQ(search::torus_of({5, 3, 5}, true).times.size(), 12U);  // 6 pairs of the equal dimensions, 2 of the other
}

TEST(Torus, DistanceOfAKindIsTheShortestOfItsPairs) {
  // A path of three cells in a ring of six: the difference of 3 does not occur.
  const std::vector<std::vector<Value>> path{{kNever, 5, 9}, {5, kNever, 4}, {9, 4, kNever}};
  Torus torus = search::torus_of({6}, false);
  search::measure(torus, {3}, path, 1);
  EXPECT_EQ(torus.distance, (Doubles{0, 4, 9, 18}));
  EXPECT_EQ(torus.sum, 4 * 4 + 2 * 9);
  search::measure(torus, {3}, path, 2);  // of the first and the last row
  EXPECT_EQ(torus.distance, (Doubles{0, 4, 9, 18}));
  EXPECT_EQ(torus.sum, 2 * 4 + 2 * 9);
  search::measure(torus, {3}, path, 3);  // of the first row
  EXPECT_EQ(torus.distance, (Doubles{0, 5, 9, 18}));
  EXPECT_EQ(torus.sum, 5 + 9);
  // With a second unit in a cell.
  const std::vector<std::vector<Value>> units{{3, 5, 9}, {5, 2, 4}, {9, 4, kNever}};
  search::measure(torus, {3}, units, 1);
  EXPECT_EQ(torus.distance, (Doubles{2, 4, 9, 18}));
  EXPECT_EQ(torus.sum, 4 * 4 + 2 * 9);
}

TEST(Torus, DistancesAreThoseOfAGridThatLiesInIt) {
  const std::vector<int> lengths{2, 3};
  const ClusterProblem p = problem(6, 1, 2, [&](int a, int b) { return hops(a, b, lengths, false); });
  Torus torus = search::torus_of({3, 5}, false);
  search::measure(torus, {2, 3}, cells_of(p, 6).weight, 1);
  EXPECT_EQ(torus.distance, (Doubles{0, 16000, 22000, 16000, 22000, 28000}));
  EXPECT_EQ(torus.sum, 8 * 16000 + 4 * 22000 + 6 * 16000 + 8 * 22000 + 4 * 28000);
}

TEST(Cells, HaveTheUnitsOfTheirClassesAndTheLeastDistanceBetweenThem) {
  ClusterProblem p = problem_of({{7, 1, 5}, {1, 9, 4}, {5, 4, 2}}, 2, {2, 1, 1});
  p.cell = {0, 0, 2};
  const CellWeights cells = cells_of(p, 3);
  EXPECT_EQ(cells.capacity, (std::vector<int>{3, 0, 1}));
  EXPECT_EQ(cells.weight,
            (std::vector<std::vector<Value>>{{1, kNever, 4}, {kNever, kNever, kNever}, {4, kNever, kNever}}));
  p.weight[0][1] = p.weight[1][0] = 8;
  EXPECT_EQ(cells_of(p, 3).weight[0][0], 7);
  p.capacity[0] = 1;
  EXPECT_EQ(cells_of(p, 3).weight[0][0], 8);
}

// ---------------------------------------------------------------- grids

struct Side {
  int length;
  bool ring;
};

ClusterProblem grid(const std::vector<Side>& sides, int each, int count, int within = 0) {
  std::vector<int> lengths;
  for (const Side& s : sides) lengths.push_back(s.length);
  ClusterProblem p = problem(product(lengths), each, count, [&](int a, int b) {
    int sum = 10;
    for (std::size_t i = sides.size(); i-- > 0; a /= sides[i].length, b /= sides[i].length) {
      const int d = std::abs(a % sides[i].length - b % sides[i].length);
      sum += 6 * (sides[i].ring ? std::min(d, sides[i].length - d) : d);
    }
    return sum / 1000.0;
  });
  for (std::size_t c = 0; c < p.weight.size(); ++c) p.weight[c][c] = within;
  return p;
}

// A ring of two or three cells is a path whose ends are near.
TEST(Grid, IsARingOrAPathInEachDimension) {
  const std::vector<std::vector<Side>> all{{{4, true}, {5, false}},
                                           {{5, false}, {4, true}},
                                           {{4, true}, {5, true}},
                                           {{4, false}, {4, false}},
                                           {{2, false}, {4, true}, {3, false}},
                                           {{4, true}, {2, false}, {5, true}},
                                           {{2, false}, {2, false}, {2, false}, {2, false}},
                                           {{1, false}, {9, true}},
                                           {{1, false}, {7, false}}};
  for (const auto& sides : all) {
    const GridBound bound = search::grid_of(grid(sides, 1, 4));
    ASSERT_EQ(bound.shape.size(), sides.size());
    for (std::size_t d = 0; d < sides.size(); ++d) {
      EXPECT_EQ(bound.shape[d].length, sides[d].length);
      EXPECT_EQ(bound.shape[d].ring, sides[d].ring) << sides[0].length << " " << sides[1].length << " " << d;
    }
    EXPECT_EQ(bound.bound, by_brute_force(grid(sides, 1, 4)));
  }
}

TEST(Grid, KernelsAddUpToTheDistances) {
  const GridBound mesh = search::grid_of(grid({{3, false}, {4, false}}, 1, 3));
  EXPECT_EQ(mesh.shape[0].kernel, (std::vector<Value>{10, 16, 22}));
  EXPECT_EQ(mesh.shape[1].kernel, (std::vector<Value>{0, 6, 12, 18}));
  const GridBound torus = search::grid_of(grid({{4, true}, {5, true}}, 1, 3));
  EXPECT_EQ(torus.shape[0].kernel, (std::vector<Value>{10, 16, 22}));
  EXPECT_EQ(torus.shape[1].kernel, (std::vector<Value>{0, 6, 12}));
  const GridBound near = search::grid_of(grid({{3, false}, {4, false}}, 2, 4, 3));  // two units of a cell cost 3
  EXPECT_EQ(near.shape[0].kernel, (std::vector<Value>{3, 16, 22}));
  EXPECT_EQ(near.each, 2);
  const GridBound far = search::grid_of(grid({{3, false}, {4, false}}, 2, 4, 30));
  EXPECT_EQ(far.shape[0].kernel, (std::vector<Value>{10, 16, 22}));
  const GridBound path = search::grid_of(grid({{1, false}, {7, false}}, 2, 4, 30));
  EXPECT_EQ(path.shape[1].kernel[1] - path.shape[1].kernel[0], 0);
}

// The kernels do not decrease, so that a distance that falls lowers those before it.
TEST(Grid, KernelsNeverDecreaseAndNeverExceedTheDistances) {
  Random random(6);
  for (const auto& sides :
       {std::vector<Side>{{4, false}, {5, false}}, {{5, true}, {6, true}}, {{2, false}, {3, true}, {4, false}}}) {
    ClusterProblem p = grid(sides, 1, 4);
    for (std::size_t a = 0; a < p.weight.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) p.weight[a][b] = p.weight[b][a] += static_cast<Value>(random() % 8);
    const GridBound g = search::grid_of(p);
    std::vector<std::size_t> lengths;
    for (const auto& d : g.shape) {
      lengths.push_back(d.length);
      for (std::size_t x = 1; x < d.kernel.size(); ++x) EXPECT_GE(d.kernel[x], d.kernel[x - 1]);
    }
    for (std::size_t a = 0; a < p.weight.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const Sizes x = search::digits(a, lengths), y = search::digits(b, lengths);
        Value sum = 0;
        for (std::size_t d = 0; d < lengths.size(); ++d) sum += g.shape[d].kernel[g.shape[d].apart(x[d], y[d])];
        EXPECT_LE(sum, p.weight[a][b]);
      }
    EXPECT_LE(g.bound, by_brute_force(p));
    EXPECT_GT(g.bound, by_brute_force(p) * 4 / 5);
  }
}

// Two whole cells of two units cost 4 · 16 between them, and `within` in each; pairs of more units in proportion.
TEST(GridBound, OfPartsOfCellsIsInProportionToTheirPairsRoundedUp) {
  const std::vector<Side> path{{4, false}, {1, false}};
  EXPECT_EQ(grid_bound(grid(path, 2, 4, 4)), 72);
  EXPECT_EQ(grid_bound(grid(path, 2, 5, 4)), 120);  // 10 pairs instead of 6
  EXPECT_EQ(grid_bound(grid(path, 2, 5, 5)), 124);  // 740 / 6
  EXPECT_EQ(grid_bound(grid(path, 2, 4, 5)), 74);
  EXPECT_EQ(grid_bound(grid(path, 3, 7, 4)), 236);  // (9 · 16 + 2 · 3 · 4) · 21 / 15
  EXPECT_EQ(grid_bound(grid(path, 2, 3, 4)), 0);    // a single whole cell
}

TEST(GridBound, IsNoneOfFewCellsOrOfPositionsWithoutAClass) {
  EXPECT_EQ(grid_bound(grid({{3, false}, {1, false}}, 1, 2)), 0);
  EXPECT_EQ(grid_bound(grid({{4, false}, {1, false}}, 1, 2)), 16);
  EXPECT_EQ(grid_bound(grid({{4, false}, {1, false}}, 1, 1)), 0);
  ClusterProblem p = grid({{5, false}, {1, false}}, 1, 2);
  EXPECT_EQ(grid_bound(p), 16);
  p.cell = {0, 1, 2, 3, 5};
  EXPECT_EQ(grid_bound(p), 0);
}

// 100 steps for each of at most 12 rows of all cells.
TEST(GridBound, IsNoneWhereItWouldTakeTooMuchWork) {
  constexpr double kGridWork = 1.5e7;
  for (const auto& [length, steps] : {std::pair{4, 100 * 4 * 4}, {16, 100 * 16 * 12}}) {
    ClusterProblem p = grid({{length, false}, {1, false}}, 1, 2);
    p.effort = (steps - 1) / kGridWork;
    EXPECT_EQ(grid_bound(p), 0) << length;
    p.effort = (steps + 1) / kGridWork;
    EXPECT_EQ(grid_bound(p), 16) << length;
  }
}

/// A 4 x 4 mesh or torus where only these cells are free, for a square of four.
ClusterProblem free_cells(bool ring, const std::vector<std::size_t>& free, int each = 1) {
  ClusterProblem p = grid({{4, ring}, {4, ring}}, each, 4 * each, 10);
  if (free.empty()) return p;
  std::fill(p.capacity.begin(), p.capacity.end(), 0);
  for (const std::size_t c : free) p.capacity[c] = each;
  return p;
}

std::vector<int> chosen(const std::vector<std::size_t>& cells, int each = 1) {
  std::vector<int> counts(16, 0);
  for (const std::size_t c : cells) counts[c] = each;
  return counts;
}

std::vector<int> put_into(const ClusterProblem& p, const GridBound& shape) {
  const auto found = search::put(p, shape);
  return found ? found->counts : std::vector<int>{};
}

TEST(Grid, BestSetIsPutWhereAllItsCellsAreFree) {
  const GridBound mesh = search::grid_of(free_cells(false, {})), torus = search::grid_of(free_cells(true, {}));
  ASSERT_EQ(mesh.best.size(), 4U);
  EXPECT_EQ(put_into(free_cells(false, {}), mesh), chosen({0, 1, 4, 5}));
  EXPECT_EQ(put_into(free_cells(false, {0, 2, 6, 7, 10, 11, 13}), mesh), chosen({6, 7, 10, 11}));
  EXPECT_EQ(put_into(free_cells(false, {10, 11, 14, 15}), mesh), chosen({10, 11, 14, 15}));
  // Across the ends of a torus, but not of a mesh.
  EXPECT_EQ(put_into(free_cells(true, {0, 3, 12, 15}), torus), chosen({0, 3, 12, 15}));
  EXPECT_EQ(put_into(free_cells(false, {0, 3, 12, 15}), mesh), (std::vector<int>{}));
  EXPECT_EQ(put_into(free_cells(false, {0, 1, 4, 6, 7}), mesh), (std::vector<int>{}));
}

TEST(Grid, BestSetIsPutWhereItCostsLeast) {
  const GridBound mesh = search::grid_of(free_cells(false, {}));
  ClusterProblem p = free_cells(false, {});
  p.weight[9][14] = p.weight[14][9] = p.weight[9][14] - 2;
  p.weight[5][10] = p.weight[10][5] = p.weight[5][10] - 1;
  EXPECT_EQ(put_into(p, mesh), chosen({9, 10, 13, 14}));
  EXPECT_EQ(search::put(p, mesh)->cost, cost_of(p, chosen({9, 10, 13, 14})));
}

// All units of a cell are used, of all its classes, and no more than these.
TEST(Grid, BestSetNeedsWholeCells) {
  const GridBound mesh = search::grid_of(free_cells(false, {}, 2));
  EXPECT_EQ(mesh.each, 2);
  ClusterProblem p = free_cells(false, {}, 2);
  p.capacity[0] = 1;
  EXPECT_EQ(put_into(p, mesh), chosen({1, 2, 5, 6}, 2));
  p.count = 9;
  EXPECT_EQ(put_into(p, mesh), (std::vector<int>{}));
  EXPECT_EQ(put_into(p, {}), (std::vector<int>{}));
}

// A position takes a step per cell, and where it fits one more per cell and class: here 4 + 64.
TEST(Grid, PositionsAreTriedAsLongAsThereIsWork) {
  constexpr double kPutWork = 1e7;
  const GridBound mesh = search::grid_of(free_cells(false, {}));
  ClusterProblem p = free_cells(false, {});
  p.weight[1][6] = p.weight[6][1] = p.weight[1][6] - 1;
  p.effort = 0;
  EXPECT_EQ(put_into(p, mesh), (std::vector<int>{}));
  p.effort = 67 / kPutWork;
  EXPECT_EQ(put_into(p, mesh), chosen({0, 1, 4, 5}));
  p.effort = 69 / kPutWork;
  EXPECT_EQ(put_into(p, mesh), chosen({1, 2, 5, 6}));
}

}  // namespace
}  // namespace mm::place

#include "place/search/search.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "place/search/bounds.hpp"
#include "place/search/exact.hpp"
#include "place/search/shapes/grid.hpp"

namespace mm::place {
namespace {

using search::Choice;
using search::Exact;
using search::GridBound;
using search::is_concave;
using search::Value;

constexpr double kProofWork = 1e7, kSmallProofWork = 1e9;  // steps of the innermost loop of Exact

/// Merges indistinguishable classes (nodes under one switch of a tree) to reduce the search; `group_of` maps old
/// classes to new ones.
ClusterProblem merged(const ClusterProblem& p, std::vector<std::size_t>& group_of) {
  const std::size_t classes = p.capacity.size();
  std::vector<std::vector<std::size_t>> groups;
  const auto joins = [&](const std::vector<std::size_t>& group, std::size_t c) {
    const std::size_t first = group.front();
    const Value within = p.weight[first][c];
    for (const std::size_t g : group)
      if (p.weight[g][c] != within || (p.capacity[g] > 1 && p.weight[g][g] != within)) return false;
    if (group.size() > 1 && p.weight[first][group[1]] != within) return false;
    if (p.capacity[c] > 1 && p.weight[c][c] != within) return false;
    for (std::size_t x = 0; x < classes; ++x)
      if (x != c && x != first && p.weight[first][x] != p.weight[c][x]) return false;
    return true;
  };
  group_of.assign(classes, 0);
  for (std::size_t c = 0; c < classes; ++c) {
    std::size_t g = 0;
    while (g < groups.size() && !joins(groups[g], c)) ++g;
    if (g == groups.size()) groups.emplace_back();
    groups[g].push_back(c);
    group_of[c] = g;
  }
  ClusterProblem result{{}, {}, {}, p.count, p.effort, p.prove};
  for (const auto& a : groups) {
    result.cell.push_back(p.cell[a.front()]);
    result.capacity.push_back(0);
    for (const std::size_t c : a) result.capacity.back() += p.capacity[c];
    result.weight.emplace_back();
    for (const auto& b : groups)
      result.weight.back().push_back(&a == &b && a.size() > 1 ? p.weight[a[0]][a[1]] : p.weight[a[0]][b[0]]);
  }
  return result;
}

/// Returns the number of choices of units.
double sets(const ClusterProblem& p) {
  const double units = std::accumulate(p.capacity.begin(), p.capacity.end(), 0);
  double result = 1;
  for (int k = 0; k < p.count; ++k) result *= (units - k) / (k + 1);
  return result;
}

/// Computes cheap bounds first, and stops once a bound suffices.
Cluster solve(const ClusterProblem& problem) {
  Choice best = search::heuristic(problem);
  std::int64_t bound = degree_bound(problem);
  const auto open = [&](double share) {
    return static_cast<double>(best.cost) > (1 + share) * static_cast<double>(bound) && best.cost > bound;
  };
  if (open(0)) {
    const GridBound grid = search::grid_of(problem);
    bound = std::max(bound, grid.bound);
    if (auto shape = search::put(problem, grid); shape && shape->cost <= best.cost) best = *std::move(shape);
  }
  if (open(0)) {
    const Bounded tree = tree_bound(problem);
    bound = std::max(bound, tree.bound);
    if (!tree.counts.empty())
      if (Choice choice = search::improved(problem, tree.counts); choice.cost < best.cost) best = std::move(choice);
  }
  const bool small = sets(problem) <= 2e7;  // 8 of 32 are 10.5 million
  if (problem.prove && !small && open(0.005)) bound = std::max(bound, translation_bound(problem));
  if (problem.prove && !small && open(0.05)) bound = std::max(bound, spectral_bound(problem, best.cost));
  const double levels = static_cast<double>(problem.capacity.size()) * problem.count;  // memory of Exact
  if (open(0) && levels < 2e7 && is_concave(problem)) {
    Exact exact(problem, best, (small ? kSmallProofWork : kProofWork) * problem.effort);
    const bool complete = exact.run();
    best = exact.best();
    if (complete) bound = best.cost;
  }
  return {best.counts, best.cost, bound, best.cost == bound};
}

/// Solves the same problem with one class per unit, where every choice consists of full classes.
Cluster split_classes(const ClusterProblem& p) {
  std::vector<std::size_t> class_by_unit;
  for (std::size_t c = 0; c < p.capacity.size(); ++c)
    class_by_unit.insert(class_by_unit.end(), static_cast<std::size_t>(p.capacity[c]), c);
  ClusterProblem singles{{}, std::vector<int>(class_by_unit.size(), 1), {}, p.count, p.effort, p.prove};
  for (const std::size_t a : class_by_unit) {
    singles.cell.push_back(p.cell[a]);
    singles.weight.emplace_back();
    for (const std::size_t b : class_by_unit) singles.weight.back().push_back(p.weight[a][b]);
  }
  const Cluster cluster = solve(singles);
  Cluster result{std::vector<int>(p.capacity.size(), 0), cluster.cost, cluster.bound, cluster.optimal};
  for (std::size_t i = 0; i < class_by_unit.size(); ++i) result.counts[class_by_unit[i]] += cluster.counts[i];
  return result;
}

}  // namespace

Cluster by_branch_and_bound(const ClusterProblem& problem) {
  Choice first(problem);
  int left = problem.count;
  for (std::size_t c = 0; c < problem.capacity.size() && left > 0; ++c) {
    const int units = std::min(left, problem.capacity[c]);
    if (units > 0) first.add(c, units);
    left -= units;
  }
  Exact exact(problem, std::move(first), std::numeric_limits<double>::infinity());
  const bool complete = exact.run() && is_concave(problem);
  const Choice& best = exact.best();
  return {best.counts, best.cost, complete ? best.cost : 0, complete};
}

Cluster least_cluster(const ClusterProblem& problem) {
  const auto units = std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0);
  if (!is_concave(problem) && units <= 64) return split_classes(problem);
  std::vector<std::size_t> merged_class;
  Cluster cluster = solve(merged(problem, merged_class));
  std::vector<int> counts(problem.capacity.size());
  for (std::size_t c = 0; c < counts.size(); ++c) {
    counts[c] = std::min(cluster.counts[merged_class[c]], problem.capacity[c]);
    cluster.counts[merged_class[c]] -= counts[c];
  }
  cluster.counts = std::move(counts);
  return cluster;
}

}  // namespace mm::place

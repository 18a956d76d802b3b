#include "place/policy/choose.hpp"

#include <algorithm>
#include <cmath>

#include "place/search/search.hpp"

namespace mm::place::policy {

Picked compact(const View& view, const std::vector<Index>& among, double effort) {
  Classes classes(view, among);
  // A hop limit yields many small problems; classes without free slots only help to recognize a whole grid.
  if (view.request.max_hops) classes.drop_taken();
  const Index count = classes.first.size();
  const auto n = static_cast<std::int64_t>(view.slots_needed());
  if (static_cast<std::int64_t>(free_of(view, among).size()) < n) return {};
  if (n == 1) return any(view, among);

  // Encodes the distance of nodes and, as a tie-breaker, the level in one integer. Distances from firmware are
  // integers; measured ones are scaled so that the total cost fits in 63 bits.
  const std::int64_t pairs = n * (n - 1) / 2, level_base = 3 * pairs + 1;
  const auto max = std::min<double>(0x1p40, 0x1p60 / static_cast<double>(pairs) / static_cast<double>(level_base));
  const auto distance_of = [&](Index a, Index b) {  // distance of two classes, or of two slots of one class
    return a != b || view.request.kind != SlotKind::procs ? view.distance(classes.first[a], classes.first[b]) : 0;
  };
  double largest = 0;
  bool half_integers =
      std::all_of(view.slots.begin(), view.slots.end(), [](const Slot& s) { return s.nodes.size() == 1; });
  for (const auto& [a, x] : view.node_index)
    for (const auto& [b, y] : view.node_index) {
      const double d = view.apart(x, y);
      if (!std::isfinite(d)) continue;  // memory-only nodes
      largest = std::max(largest, d);
      half_integers = half_integers && std::floor(2 * d) == 2 * d;
    }
  const double scale =
      half_integers && 2 * largest <= max ? 2 : max / largest;  // 2: the mean of both directions may be a half
  ClusterProblem problem;
  problem.count = static_cast<int>(n);
  problem.effort = effort;
  problem.prove = view.request.prove;
  problem.weight.assign(count, std::vector<std::int64_t>(count));
  std::map<Index, int> cells;
  for (Index a = 0; a < count; ++a) cells.emplace(view.node(classes.first[a]), 0);
  int cell = 0;
  for (auto& [node, number] : cells) number = cell++;
  for (Index a = 0; a < count; ++a) {
    problem.capacity.push_back(static_cast<int>(classes.free[a].size()));
    problem.cell.push_back(cells[view.node(classes.first[a])]);
    for (Index b = 0; b < count; ++b) {
      const int level = a != b                                   ? view.level(classes.first[a], classes.first[b])
                        : view.request.kind == SlotKind::threads ? 0
                                                                 : 1;
      problem.weight[a][b] = std::llround(distance_of(a, b) * scale) * level_base + level;
    }
  }
  const Cluster cluster = least_cluster(problem);
  Pick pick;
  for (Index a = 0; a < count; ++a)
    pick.slots.insert(pick.slots.end(), classes.free[a].begin(), classes.free[a].begin() + cluster.counts[a]);
  std::sort(pick.slots.begin(), pick.slots.end());
  pick.cost = cluster.cost;
  pick.floor = cluster.bound;
  pick.optimal = cluster.optimal;
  const std::int64_t distance_bound = cluster.bound / level_base;  // rounded down, so it remains a bound
  auto bound = static_cast<double>(distance_bound);
  if (scale != 2) bound -= 0.5 * static_cast<double>(pairs);  // each distance was rounded
  pick.bound = bound / scale / static_cast<double>(pairs);
  pick.why = cluster.optimal ? "minimum mean distance, proven" : "smallest mean distance found";
  return pick;
}

}  // namespace mm::place::policy

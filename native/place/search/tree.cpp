#include <algorithm>
#include <numeric>
#include <utility>

#include "place/search/bounds.hpp"
#include "place/search/choice.hpp"

namespace mm::place::search {

namespace {

constexpr double kTreeWork = 4e6;  // pairs of classes

/// Returns the joins of two branches, the nearest by mean distance first (average linkage, Sokal and Michener 1958, by
/// chains of nearest neighbours, Murtagh 1983). Branches below `classes` are classes; later ones are joins in their
/// order.
std::vector<std::pair<std::size_t, std::size_t>> joins_of(const ClusterProblem& p) {
  std::vector<std::size_t> name, size;
  for (std::size_t c = 0; c < p.capacity.size(); ++c)
    if (p.capacity[c] > 0) name.push_back(c), size.push_back(static_cast<std::size_t>(p.capacity[c]));
  const std::size_t n = name.size();
  std::vector<double> distance(n * n);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) distance[a * n + b] = static_cast<double>(p.weight[name[a]][name[b]]);
  struct Join {
    double height;
    std::size_t a, b;  // one class of each side
  };
  std::vector<Join> unsorted;
  std::vector<bool> absorbed(n, false);
  std::vector<std::size_t> chain;
  while (unsorted.size() + 1 < n) {
    if (chain.empty())
      chain.push_back(static_cast<std::size_t>(std::find(absorbed.begin(), absorbed.end(), false) - absorbed.begin()));
    const std::size_t a = chain.back();
    std::size_t b =
        chain.size() > 1 ? chain[chain.size() - 2] : n;  // ties keep the predecessor, so that the chain ends
    for (std::size_t c = 0; c < n; ++c)
      if (!absorbed[c] && c != a && (b == n || distance[a * n + c] < distance[a * n + b])) b = c;
    if (chain.size() < 2 || b != chain[chain.size() - 2]) {
      chain.push_back(b);
      continue;
    }
    chain.resize(chain.size() - 2);
    unsorted.push_back({distance[a * n + b], a, b});
    const double x = static_cast<double>(size[a]), y = static_cast<double>(size[b]);
    for (std::size_t c = 0; c < n; ++c)
      distance[b * n + c] = distance[c * n + b] = (x * distance[a * n + c] + y * distance[b * n + c]) / (x + y);
    size[b] += size[a];
    absorbed[a] = true;
  }
  // A chain finds joins out of order; a stable sort keeps each join after its branches.
  std::stable_sort(unsorted.begin(), unsorted.end(), [](const Join& a, const Join& b) { return a.height < b.height; });
  std::vector<std::size_t> parent(n), branch = name;
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t c) {
    while (parent[c] != c) c = parent[c] = parent[parent[c]];
    return c;
  };
  std::vector<std::pair<std::size_t, std::size_t>> joins;
  for (const Join& join : unsorted) {
    const std::size_t a = root(join.a), b = root(join.b);
    joins.emplace_back(branch[a], branch[b]);
    parent[a] = b;
    branch[b] = p.capacity.size() + joins.size() - 1;
  }
  return joins;
}

/// The cost between units of two branches.
class Across {
 public:
  Across(const ClusterProblem& p, const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
         std::size_t most_from, std::size_t most_to)
      : width_(most_to + 1), least_((most_from + 1) * (most_to + 1), 0) {
    std::vector<std::vector<Value>> sums(from.size(), std::vector<Value>(width_, 0));
    std::vector<std::pair<Value, int>> row(to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      for (std::size_t j = 0; j < to.size(); ++j) row[j] = {p.weight[from[i]][to[j]], p.capacity[to[j]]};
      std::sort(row.begin(), row.end());
      std::size_t t = 1;
      for (const auto& [weight, n] : row)
        for (int u = 0; u < n && t < width_; ++u, ++t) sums[i][t] = sums[i][t - 1] + weight;
    }
    std::vector<std::pair<Value, int>> column(from.size());
    for (std::size_t t = 1; t < width_; ++t) {
      for (std::size_t i = 0; i < from.size(); ++i) column[i] = {sums[i][t], p.capacity[from[i]]};
      std::sort(column.begin(), column.end());
      std::size_t s = 1;
      for (const auto& [sum, n] : column)
        for (int u = 0; u < n && s <= most_from; ++u, ++s) least_[s * width_ + t] = least_[(s - 1) * width_ + t] + sum;
    }
  }
  Value operator()(std::size_t s, std::size_t t) const { return least_[s * width_ + t]; }

 private:
  std::size_t width_;
  std::vector<Value> least_;  // [units of from][units of to]
};

}  // namespace

}  // namespace mm::place::search

namespace mm::place {

Bounded tree_bound(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size(), max_units = static_cast<std::size_t>(p.count);
  if (static_cast<double>(classes * classes) > search::kTreeWork * p.effort) return {};
  const auto joins = search::joins_of(p);
  struct Branch {
    std::vector<std::size_t> classes;
    std::vector<search::Value> min_cost;  // by number of units
    std::vector<std::size_t> first;       // number of these units in the first branch of the join
  };
  std::vector<Branch> branches(classes + joins.size());
  std::size_t root = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    if (p.capacity[c] == 0) continue;
    root = c;
    branches[c].classes.push_back(c);
    for (std::size_t n = 0; n <= std::min(max_units, static_cast<std::size_t>(p.capacity[c])); ++n)
      branches[c].min_cost.push_back(search::pairs(static_cast<search::Value>(n)) * p.weight[c][c]);
  }
  for (std::size_t j = 0; j < joins.size(); ++j) {
    const Branch &a = branches[joins[j].first], &b = branches[joins[j].second];
    Branch& joined = branches[root = classes + j];
    joined.classes = a.classes;
    joined.classes.insert(joined.classes.end(), b.classes.begin(), b.classes.end());
    const std::size_t end_a = a.min_cost.size(), end_b = b.min_cost.size();
    const search::Across from_a(p, a.classes, b.classes, end_a - 1, end_b - 1);
    const search::Across from_b(p, b.classes, a.classes, end_b - 1, end_a - 1);
    const std::size_t end = std::min(max_units + 1, end_a + end_b - 1);
    joined.min_cost.assign(end, search::kNever);
    joined.first.assign(end, 0);
    for (std::size_t s = 0; s < end_a; ++s)
      for (std::size_t t = 0; t < end_b && s + t < end; ++t) {
        const search::Value cost = a.min_cost[s] + b.min_cost[t] + std::max(from_a(s, t), from_b(t, s));
        if (cost < joined.min_cost[s + t]) joined.min_cost[s + t] = cost, joined.first[s + t] = s;
      }
  }
  Bounded result{branches[root].min_cost[max_units], std::vector<int>(classes, 0)};
  std::vector<std::pair<std::size_t, std::size_t>> open{{root, max_units}};
  while (!open.empty()) {
    const auto [branch, units] = open.back();
    open.pop_back();
    if (branch < classes) {
      result.counts[branch] = static_cast<int>(units);
      continue;
    }
    const std::size_t first = branches[branch].first[units];
    open.emplace_back(joins[branch - classes].first, first);
    open.emplace_back(joins[branch - classes].second, units - first);
  }
  return result;
}

}  // namespace mm::place

#include "place/search/exact.hpp"

#include <algorithm>
#include <numeric>

namespace mm::place::search {

namespace {

/// Returns the sum of the `count` smallest values of (value, units).
Value smallest(std::vector<std::pair<Value, int>>& units, int count) {
  std::sort(units.begin(), units.end());
  Value sum = 0;
  for (const auto& [value, n] : units) {
    const int k = std::min(n, count);
    sum += k * value;
    count -= k;
    if (count == 0) break;
  }
  return sum;
}

Value half_up(Value twice) { return (twice + 1) / 2; }

}  // namespace

std::vector<std::vector<Value>> nearest_sums(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size(), max_units = static_cast<std::size_t>(p.count);
  std::vector<std::vector<Value>> sums(classes, std::vector<Value>(max_units, 0));
  std::vector<std::pair<Value, int>> units;
  for (std::size_t c = 0; c < classes; ++c) {
    units.clear();
    for (std::size_t i = 0; i < classes; ++i)
      if (const int n = p.capacity[i] - (i == c ? 1 : 0); n > 0) units.emplace_back(p.weight[c][i], n);
    if (units.size() > max_units)
      std::nth_element(units.begin(), units.begin() + static_cast<long>(max_units), units.end()),
          units.resize(max_units);
    std::sort(units.begin(), units.end());
    std::size_t t = 1;
    for (const auto& [weight, n] : units)
      for (int k = 0; k < n && t < max_units; ++k, ++t) sums[c][t] = sums[c][t - 1] + weight;
  }
  return sums;
}

Exact::Exact(const ClusterProblem& p, Choice incumbent, double budget)
    : p_(p),
      best_(std::move(incumbent)),
      budget_(budget),
      nearest_(nearest_sums(p)),
      levels_(static_cast<std::size_t>(p.count) + 1, Choice(p)),
      single_(*std::max_element(p.capacity.begin(), p.capacity.end()) == 1) {}

bool Exact::run() {
  descend(0, 0, p_.count);
  return work_ <= budget_;
}

void Exact::descend(std::size_t depth, std::size_t start, int left) {
  const Choice& c = levels_[depth];
  const std::size_t classes = p_.capacity.size();
  work_ += static_cast<double>(single_ ? classes : 6 * classes);
  if (work_ > budget_) return;
  Value min_cost = kNever;
  std::size_t last_class = classes;
  for (std::size_t j = 0; j < classes; ++j) {  // completed by a class that contributes the remaining units
    if (c.counts[j] != 0 || p_.capacity[j] < left || (p_.capacity[j] == left && j < start)) continue;
    const Value completion_cost = left * c.potential[j] + pairs(left) * p_.weight[j][j];
    if (completion_cost < min_cost) min_cost = completion_cost, last_class = j;
  }
  if (last_class != classes && c.cost + min_cost < best_.cost) {
    best_ = c;
    best_.add(last_class, left);
  }
  if (left == 1) return;
  if (c.cost + bound(c, start, left) >= best_.cost) return;
  for (std::size_t j = start; j < classes; ++j) {
    if (p_.capacity[j] == 0 || p_.capacity[j] >= left) continue;
    levels_[depth + 1] = c;
    levels_[depth + 1].add(j, p_.capacity[j]);
    descend(depth + 1, j + 1, left - p_.capacity[j]);
    if (work_ > budget_) return;
  }
}

/// Returns the minimum cost of `left` more units: the cost of each to the chosen units, and half of the cost to its
/// nearest others.
Value Exact::bound(const Choice& c, std::size_t start, int left) {
  const std::size_t classes = p_.capacity.size();
  const auto t = static_cast<std::size_t>(left - 1);
  if (single_) {
    values_.clear();
    for (std::size_t j = start; j < classes; ++j)
      if (p_.capacity[j] != 0) values_.push_back(2 * c.potential[j] + nearest_[j][t]);
    if (values_.size() < static_cast<std::size_t>(left)) return kNever / 2;
    std::nth_element(values_.begin(), values_.begin() + left - 1, values_.end());
    return half_up(std::accumulate(values_.begin(), values_.begin() + left, Value{0}));
  }
  units_.clear();
  for (std::size_t j = 0; j < classes; ++j)
    if (c.counts[j] == 0 && p_.capacity[j] != 0)
      units_.emplace_back(2 * c.potential[j] + nearest_[j][t], p_.capacity[j]);
  return half_up(smallest(units_, left));
}

bool is_concave(const ClusterProblem& p) {
  for (std::size_t a = 0; a < p.capacity.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (p.capacity[a] > 1 && p.capacity[b] > 1 && p.weight[a][a] + p.weight[b][b] > 2 * p.weight[a][b]) return false;
  return true;
}

}  // namespace mm::place::search

namespace mm::place {

std::int64_t degree_bound(const ClusterProblem& problem) {
  if (problem.count < 2) return 0;
  const auto sums = search::nearest_sums(problem);
  std::vector<std::pair<search::Value, int>> units;
  for (std::size_t c = 0; c < sums.size(); ++c)
    if (problem.capacity[c] > 0) units.emplace_back(sums[c].back(), problem.capacity[c]);
  return search::half_up(search::smallest(units, problem.count));
}

}  // namespace mm::place

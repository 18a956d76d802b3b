#include "place/search/choice.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mm::place::search {

namespace {

// Counted in steps of the innermost loops.
constexpr double kStartWork = 2e7, kExchangeWork = 1.5e7;

/// Grows a choice greedily: starts with a seed, and always adds the unit that costs least.
Choice grow(const ClusterProblem& p, std::size_t seed) {
  Choice c(p);
  c.add(seed, 1);
  for (int k = 1; k < p.count; ++k) {
    std::size_t best = p.capacity.size();
    for (std::size_t i = 0; i < p.capacity.size(); ++i)
      if (c.has_room(i) && (best == p.capacity.size() || c.potential[i] < c.potential[best])) best = i;
    c.add(best, 1);
  }
  return c;
}

/// Returns the units nearest to a seed.
Choice ball(const ClusterProblem& p, std::size_t seed) {
  std::vector<std::size_t> order(p.capacity.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return (a == seed ? -1 : p.weight[seed][a]) < (b == seed ? -1 : p.weight[seed][b]);
  });
  Choice c(p);
  int left = p.count;
  for (const std::size_t i : order) {
    const int units = std::min(left, p.capacity[i]);
    if (units > 0) c.add(i, units);
    left -= units;
  }
  return c;
}

/// Exchanges units, one or as many as fit, while this improves the choice and there is `work` left: first among the
/// classes with the highest cost and the classes with the lowest potential cost, then among all.
void improve(const ClusterProblem& p, Choice& c, double& work) {
  constexpr std::size_t kFew = 48;
  std::vector<std::size_t> givers, takers;
  bool all = false;
  while (work > 0) {
    givers.clear(), takers.clear();
    for (std::size_t i = 0; i < p.capacity.size(); ++i) {
      if (c.counts[i] > 0) givers.push_back(i);
      if (c.has_room(i)) takers.push_back(i);
    }
    const bool few = !all && givers.size() * takers.size() > 4 * kFew * kFew;
    if (few) {
      const auto keep = [&](std::vector<std::size_t>& candidates, auto&& order) {
        if (candidates.size() <= kFew) return;
        std::nth_element(candidates.begin(), candidates.begin() + kFew, candidates.end(), order);
        candidates.resize(kFew);
      };
      keep(givers, [&](auto a, auto b) { return std::pair{-c.potential[a], a} < std::pair{-c.potential[b], b}; });
      keep(takers, [&](auto a, auto b) { return std::pair{c.potential[a], a} < std::pair{c.potential[b], b}; });
    }
    work -= static_cast<double>(givers.size() * takers.size() + 4 * p.capacity.size());
    Value best = 0;
    std::size_t from = 0, to = 0;
    int units = 0;
    for (const std::size_t i : givers)
      for (const std::size_t j : takers) {
        if (i == j) continue;
        const int max_units = std::min(c.counts[i], p.capacity[j] - c.counts[j]);
        for (int t = 1;; t = max_units) {
          if (const Value d = c.change(i, j, t); d < best) {
            best = d;
            from = i, to = j, units = t;
          }
          if (t == max_units) break;
        }
      }
    if (units == 0 && !few) return;
    all = units == 0;
    if (units != 0) c.move(from, to, units);
  }
}

}  // namespace

Choice heuristic(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size();
  const double work_per_start = 2 * static_cast<double>(p.count) * static_cast<double>(classes);
  double work = kStartWork * p.effort;
  const auto seeds = static_cast<std::size_t>(1 + work / (work_per_start + static_cast<double>(classes)));
  std::vector<Choice> starts;
  for (std::size_t i = 0; i < classes; i += (classes + seeds - 1) / seeds) {
    std::size_t seed = i;
    while (seed < classes && p.capacity[seed] == 0) ++seed;
    if (seed == classes) break;
    starts.push_back(grow(p, seed));
    starts.push_back(ball(p, seed));
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
  work = kExchangeWork * p.effort;
  std::size_t best = 0;
  for (std::size_t i = 0; i < starts.size() && work > 0; ++i) {
    improve(p, starts[i], work);
    if (starts[i].cost < starts[best].cost) best = i;
  }
  return starts[best];
}

Choice improved(const ClusterProblem& p, const std::vector<int>& counts) {
  Choice choice(p);
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0) choice.add(c, counts[c]);
  double work = kExchangeWork / 4 * p.effort;
  improve(p, choice, work);
  return choice;
}

}  // namespace mm::place::search

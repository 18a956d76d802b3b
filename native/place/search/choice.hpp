#pragma once
/// A choice of units and the local search that improves it: greedy growth and balls as starts, then exchanges.
#include <cstdint>
#include <limits>
#include <vector>

#include "place/search/search.hpp"

namespace mm::place::search {

using Value = std::int64_t;
inline constexpr Value kNever = std::numeric_limits<Value>::max();

inline Value pairs(Value n) { return n * (n - 1) / 2; }

/// A choice of units that maintains, for each class, the cost of one more unit of it.
class Choice {
 public:
  std::vector<int> counts;
  std::vector<Value> potential;
  Value cost = 0;

  explicit Choice(const ClusterProblem& problem)
      : counts(problem.capacity.size()), potential(problem.capacity.size()), p_(&problem) {}

  void add(std::size_t to, int units) {
    cost += units * potential[to] + pairs(units) * p_->weight[to][to];
    shift(to, units);
  }
  /// Returns the change of the cost from moving `units` from one class to another.
  Value change(std::size_t from, std::size_t to, Value units) const {
    return units * (potential[to] - potential[from]) - units * units * p_->weight[from][to] +
           pairs(units + 1) * p_->weight[from][from] + pairs(units) * p_->weight[to][to];
  }
  void move(std::size_t from, std::size_t to, int units) {
    cost += change(from, to, units);
    shift(from, -units);
    shift(to, units);
  }
  bool has_room(std::size_t in) const { return counts[in] < p_->capacity[in]; }

 private:
  void shift(std::size_t at, int units) {
    counts[at] += units;
    const auto& row = p_->weight[at];
    for (std::size_t i = 0; i < row.size(); ++i) potential[i] += units * row[i];
  }
  const ClusterProblem* p_;
};

/// Returns the best choice that local search finds from many starts.
Choice heuristic(const ClusterProblem& p);

/// Returns the choice that a bound suggests, improved by exchanges.
Choice improved(const ClusterProblem& p, const std::vector<int>& counts);

}  // namespace mm::place::search

#pragma once
/// Problems of compact sets as tests make them, and their optimum by brute force.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "place/search/search.hpp"

namespace mm::place {

using Value = std::int64_t;
using Random = std::mt19937_64;

inline std::int64_t cost_of(const ClusterProblem& p, const std::vector<int>& counts) {
  Value cost = 0;
  for (std::size_t a = 0; a < counts.size(); ++a) {
    cost += p.weight[a][a] * counts[a] * (counts[a] - 1) / 2;
    for (std::size_t b = 0; b < a; ++b) cost += p.weight[a][b] * counts[a] * counts[b];
  }
  return cost;
}

inline Value by_brute_force(const ClusterProblem& p) {
  Value best = -1;
  std::vector<int> counts(p.capacity.size(), 0);
  const std::function<void(std::size_t, int, Value)> fill = [&](std::size_t at, int left, Value cost) {
    if (left == 0) {
      if (best < 0 || cost < best) best = cost;
      return;
    }
    if (at == counts.size()) return;
    Value one = 0;
    for (std::size_t b = 0; b < at; ++b) one += p.weight[at][b] * counts[b];
    for (int n = 0; n <= std::min(left, p.capacity[at]); ++n) {
      counts[at] = n;
      fill(at + 1, left - n, cost + n * one + p.weight[at][at] * n * (n - 1) / 2);
    }
    counts[at] = 0;
  };
  fill(0, p.count, 0);
  return best;
}

/// Classes of these weights, each in a cell of its own, with one unit unless `capacity` says more.
inline ClusterProblem problem_of(std::vector<std::vector<Value>> weight, int count, std::vector<int> capacity = {}) {
  ClusterProblem p;
  p.capacity = capacity.empty() ? std::vector<int>(weight.size(), 1) : std::move(capacity);
  for (std::size_t c = 0; c < weight.size(); ++c) p.cell.push_back(static_cast<int>(c));
  p.weight = std::move(weight);
  p.count = count;
  return p;
}

/// `distance` of every two classes, in thousandths; a distance of 0 within a class.
inline ClusterProblem problem(int classes, int each, int count, const std::function<double(int, int)>& distance) {
  ClusterProblem p;
  p.count = count;
  p.weight.assign(static_cast<std::size_t>(classes), std::vector<Value>(static_cast<std::size_t>(classes), 0));
  for (int a = 0; a < classes; ++a) {
    p.capacity.push_back(each);
    p.cell.push_back(a);
    for (int b = 0; b < a; ++b) {
      const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
      p.weight[x][y] = p.weight[y][x] = std::llround(1000 * distance(a, b));
    }
  }
  return p;
}

inline double hops(int a, int b, const std::vector<int>& lengths, bool ring) {
  int sum = 0;
  for (std::size_t i = lengths.size(); i-- > 0; a /= lengths[i], b /= lengths[i]) {
    const int d = std::abs(a % lengths[i] - b % lengths[i]);
    sum += ring ? std::min(d, lengths[i] - d) : d;
  }
  return 10 + 6 * sum;
}

/// The highest level at which two leaves of a tree with these branching factors differ.
inline double level(int a, int b, const std::vector<int>& branches) {
  constexpr double kLevels[] = {25, 50, 110, 200};
  std::size_t part = 0;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const int n = branches[branches.size() - 1 - i];
    if (a % n != b % n) part = i;
    a /= n, b /= n;
  }
  return kLevels[part];
}

inline int product(const std::vector<int>& of) { return std::accumulate(of.begin(), of.end(), 1, std::multiplies<>()); }

inline double between(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() % 1000001) / 1e6;
}

}  // namespace mm::place

#include "search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "bounds.hpp"

namespace mm::place {
namespace {

using Value = std::int64_t;
constexpr Value kNever = std::numeric_limits<Value>::max();

// Steps of each part's innermost loop: all together, the bounds included, half a second for up to 1024 classes.
constexpr double kStartWork = 2e7, kExchangeWork = 1.5e7, kGridWork = 1.5e7, kPutWork = 1e7;
constexpr double kProofWork = 1e7, kSmallProofWork = 1e9;

Value pairs(Value n) { return n * (n - 1) / 2; }

/// A choice of units that keeps, for each class, what one more unit of it would cost.
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
  /// What moving `units` from one class to another changes the cost by.
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

/// From a seed, always the unit that costs least.
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

/// The units nearest to a seed.
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

/// Exchanges units, one or as many as fit, as long as that makes the choice better and there is `work` left: among the
/// classes that cost most and those that would cost least, as long as that helps, and then among all.
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
      const auto keep = [&](std::vector<std::size_t>& of, auto&& before) {
        if (of.size() <= kFew) return;
        std::nth_element(of.begin(), of.begin() + kFew, of.end(), before);
        of.resize(kFew);
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
        const int most = std::min(c.counts[i], p.capacity[j] - c.counts[j]);
        for (int t = 1;; t = most) {
          if (const Value d = c.change(i, j, t); d < best) {
            best = d;
            from = i, to = j, units = t;
          }
          if (t == most) break;
        }
      }
    if (units == 0 && !few) return;
    all = units == 0;
    if (units != 0) c.move(from, to, units);
  }
}

Choice heuristic(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size();
  const double once = 2 * static_cast<double>(p.count) * static_cast<double>(classes);
  double work = kStartWork * p.effort;
  const auto seeds = static_cast<std::size_t>(1 + work / (once + static_cast<double>(classes)));
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

/// nearest[c][t]: distances from a unit of class c to the t nearest other units, summed.
std::vector<std::vector<Value>> nearest_sums(const ClusterProblem& p) {
  const std::size_t classes = p.capacity.size(), most = static_cast<std::size_t>(p.count);
  std::vector<std::vector<Value>> sums(classes, std::vector<Value>(most, 0));
  std::vector<std::pair<Value, int>> units;
  for (std::size_t c = 0; c < classes; ++c) {
    units.clear();
    for (std::size_t i = 0; i < classes; ++i)
      if (const int n = p.capacity[i] - (i == c ? 1 : 0); n > 0) units.emplace_back(p.weight[c][i], n);
    if (units.size() > most)
      std::nth_element(units.begin(), units.begin() + static_cast<long>(most), units.end()), units.resize(most);
    std::sort(units.begin(), units.end());
    std::size_t t = 1;
    for (const auto& [weight, n] : units)
      for (int k = 0; k < n && t < most; ++k, ++t) sums[c][t] = sums[c][t - 1] + weight;
  }
  return sums;
}

/// The `count` smallest of (value, units), summed.
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

/// Sets of full classes in rising order, closed by at most one class that gives only a part: some optimum is like that
/// where two units of one class are nowhere farther apart than the mean of units of two (moving units between two
/// parted classes then changes the cost by a concave function of their number, which is least at an end).
class Exact {
 public:
  Exact(const ClusterProblem& p, Choice incumbent, double budget)
      : p_(p),
        best_(std::move(incumbent)),
        budget_(budget),
        nearest_(nearest_sums(p)),
        levels_(static_cast<std::size_t>(p.count) + 1, Choice(p)),
        single_(*std::max_element(p.capacity.begin(), p.capacity.end()) == 1) {}
  bool run() {  ///< whether the search was exhausted: then the best choice is an optimum
    descend(0, 0, p_.count);
    return work_ <= budget_;
  }
  const Choice& best() const { return best_; }

 private:
  void descend(std::size_t depth, std::size_t start, int left) {
    const Choice& c = levels_[depth];
    const std::size_t classes = p_.capacity.size();
    work_ += static_cast<double>(single_ ? classes : 6 * classes);
    if (work_ > budget_) return;
    Value least = kNever;
    std::size_t with = classes;
    for (std::size_t j = 0; j < classes; ++j) {  // closed by a class that gives all that is left
      if (c.counts[j] != 0 || p_.capacity[j] < left || (p_.capacity[j] == left && j < start)) continue;
      const Value more = left * c.potential[j] + pairs(left) * p_.weight[j][j];
      if (more < least) least = more, with = j;
    }
    if (with != classes && c.cost + least < best_.cost) {
      best_ = c;
      best_.add(with, left);
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
  /// What `left` more units cost at least: each to those chosen, and half of its nearest others.
  Value bound(const Choice& c, std::size_t start, int left) {
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

  const ClusterProblem& p_;
  Choice best_;
  double budget_, work_ = 0;
  std::vector<std::vector<Value>> nearest_;
  std::vector<Choice> levels_;  // by depth, so that the search allocates nothing
  std::vector<Value> values_;
  std::vector<std::pair<Value, int>> units_;
  bool single_;
};

/// Whether Exact's restriction loses nothing.
bool is_concave(const ClusterProblem& p) {
  for (std::size_t a = 0; a < p.capacity.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (p.capacity[a] > 1 && p.capacity[b] > 1 && p.weight[a][a] + p.weight[b][b] > 2 * p.weight[a][b]) return false;
  return true;
}

/// The problem with classes that nothing tells apart made one (nodes under one switch of a tree), so that there is less
/// to search; `of` gets the new class of each old one.
ClusterProblem merged(const ClusterProblem& p, std::vector<std::size_t>& of) {
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
  of.assign(classes, 0);
  for (std::size_t c = 0; c < classes; ++c) {
    std::size_t g = 0;
    while (g < groups.size() && !joins(groups[g], c)) ++g;
    if (g == groups.size()) groups.emplace_back();
    groups[g].push_back(c);
    of[c] = g;
  }
  ClusterProblem result{{}, {}, {}, p.count, p.effort};
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

/// How many choices of units there are.
double sets(const ClusterProblem& p) {
  const double units = std::accumulate(p.capacity.begin(), p.capacity.end(), 0);
  double result = 1;
  for (int k = 0; k < p.count; ++k) result *= (units - k) / (k + 1);
  return result;
}

// ------------------------------------------------------------------ grids

/// One dimension of a grid: `length` places in a ring or a path, and what two units cost at each distance in it.
struct Dimension {
  std::size_t length = 0;
  bool ring = false;
  std::vector<Value> kernel = {};  // rising

  std::size_t apart(std::size_t a, std::size_t b) const {
    const std::size_t d = a > b ? a - b : b - a;
    return ring ? std::min(d, length - d) : d;
  }
  bool alike(const Dimension& other) const {
    return length == other.length && ring == other.ring &&
           std::equal(kernel.begin(), kernel.end(), other.kernel.begin(),
                      [&](Value a, Value b) { return a - kernel[0] == b - other.kernel[0]; });
  }
  std::size_t reach() const { return ring ? length / 2 + 1 : length; }
  /// Places in the order in which the largest slices take them: 0, 1, -1, 2, -2 … (an organ pipe).
  static long place(std::size_t rank) {
    const auto half = static_cast<long>((rank + 1) / 2);
    return rank % 2 == 1 ? half : -half;
  }
  Value between(std::size_t a, std::size_t b) const {
    auto d = static_cast<std::size_t>(std::abs(place(a) - place(b)));
    if (ring) d = std::min(d, length - d);
    return kernel[d];
  }
};

using Shape = std::vector<Dimension>;
using Ranks = std::vector<std::size_t>;  // of a cell in each dimension

/// Least cost of 1 … count cells of a grid. Sorting a set's cells along each dimension in turn makes it a corner set
/// (with each cell, all those of lower ranks) and leaves the other dimensions' slices as they were, or more uneven, so
/// it costs no more: corner sets are all there is to search. They are built line by line along the last dimension.
class Corners {
 public:
  Corners(const Shape& shape, std::size_t count, double budget) : shape_(shape), count_(count), budget_(budget) {
    const std::size_t last = shape.size() - 1;
    std::vector<std::size_t> before(last, 1);  // lines of a step in each dimension
    std::map<Ranks, std::size_t> known;
    Ranks at(last, 0);
    for (;;) {  // all lines with a cell that some corner set of `count` cells has, in row order
      std::size_t box = 1;
      for (const std::size_t r : at) box *= r + 1;
      if (box <= count) {
        Line line{at, {}, std::min(shape[last].length, count / std::max<std::size_t>(box, 1))};
        for (std::size_t d = 0; d < last; ++d)
          if (at[d] > 0) {
            Ranks below = at;
            --below[d];
            line.below.push_back(known.at(below));
            // Of equal dimensions the later reaches as far: on the axis of one, up to where the next one's line ends.
            if (std::accumulate(at.begin(), at.end(), std::size_t{0}) == at[d] && shape[d].alike(shape[d + 1])) {
              Ranks axis(last, 0);
              if (d + 1 < last) axis[d + 1] = at[d];
              line.axis = known.at(axis);
              line.axis_length = d + 1 < last ? 1 : at[d] + 1;
            }
          }
        known.emplace(at, lines_.size());
        lines_.push_back(std::move(line));
      }
      std::size_t d = last;
      while (d > 0 && (box > count || at[d - 1] + 1 == shape[d - 1].length)) {
        box = 1;
        for (std::size_t e = 0; e + 1 < d; ++e) box *= at[e] + 1;
        at[--d] = 0;
      }
      if (d == 0) break;
      ++at[d - 1];
    }
    for (const Dimension& dimension : shape) {
      start_.push_back(wide_);
      wide_ += std::min(dimension.length, count);
    }
    const std::size_t width = wide_ - start_[last];
    inner_.assign(width + 1, 0);
    spread_.assign(width + 1, std::vector<Value>(width, 0));
    for (std::size_t l = 0; l < width; ++l) {
      inner_[l + 1] = inner_[l] + spread_[l][l];
      for (std::size_t y = 0; y < width; ++y) spread_[l + 1][y] = spread_[l][y] + shape[last].between(y, l);
    }
    lengths_.assign(lines_.size(), 0);
    caps_.assign(lines_.size(), 0);
  }

  /// [k] = no k cells cost less, up to `count`; up to fewer where it took too long. Exact as long as each number takes
  /// little; then what promises less than 1 … 4.5 % is cut off too, and the number is that much lower.
  const std::vector<Value>& run() {
    least_ = {0, 0};
    best_lengths_.assign(lines_.size(), 0);
    best_lengths_[0] = 1;
    for (std::size_t k = 2; k <= count_; ++k) {
      const auto n = static_cast<Value>(k);
      // No set's mean is below that of the best smaller set.
      const Value mean = k == 2 ? -kNever : (least_.back() * n + (least_.back() > 0 ? n - 3 : 0)) / (n - 2);
      grow_best();
      while (mean < below(best_)) {
        const double end = budget_ * (slack_ == 0 ? 0.4 : slack_ < kMostSlack ? 0.5 : 1);
        descend(0, static_cast<int>(k), 0, std::vector<Value>(wide_, 0), end);
        if (work_ <= end) break;
        if (slack_ == kMostSlack) return least_;
        slack_ = slack_ < 0.01 ? 0.01 : kMostSlack;
      }
      least_.push_back(std::max(mean, below(best_)));
    }
    return least_;
  }
  /// The best set of the last number that was searched.
  std::vector<Ranks> cells() const {
    std::vector<Ranks> result;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      for (std::size_t y = 0; y < best_lengths_[i]; ++y) {
        result.push_back(lines_[i].at);
        result.back().push_back(y);
      }
    return result;
  }

 private:
  struct Line {
    Ranks at;                               // in all dimensions but the last
    std::vector<std::size_t> below;         // lines that are at least as long
    std::size_t most;                       // that a corner set of `count` cells has of it
    std::size_t axis = 0, axis_length = 0;  // empty where that line is shorter
  };

  static constexpr double kMostSlack = 0.045;

  Value below(Value cost) const { return cost - static_cast<Value>(slack_ * static_cast<double>(std::abs(cost))); }
  Value potential_of(const Line& line, const std::vector<Value>& potential) const {
    Value sum = 0;
    for (std::size_t d = 0; d < line.at.size(); ++d) sum += potential[start_[d] + line.at[d]];
    return sum;
  }
  std::size_t cap(std::size_t line, const std::vector<std::size_t>& lengths) const {
    if (lengths[lines_[line].axis] < lines_[line].axis_length) return 0;
    std::size_t most = lines_[line].most;
    for (const std::size_t b : lines_[line].below) most = std::min(most, lengths[b]);
    return most;
  }
  /// Adds cells [from, to) of a line to `potential`; what they cost.
  Value put(std::size_t line, std::size_t from, std::size_t to, std::vector<Value>& potential) const {
    const Line& l = lines_[line];
    const auto n = static_cast<Value>(to - from);
    Value cost = n * potential_of(l, potential) + inner_[to] - inner_[from];
    const std::size_t last = start_.back();
    for (std::size_t y = from; y < to; ++y) {
      cost += potential[last + y];
      for (std::size_t z = 0; z < from; ++z) cost -= shape_.back().between(y, z);  // inner_ has them
    }
    for (std::size_t d = 0; d < l.at.size(); ++d) {
      cost += pairs(n) * shape_[d].kernel[0];
      const std::size_t end = start_[d + 1];
      for (std::size_t at = start_[d]; at < end; ++at) potential[at] += n * shape_[d].between(at - start_[d], l.at[d]);
    }
    for (std::size_t y = 0; last + y < wide_; ++y) potential[last + y] += spread_[to][y] - spread_[from][y];
    return cost;
  }
  /// The best set and the cell that costs least beside it: what the next search has to beat.
  void grow_best() {
    std::vector<Value> potential(wide_, 0);
    Value cost = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      if (best_lengths_[i] > 0) cost += put(i, 0, best_lengths_[i], potential);
    std::size_t with = lines_.size(), reach = 0;
    Value least = kNever;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::size_t far = best_lengths_[i];
      if (far >= cap(i, best_lengths_)) continue;
      const Value more = potential_of(lines_[i], potential) + potential[start_.back() + far];
      for (const std::size_t rank : lines_[i].at) far = std::max(far, rank);
      if (more > least || (more == least && far >= reach)) continue;  // a cube rather than a rod that costs the same
      least = more, with = i, reach = far;
    }
    ++best_lengths_[with];
    best_ = cost + least;
  }
  void descend(std::size_t line, int left, Value cost, const std::vector<Value>& potential, double end) {
    if (left == 0) {
      if (cost < best_) {
        best_ = cost;
        best_lengths_.assign(lines_.size(), 0);
        std::copy(lengths_.begin(), lengths_.begin() + static_cast<long>(line), best_lengths_.begin());
      }
      return;
    }
    while (line < lines_.size() && cap(line, lengths_) == 0) lengths_[line++] = 0;
    if (line == lines_.size()) return;
    // The rest costs at least: in itself what as many cells cost, and to those placed where that is least.
    values_.clear();
    const std::size_t last = start_.back();
    for (std::size_t i = line; i < lines_.size(); ++i) {
      std::size_t most = lines_[i].most;
      for (const std::size_t b : lines_[i].below) most = std::min(most, b < line ? lengths_[b] : caps_[b]);
      const std::size_t axis = lines_[i].axis;
      if ((axis < line ? lengths_[axis] : caps_[axis]) < lines_[i].axis_length) most = 0;
      caps_[i] = most;
      if (most == 0) continue;
      const Value here = potential_of(lines_[i], potential);
      for (std::size_t y = 0; y < most; ++y) values_.push_back(here + potential[last + y]);
    }
    work_ += static_cast<double>(values_.size() + lines_.size() - line + wide_);
    if (work_ > end || values_.size() < static_cast<std::size_t>(left)) return;
    std::nth_element(values_.begin(), values_.begin() + left - 1, values_.end());
    if (std::accumulate(values_.begin(), values_.begin() + left, cost + least_of(left)) >= below(best_)) return;
    const std::size_t most = std::min(cap(line, lengths_), static_cast<std::size_t>(left));
    std::vector<std::size_t> tries(most + (line == 0 ? 0 : 1));
    std::iota(tries.rbegin(), tries.rend(), std::size_t{line == 0 ? 1U : 0U});
    if (line == 0) {  // the cube first: good sets cut off the rest
      const double side = std::pow(left, 1 / static_cast<double>(shape_.size()));
      std::stable_sort(tries.begin(), tries.end(), [&](std::size_t a, std::size_t b) {
        return std::abs(static_cast<double>(a) - side) < std::abs(static_cast<double>(b) - side);
      });
    }
    for (const std::size_t length : tries) {
      std::vector<Value> next = potential;
      const Value more = put(line, 0, length, next);
      lengths_[line] = length;
      descend(line + 1, left - static_cast<int>(length), cost + more, next, end);
      if (work_ > end) break;
    }
    lengths_[line] = 0;
  }
  Value least_of(int k) const {  // what is not searched yet: a bound by the mean
    return static_cast<std::size_t>(k) < least_.size() ? least_[static_cast<std::size_t>(k)] : least_.back();
  }

  const Shape& shape_;
  std::size_t count_;
  double budget_, work_ = 0, slack_ = 0;
  std::vector<Line> lines_;
  std::vector<std::size_t> start_;  // of each dimension among the potentials
  std::size_t wide_ = 0;
  std::vector<Value> inner_;                // [length] pairs within a line, by the last dimension
  std::vector<std::vector<Value>> spread_;  // [length][place] what a line adds to a unit at that place
  std::vector<std::size_t> lengths_, caps_, best_lengths_;
  std::vector<Value> least_, values_;
  Value best_ = kNever;
};

Ranks place_of(std::size_t cell, const Shape& shape) {
  Ranks at(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; cell /= shape[d].length) at[d] = cell % shape[d].length;
  return at;
}

/// Fills the kernels with rising functions whose sum is nowhere above `weight` (between cells, in row order), looking
/// at one row in `step`; the sum of these weights' lower ends.
double kernels_below(const std::vector<std::vector<Value>>& weight, Value within, Shape& shape, std::size_t step) {
  const std::size_t cells = weight.size(), dimensions = shape.size();
  std::vector<Ranks> places;
  for (std::size_t u = 0; u < cells; ++u) places.push_back(place_of(u, shape));
  std::vector<std::size_t> stride(dimensions, 1);
  for (std::size_t d = dimensions - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1].reach();
  std::vector<Value> least(stride[0] * shape[0].reach(), kNever);
  std::vector<double> times(least.size(), 0);
  for (std::size_t u = 0; u < cells; u += step)
    for (std::size_t v = 0; v < cells; ++v) {
      if (u == v) continue;
      std::size_t at = 0;
      for (std::size_t d = 0; d < dimensions; ++d) at += stride[d] * shape[d].apart(places[u][d], places[v][d]);
      least[at] = std::min(least[at], weight[u][v]);
      ++times[at];
    }
  // Two units of one cell: what continues the sum, but never more than they cost.
  Value origin = within;
  std::vector<std::size_t> open;
  for (std::size_t d = 0; d < dimensions; ++d)
    if (shape[d].reach() > 1) open.push_back(d);
  if (open.size() == 1) origin = std::min(origin, least[stride[open[0]]]);
  for (const std::size_t d : open)
    for (const std::size_t e : open)
      if (d < e) origin = std::min(origin, least[stride[d]] + least[stride[e]] - least[stride[d] + stride[e]]);
  least[0] = origin;
  std::vector<Value> rest = least;
  for (std::size_t d = 0; d < dimensions; ++d) {
    auto& kernel = shape[d].kernel;
    const std::size_t inner = stride[d], reach = shape[d].reach();
    kernel.assign(reach, kNever);
    for (std::size_t x = 0; x < reach; ++x) kernel[x] = rest[x * inner];
    for (std::size_t x = reach - 1; x-- > 0;) kernel[x] = std::min(kernel[x], kernel[x + 1]);
    std::vector<Value> next(inner, kNever);
    for (std::size_t x = 0; x < reach; ++x)
      for (std::size_t i = 0; i < inner; ++i) next[i] = std::min(next[i], rest[x * inner + i] - kernel[x]);
    rest = std::move(next);
  }
  double sum = 0;
  for (std::size_t i = 1; i < least.size(); ++i) {
    std::size_t at = i;
    for (std::size_t d = 0; d < dimensions; at %= stride[d], ++d)
      sum += times[i] * static_cast<double>(shape[d].kernel[at / stride[d]]);
  }
  return sum;
}

/// All grids of so many cells in one to three dimensions, and those of more that are equally long everywhere.
std::vector<Shape> shapes_of(std::size_t cells) {
  std::vector<Shape> shapes;
  const auto add = [&](const Ranks& lengths, bool mixed) {
    const std::size_t kinds = std::size_t{1} << lengths.size();
    for (std::size_t rings = 0; rings < kinds; ++rings) {
      if (!mixed && rings != 0 && rings != kinds - 1) continue;
      Shape shape;
      bool real = true;
      for (std::size_t d = 0; d < lengths.size(); ++d) {
        const bool ring = (rings >> d & 1) != 0;
        real = real && (!ring || lengths[d] > 2);
        shape.push_back({lengths[d], ring});
      }
      if (real) shapes.push_back(std::move(shape));
    }
  };
  for (std::size_t a = 1; a <= cells; ++a) {
    if (cells % a != 0) continue;
    add({a, cells / a}, true);
    for (std::size_t b = 2; a > 1 && b < cells / a; ++b)
      if (cells / a % b == 0) add({a, b, cells / a / b}, true);
    std::size_t dimensions = 0, left = cells;
    for (; a > 1 && left % a == 0; left /= a) ++dimensions;
    if (left == 1 && dimensions > 3) add(Ranks(dimensions, a), false);
  }
  return shapes;
}

/// A grid that lies below the weights, the bound that it gives and its best set.
struct Grid {
  Value bound = 0;
  Shape shape;
  std::vector<Ranks> best;
  int each = 1;  // units a cell
};

Grid grid_of(const ClusterProblem& p) {
  const auto cells = static_cast<std::size_t>(1 + *std::max_element(p.cell.begin(), p.cell.end()));
  const auto [weight, capacity] = cells_of(p, cells);
  for (std::size_t u = 0; u < cells; ++u)
    for (std::size_t v = 0; v < u; ++v)
      if (weight[u][v] == kNever) return {};  // a place without any class
  const int each = *std::max_element(capacity.begin(), capacity.end());
  Value within = kNever;
  for (std::size_t u = 0; u < cells; ++u) within = std::min(within, weight[u][u]);
  // Cells are filled one after the other (see Exact), so whole cells are what is counted; what is left over is covered
  // by the mean over all subsets: no set's mean distance is below that of the best smaller set.
  const Value whole = p.count / each;
  if (whole < 2 || cells < 4 || cells > 4096) return {};
  if (100.0 * static_cast<double>(cells * std::min<std::size_t>(cells, 12)) > kGridWork * p.effort) return {};

  // Every shape gives a bound; the one whose sums come nearest to the weights is taken.
  Grid grid;
  double nearest = -std::numeric_limits<double>::infinity();
  for (Shape& shape : shapes_of(cells))
    if (const double sum = kernels_below(weight, within, shape, 1 + cells / 12); sum > nearest)
      nearest = sum, grid.shape = std::move(shape);
  kernels_below(weight, within, grid.shape, 1);

  Corners corners(grid.shape, static_cast<std::size_t>(whole), kGridWork * p.effort);
  const std::vector<Value>& least = corners.run();
  const auto reached = static_cast<Value>(least.size()) - 1;
  if (reached < 2) return {};
  if (reached == whole) grid.best = corners.cells();
  grid.each = each;
  Value same = 0;
  for (const Dimension& d : grid.shape) same += d.kernel[0];
  const Value full = static_cast<Value>(each) * each * least.back() + reached * pairs(each) * same;
  // full · pairs(count) / pairs(reached · each), rounded up, in two steps that do not overflow.
  const Value base = pairs(reached * each), wanted = pairs(p.count);
  grid.bound = full / base * wanted + (full % base * wanted + base - 1) / base;
  return grid;
}

/// The best set of a grid, put where it is free and costs least; nothing where it is nowhere free.
std::optional<Choice> put(const ClusterProblem& p, const Grid& grid) {
  std::optional<Choice> best;
  if (grid.best.empty()) return best;
  std::size_t cells = 1;
  for (const Dimension& d : grid.shape) cells *= d.length;
  std::vector<std::vector<std::size_t>> classes(cells);
  std::vector<int> room(cells, 0);
  for (std::size_t c = 0; c < p.cell.size(); ++c) {
    classes[static_cast<std::size_t>(p.cell[c])].push_back(c);
    room[static_cast<std::size_t>(p.cell[c])] += p.capacity[c];
  }
  double work = 0;
  for (std::size_t start = 0; start < cells && work < kPutWork * p.effort; ++start) {
    const Ranks origin = place_of(start, grid.shape);
    std::vector<std::size_t> taken;
    for (const Ranks& ranks : grid.best) {
      std::size_t cell = 0;
      bool outside = false;
      for (std::size_t d = 0; d < ranks.size(); ++d) {
        const auto length = static_cast<long>(grid.shape[d].length);
        const long at = static_cast<long>(origin[d]) + Dimension::place(ranks[d]);
        outside = outside || (!grid.shape[d].ring && (at < 0 || at >= length));
        cell = cell * grid.shape[d].length + static_cast<std::size_t>((at + length) % length);
      }
      if (outside || room[cell] != grid.each) break;
      taken.push_back(cell);
    }
    work += static_cast<double>(taken.size());
    if (taken.size() < grid.best.size() || static_cast<int>(taken.size()) * grid.each != p.count) continue;
    Choice choice(p);
    for (const std::size_t cell : taken)
      for (const std::size_t c : classes[cell]) choice.add(c, p.capacity[c]);
    work += static_cast<double>(taken.size() * p.cell.size());
    if (!best || choice.cost < best->cost) best = std::move(choice);
  }
  return best;
}

/// A choice that a bound came by, made as good as exchanges make it.
Choice improved(const ClusterProblem& p, const std::vector<int>& counts) {
  Choice choice(p);
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0) choice.add(c, counts[c]);
  double work = kExchangeWork / 4 * p.effort;
  improve(p, choice, work);
  return choice;
}

/// Cheap bounds first, and none where the one before says enough.
Cluster solve(const ClusterProblem& problem) {
  Choice best = heuristic(problem);
  std::int64_t bound = degree_bound(problem);
  const auto open = [&](double share) {
    return static_cast<double>(best.cost) > (1 + share) * static_cast<double>(bound) && best.cost > bound;
  };
  if (open(0)) {
    const Grid grid = grid_of(problem);
    bound = std::max(bound, grid.bound);
    if (auto shape = put(problem, grid); shape && shape->cost <= best.cost) best = *std::move(shape);
  }
  if (open(0)) {
    const Bounded tree = tree_bound(problem);
    bound = std::max(bound, tree.bound);
    if (!tree.counts.empty())
      if (Choice choice = improved(problem, tree.counts); choice.cost < best.cost) best = std::move(choice);
  }
  const bool small = sets(problem) <= 2e7;  // 8 of 32 are 10.5 million
  if (!small && open(0.005)) bound = std::max(bound, translation_bound(problem));
  if (!small && open(0.05)) bound = std::max(bound, spectral_bound(problem, best.cost));
  const double levels = static_cast<double>(problem.capacity.size()) * problem.count;  // what Exact keeps
  if (open(0) && levels < 2e7 && is_concave(problem)) {
    Exact exact(problem, best, (small ? kSmallProofWork : kProofWork) * problem.effort);
    const bool all = exact.run();
    best = exact.best();
    if (all) bound = best.cost;
  }
  return {best.counts, best.cost, bound, best.cost == bound};
}

/// The same problem with a class for each unit, where every choice is one of full classes.
Cluster apart(const ClusterProblem& p) {
  std::vector<std::size_t> of;
  for (std::size_t c = 0; c < p.capacity.size(); ++c) of.insert(of.end(), static_cast<std::size_t>(p.capacity[c]), c);
  ClusterProblem singles{{}, std::vector<int>(of.size(), 1), {}, p.count, p.effort};
  for (const std::size_t a : of) {
    singles.cell.push_back(p.cell[a]);
    singles.weight.emplace_back();
    for (const std::size_t b : of) singles.weight.back().push_back(p.weight[a][b]);
  }
  const Cluster found = solve(singles);
  Cluster result{std::vector<int>(p.capacity.size(), 0), found.cost, found.bound, found.optimal};
  for (std::size_t i = 0; i < of.size(); ++i) result.counts[of[i]] += found.counts[i];
  return result;
}

}  // namespace

std::int64_t degree_bound(const ClusterProblem& problem) {
  if (problem.count < 2) return 0;
  const auto sums = nearest_sums(problem);
  std::vector<std::pair<Value, int>> units;
  for (std::size_t c = 0; c < sums.size(); ++c)
    if (problem.capacity[c] > 0) units.emplace_back(sums[c].back(), problem.capacity[c]);
  return half_up(smallest(units, problem.count));
}

std::int64_t grid_bound(const ClusterProblem& problem) { return grid_of(problem).bound; }

Cluster by_branch_and_bound(const ClusterProblem& problem) {
  Choice first(problem);
  int left = problem.count;
  for (std::size_t c = 0; c < problem.capacity.size() && left > 0; ++c) {
    const int units = std::min(left, problem.capacity[c]);
    if (units > 0) first.add(c, units);
    left -= units;
  }
  Exact exact(problem, std::move(first), std::numeric_limits<double>::infinity());
  const bool all = exact.run() && is_concave(problem);
  const Choice& best = exact.best();
  return {best.counts, best.cost, all ? best.cost : 0, all};
}

Cluster least_cluster(const ClusterProblem& problem) {
  const auto units = std::accumulate(problem.capacity.begin(), problem.capacity.end(), 0);
  if (!is_concave(problem) && units <= 64) return apart(problem);
  std::vector<std::size_t> of;
  Cluster found = solve(merged(problem, of));
  std::vector<int> counts(problem.capacity.size());
  for (std::size_t c = 0; c < counts.size(); ++c) {
    counts[c] = std::min(found.counts[of[c]], problem.capacity[c]);
    found.counts[of[c]] -= counts[c];
  }
  found.counts = std::move(counts);
  return found;
}

}  // namespace mm::place

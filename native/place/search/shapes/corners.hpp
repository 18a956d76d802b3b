#pragma once
/// Minimal sums of distances in grids, by a search over corner sets.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <vector>

#include "place/search/choice.hpp"

namespace mm::place::search {

/// One dimension of a grid: `length` positions in a ring or a path, and the cost of two units at each distance in it.
struct Dimension {
  std::size_t length = 0;
  bool ring = false;
  std::vector<Value> kernel = {};  // monotonically increasing

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
  /// Positions in the order in which the largest slices occupy them: 0, 1, -1, 2, -2 … (an organ pipe).
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
using Ranks = std::vector<std::size_t>;  // rank of a cell in each dimension

/// Computes the minimum cost of 1 … count cells of a grid. Sorting a set's cells along each dimension in turn yields a
/// corner set (with each cell, all cells of lower ranks) and leaves the slices of other dimensions unchanged or more
/// uneven, so it costs no more: only corner sets need to be searched. They are built line by line along the last
/// dimension.
class Corners {
 public:
  Corners(const Shape& shape, std::size_t count, double budget) : shape_(shape), count_(count), budget_(budget) {
    const std::size_t last = shape.size() - 1;
    std::vector<std::size_t> before(last, 1);  // lines per step in each dimension
    std::map<Ranks, std::size_t> line_by_ranks;
    Ranks ranks(last, 0);
    for (;;) {  // all lines with a cell that some corner set of `count` cells contains, in row order
      std::size_t box = 1;
      for (const std::size_t r : ranks) box *= r + 1;
      if (box <= count) {
        Line line{ranks, {}, std::min(shape[last].length, count / std::max<std::size_t>(box, 1))};
        for (std::size_t d = 0; d < last; ++d)
          if (ranks[d] > 0) {
            Ranks below = ranks;
            --below[d];
            line.below.push_back(line_by_ranks.at(below));
            // Among equal dimensions, a later one reaches no farther: the cells on the axis of a dimension end no later
            // than the line on the axis of the next dimension.
            if (std::accumulate(ranks.begin(), ranks.end(), std::size_t{0}) == ranks[d] &&
                shape[d].alike(shape[d + 1])) {
              Ranks axis(last, 0);
              if (d + 1 < last) axis[d + 1] = ranks[d];
              line.axis = line_by_ranks.at(axis);
              line.axis_length = d + 1 < last ? 1 : ranks[d] + 1;
            }
          }
        line_by_ranks.emplace(ranks, lines_.size());
        lines_.push_back(std::move(line));
      }
      std::size_t d = last;
      while (d > 0 && (box > count || ranks[d - 1] + 1 == shape[d - 1].length)) {
        box = 1;
        for (std::size_t e = 0; e + 1 < d; ++e) box *= ranks[e] + 1;
        ranks[--d] = 0;
      }
      if (d == 0) break;
      ++ranks[d - 1];
    }
    for (const Dimension& dimension : shape) {
      start_.push_back(total_width_);
      total_width_ += std::min(dimension.length, count);
    }
    const std::size_t width = total_width_ - start_[last];
    inner_.assign(width + 1, 0);
    spread_.assign(width + 1, std::vector<Value>(width, 0));
    for (std::size_t l = 0; l < width; ++l) {
      inner_[l + 1] = inner_[l] + spread_[l][l];
      for (std::size_t y = 0; y < width; ++y) spread_[l + 1][y] = spread_[l][y] + shape[last].between(y, l);
    }
    lengths_.assign(lines_.size(), 0);
    caps_.assign(lines_.size(), 0);
  }

  /// Returns a lower bound of the cost for each number of cells k, up to `count`. There are fewer entries if the search
  /// took too long. They are exact while each number takes little work. Later, branches that promise an improvement of
  /// less than 1 %, and finally less than 4.5 %, are cut off, too, and the bounds are reduced accordingly.
  const std::vector<Value>& run() {
    least_ = {0, 0};
    best_lengths_.assign(lines_.size(), 0);
    best_lengths_[0] = 1;
    for (std::size_t k = 2; k <= count_; ++k) {
      const auto n = static_cast<Value>(k);
      // No set has a smaller mean than the best smaller set.
      const Value mean = k == 2 ? -kNever : (least_.back() * n + (least_.back() > 0 ? n - 3 : 0)) / (n - 2);
      grow_best();
      while (mean < below(best_)) {
        const double end = budget_ * (slack_ == 0 ? 0.4 : slack_ < kMaxSlack ? 0.5 : 1);
        descend(0, static_cast<int>(k), 0, std::vector<Value>(total_width_, 0), end);
        if (work_ <= end) break;
        if (slack_ == kMaxSlack) return least_;
        slack_ = slack_ < 0.01 ? 0.01 : kMaxSlack;
      }
      least_.push_back(std::max(mean, below(best_)));
    }
    return least_;
  }
  /// Returns the best set of the last number that was searched.
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
    Ranks at;                               // ranks in all dimensions but the last
    std::vector<std::size_t> below;         // lines that are at least as long
    std::size_t max_length;                 // maximum number of its cells in a corner set of `count` cells
    std::size_t axis = 0, axis_length = 0;  // the line is empty if the line `axis` is shorter than this
  };

  static constexpr double kMaxSlack = 0.045;

  Value below(Value cost) const { return cost - static_cast<Value>(slack_ * static_cast<double>(std::abs(cost))); }
  Value potential_of(const Line& line, const std::vector<Value>& potential) const {
    Value sum = 0;
    for (std::size_t d = 0; d < line.at.size(); ++d) sum += potential[start_[d] + line.at[d]];
    return sum;
  }
  std::size_t cap(std::size_t line, const std::vector<std::size_t>& lengths) const {
    if (lengths[lines_[line].axis] < lines_[line].axis_length) return 0;
    std::size_t max_length = lines_[line].max_length;
    for (const std::size_t b : lines_[line].below) max_length = std::min(max_length, lengths[b]);
    return max_length;
  }
  /// Adds cells [from, to) of a line to `potential`; returns their cost.
  Value put(std::size_t line, std::size_t from, std::size_t to, std::vector<Value>& potential) const {
    const Line& l = lines_[line];
    const auto n = static_cast<Value>(to - from);
    Value cost = n * potential_of(l, potential) + inner_[to] - inner_[from];
    const std::size_t last = start_.back();
    for (std::size_t y = from; y < to; ++y) {
      cost += potential[last + y];
      for (std::size_t z = 0; z < from; ++z) cost -= shape_.back().between(y, z);  // inner_ contains them
    }
    for (std::size_t d = 0; d < l.at.size(); ++d) {
      cost += pairs(n) * shape_[d].kernel[0];
      const std::size_t end = start_[d + 1];
      for (std::size_t at = start_[d]; at < end; ++at) potential[at] += n * shape_[d].between(at - start_[d], l.at[d]);
    }
    for (std::size_t y = 0; last + y < total_width_; ++y) potential[last + y] += spread_[to][y] - spread_[from][y];
    return cost;
  }
  /// Sets the start of the next search: the best set plus the cell that costs least beside it.
  void grow_best() {
    std::vector<Value> potential(total_width_, 0);
    Value cost = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      if (best_lengths_[i] > 0) cost += put(i, 0, best_lengths_[i], potential);
    std::size_t best_line = lines_.size(), reach = 0;
    Value min_cost = kNever;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::size_t extent = best_lengths_[i];
      if (extent >= cap(i, best_lengths_)) continue;
      const Value cell_cost = potential_of(lines_[i], potential) + potential[start_.back() + extent];
      for (const std::size_t rank : lines_[i].at) extent = std::max(extent, rank);
      if (cell_cost > min_cost || (cell_cost == min_cost && extent >= reach))
        continue;  // prefers a cube to a rod of the same cost
      min_cost = cell_cost, best_line = i, reach = extent;
    }
    ++best_lengths_[best_line];
    best_ = cost + min_cost;
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
    // Lower bound of the rest: the minimum cost of that many cells, plus their minimum cost to the placed ones.
    values_.clear();
    const std::size_t last = start_.back();
    for (std::size_t i = line; i < lines_.size(); ++i) {
      std::size_t max_length = lines_[i].max_length;
      for (const std::size_t b : lines_[i].below) max_length = std::min(max_length, b < line ? lengths_[b] : caps_[b]);
      const std::size_t axis = lines_[i].axis;
      if ((axis < line ? lengths_[axis] : caps_[axis]) < lines_[i].axis_length) max_length = 0;
      caps_[i] = max_length;
      if (max_length == 0) continue;
      const Value line_potential = potential_of(lines_[i], potential);
      for (std::size_t y = 0; y < max_length; ++y) values_.push_back(line_potential + potential[last + y]);
    }
    work_ += static_cast<double>(values_.size() + lines_.size() - line + total_width_);
    if (work_ > end || values_.size() < static_cast<std::size_t>(left)) return;
    std::nth_element(values_.begin(), values_.begin() + left - 1, values_.end());
    if (std::accumulate(values_.begin(), values_.begin() + left, cost + least_of(left)) >= below(best_)) return;
    const std::size_t max_length = std::min(cap(line, lengths_), static_cast<std::size_t>(left));
    std::vector<std::size_t> tries(max_length + (line == 0 ? 0 : 1));
    std::iota(tries.rbegin(), tries.rend(), std::size_t{line == 0 ? 1U : 0U});
    if (line == 0) {  // the cube first: good sets cut off the rest
      const double side = std::pow(left, 1 / static_cast<double>(shape_.size()));
      std::stable_sort(tries.begin(), tries.end(), [&](std::size_t a, std::size_t b) {
        return std::abs(static_cast<double>(a) - side) < std::abs(static_cast<double>(b) - side);
      });
    }
    for (const std::size_t length : tries) {
      std::vector<Value> next = potential;
      const Value line_cost = put(line, 0, length, next);
      lengths_[line] = length;
      descend(line + 1, left - static_cast<int>(length), cost + line_cost, next, end);
      if (work_ > end) break;
    }
    lengths_[line] = 0;
  }
  Value least_of(int k) const {  // for numbers that were not searched yet, a bound by the mean
    return static_cast<std::size_t>(k) < least_.size() ? least_[static_cast<std::size_t>(k)] : least_.back();
  }

  const Shape& shape_;
  std::size_t count_;
  double budget_, work_ = 0, slack_ = 0;
  std::vector<Line> lines_;
  std::vector<std::size_t> start_;  // index of each dimension in the potentials
  std::size_t total_width_ = 0;
  std::vector<Value> inner_;                // [length]: pairs within a line, by the last dimension
  std::vector<std::vector<Value>> spread_;  // [length][position]: what a line adds to a unit at that position
  std::vector<std::size_t> lengths_, caps_, best_lengths_;
  std::vector<Value> least_, values_;
  Value best_ = kNever;
};

}  // namespace mm::place::search

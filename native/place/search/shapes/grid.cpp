#include "place/search/shapes/grid.hpp"

#include <algorithm>
#include <cmath>

#include "place/search/bounds.hpp"

namespace mm::place::search {

namespace {

constexpr double kGridWork = 1.5e7, kPutWork = 1e7;  // steps of the innermost loops

Ranks place_of(std::size_t cell, const Shape& shape) {
  Ranks ranks(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; cell /= shape[d].length) ranks[d] = cell % shape[d].length;
  return ranks;
}

/// Fills the kernels with increasing functions whose sum nowhere exceeds `weight` (between cells, in row order), using
/// every `step`-th row; returns the sum of these lower bounds.
double kernels_below(const std::vector<std::vector<Value>>& weight, Value within, Shape& shape, std::size_t step) {
  const std::size_t cells = weight.size(), dimensions = shape.size();
  std::vector<Ranks> places;
  for (std::size_t u = 0; u < cells; ++u) places.push_back(place_of(u, shape));
  std::vector<std::size_t> stride(dimensions, 1);
  for (std::size_t d = dimensions - 1; d-- > 0;) stride[d] = stride[d + 1] * shape[d + 1].reach();
  std::vector<Value> min_weight(stride[0] * shape[0].reach(), kNever);
  std::vector<double> times(min_weight.size(), 0);
  for (std::size_t u = 0; u < cells; u += step)
    for (std::size_t v = 0; v < cells; ++v) {
      if (u == v) continue;
      std::size_t index = 0;
      for (std::size_t d = 0; d < dimensions; ++d) index += stride[d] * shape[d].apart(places[u][d], places[v][d]);
      min_weight[index] = std::min(min_weight[index], weight[u][v]);
      ++times[index];
    }
  // Two units of one cell: extrapolated, but never more than they cost.
  Value origin = within;
  std::vector<std::size_t> open;
  for (std::size_t d = 0; d < dimensions; ++d)
    if (shape[d].reach() > 1) open.push_back(d);
  if (open.size() == 1) origin = std::min(origin, min_weight[stride[open[0]]]);
  for (const std::size_t d : open)
    for (const std::size_t e : open)
      if (d < e)
        origin = std::min(origin, min_weight[stride[d]] + min_weight[stride[e]] - min_weight[stride[d] + stride[e]]);
  min_weight[0] = origin;
  std::vector<Value> rest = min_weight;
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
  for (std::size_t i = 1; i < min_weight.size(); ++i) {
    std::size_t remainder = i;
    for (std::size_t d = 0; d < dimensions; remainder %= stride[d], ++d)
      sum += times[i] * static_cast<double>(shape[d].kernel[remainder / stride[d]]);
  }
  return sum;
}

/// Returns all grids with this many cells in one to three dimensions, and the grids in more dimensions of equal length.
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

}  // namespace

GridBound grid_of(const ClusterProblem& p) {
  const auto cells = static_cast<std::size_t>(1 + *std::max_element(p.cell.begin(), p.cell.end()));
  const auto [weight, capacity] = cells_of(p, cells);
  for (std::size_t u = 0; u < cells; ++u)
    for (std::size_t v = 0; v < u; ++v)
      if (weight[u][v] == kNever) return {};  // a position without any class
  const int units_per_cell = *std::max_element(capacity.begin(), capacity.end());
  Value within = kNever;
  for (std::size_t u = 0; u < cells; ++u) within = std::min(within, weight[u][u]);
  // Cells are filled one after the other (see Exact), so whole cells are counted; the mean over all subsets covers the
  // rest: no set has a smaller mean distance than the best smaller set.
  const Value full_cells = p.count / units_per_cell;
  if (full_cells < 2 || cells < 4 || cells > 4096) return {};
  if (100.0 * static_cast<double>(cells * std::min<std::size_t>(cells, 12)) > kGridWork * p.effort) return {};

  // Every shape yields a bound; use the one whose sums are closest to the weights.
  GridBound grid;
  double nearest = -std::numeric_limits<double>::infinity();
  for (Shape& shape : shapes_of(cells))
    if (const double sum = kernels_below(weight, within, shape, 1 + cells / 12); sum > nearest)
      nearest = sum, grid.shape = std::move(shape);
  kernels_below(weight, within, grid.shape, 1);

  Corners corners(grid.shape, static_cast<std::size_t>(full_cells), kGridWork * p.effort);
  const std::vector<Value>& min_weight = corners.run();
  const auto searched_cells = static_cast<Value>(min_weight.size()) - 1;
  if (searched_cells < 2) return {};
  if (searched_cells == full_cells) grid.best = corners.cells();
  grid.each = units_per_cell;
  Value same_cell_cost = 0;
  for (const Dimension& d : grid.shape) same_cell_cost += d.kernel[0];
  const Value full = static_cast<Value>(units_per_cell) * units_per_cell * min_weight.back() +
                     searched_cells * pairs(units_per_cell) * same_cell_cost;
  // full · pairs(count) / pairs(reached · each), rounded up, in two steps to avoid overflow.
  const Value base = pairs(searched_cells * units_per_cell), pairs_needed = pairs(p.count);
  grid.bound = full / base * pairs_needed + (full % base * pairs_needed + base - 1) / base;
  return grid;
}

std::optional<Choice> put(const ClusterProblem& p, const GridBound& grid) {
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
    std::vector<std::size_t> chosen;
    for (const Ranks& ranks : grid.best) {
      std::size_t cell = 0;
      bool outside = false;
      for (std::size_t d = 0; d < ranks.size(); ++d) {
        const auto length = static_cast<long>(grid.shape[d].length);
        const long position = static_cast<long>(origin[d]) + Dimension::place(ranks[d]);
        outside = outside || (!grid.shape[d].ring && (position < 0 || position >= length));
        cell = cell * grid.shape[d].length + static_cast<std::size_t>((position + length) % length);
      }
      if (outside || room[cell] != grid.each) break;
      chosen.push_back(cell);
    }
    work += static_cast<double>(chosen.size());
    if (chosen.size() < grid.best.size() || static_cast<int>(chosen.size()) * grid.each != p.count) continue;
    Choice choice(p);
    for (const std::size_t cell : chosen)
      for (const std::size_t c : classes[cell]) choice.add(c, p.capacity[c]);
    work += static_cast<double>(chosen.size() * p.cell.size());
    if (!best || choice.cost < best->cost) best = std::move(choice);
  }
  return best;
}

}  // namespace mm::place::search

namespace mm::place {

std::int64_t grid_bound(const ClusterProblem& problem) { return search::grid_of(problem).bound; }

}  // namespace mm::place

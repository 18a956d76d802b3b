#include "place/search/shapes/torus.hpp"

#include <algorithm>
#include <map>
#include <numbers>
#include <numeric>

namespace mm::place::search {

std::vector<std::size_t> digits(std::size_t cell, const std::vector<std::size_t>& lengths) {
  std::vector<std::size_t> at(lengths.size());
  for (std::size_t d = lengths.size(); d-- > 0; cell /= lengths[d]) at[d] = cell % lengths[d];
  return at;
}

std::size_t number(const std::vector<std::size_t>& at, const std::vector<std::size_t>& lengths) {
  std::size_t cell = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) cell = cell * lengths[d] + at[d];
  return cell;
}

Torus torus_of(std::vector<std::size_t> lengths, bool swaps) {
  Torus torus{std::move(lengths), {}, {}, {}, {}};
  const std::size_t cells =
      std::accumulate(torus.lengths.begin(), torus.lengths.end(), std::size_t{1}, std::multiplies<>());
  std::vector<std::size_t> kind(cells, cells);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    auto position = digits(cell, torus.lengths);
    for (std::size_t d = 0; d < position.size(); ++d)
      position[d] = std::min(position[d], torus.lengths[d] - position[d]);
    if (swaps)
      for (std::size_t d = 1; d < position.size(); ++d)
        for (std::size_t e = 0; e < d; ++e)
          if (torus.lengths[d] == torus.lengths[e] && position[d] < position[e]) std::swap(position[d], position[e]);
    std::size_t& index = kind[number(position, torus.lengths)];
    if (index == cells) {
      index = torus.first.size();
      torus.first.push_back(cell);
      torus.times.push_back(0);
    }
    torus.of.push_back(index);
    ++torus.times[index];
  }
  return torus;
}

void measure(Torus& torus, const std::vector<std::size_t>& lengths, const std::vector<std::vector<Value>>& weight,
             std::size_t step) {
  const std::size_t cells = weight.size(), dimensions = lengths.size();
  std::vector<std::size_t> positions, stride(dimensions, 1);
  for (std::size_t d = dimensions - 1; d-- > 0;) stride[d] = stride[d + 1] * torus.lengths[d + 1];
  for (std::size_t u = 0; u < cells; ++u)
    for (const std::size_t x : digits(u, lengths)) positions.push_back(x);
  std::vector<Value> distance(torus.times.size(), kNever);
  std::vector<std::size_t> count(distance.size(), 0);
  for (std::size_t u = 0; u < cells; u += step)
    for (std::size_t v = 0; v < cells; ++v) {
      std::size_t difference = 0;
      for (std::size_t d = 0; d < dimensions; ++d) {
        const std::size_t a = positions[u * dimensions + d], b = positions[v * dimensions + d];
        difference += stride[d] * (b >= a ? b - a : b + torus.lengths[d] - a);
      }
      const std::size_t kind = torus.of[difference];
      distance[kind] = std::min(distance[kind], weight[u][v]);
      ++count[kind];
    }
  double longest = 0;
  for (const Value l : distance) longest = std::max(longest, l == kNever ? 0 : static_cast<double>(l));
  torus.distance.clear();
  torus.sum = 0;
  for (std::size_t i = 0; i < distance.size(); ++i) {
    // Differences that do not occur may cost anything; a cell may have no second unit.
    torus.distance.push_back(distance[i] != kNever ? static_cast<double>(distance[i]) : i == 0 ? 0 : 2 * longest);
    if (i > 0) torus.sum += static_cast<double>(count[i]) * torus.distance[i];
  }
}

}  // namespace mm::place::search

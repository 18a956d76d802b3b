#include "base/harness/stats.hpp"

#include <algorithm>
#include <cmath>

namespace mm {

double median(std::span<const double> samples) {
  std::vector<double> v(samples.begin(), samples.end());
  const std::size_t middle = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(middle), v.end());
  if (v.size() % 2 == 1) return v[middle];
  return 0.5 * (v[middle] + *std::max_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(middle)));
}

std::size_t median_rank(std::size_t n) {
  if (n >= 1000) return static_cast<std::size_t>(static_cast<double>(n) / 2 - 0.98 * std::sqrt(static_cast<double>(n)));
  double term = std::pow(0.5, static_cast<double>(n)), tail = 0;
  std::size_t k = 0;
  for (;;) {
    tail += term;  // P(Bin < k + 1)
    if (1.0 - 2.0 * tail < 0.95 || k >= n / 2) return k;
    ++k;
    term *= static_cast<double>(n - k + 1) / static_cast<double>(k);
  }
}

std::optional<std::pair<double, double>> median_interval(std::span<const double> samples) {
  const std::size_t k = median_rank(samples.size());
  if (k == 0) return std::nullopt;
  std::vector<double> v(samples.begin(), samples.end());
  std::sort(v.begin(), v.end());
  return std::pair{v[k - 1], v[v.size() - k]};
}

bool inside_width(std::span<const double> samples, double percent) {
  const auto interval = median_interval(samples);
  return interval && (interval->second - interval->first) / 2 <= std::fabs(median(samples)) * percent / 100;
}

std::vector<Plateau> plateaus(std::span<const double> y, double tolerance, std::size_t min_points) {
  // Greedy by length: the longest level stretch is the most certain plateau, and both sides of it are searched again. A
  // slope (between two cache levels) never has `min_points` points within the tolerance.
  std::vector<Plateau> stretches;
  const auto search = [&](auto&& self, std::size_t begin, std::size_t end) -> void {
    std::size_t best_first = 0, best_length = 0;
    double best_ratio = 0;
    for (std::size_t i = begin; i < end; ++i) {
      double low = y[i], high = y[i];
      for (std::size_t j = i; j < end; ++j) {
        low = std::min(low, y[j]);
        high = std::max(high, y[j]);
        if (high > low * (1 + tolerance)) break;
        const std::size_t length = j - i + 1;
        if (length > best_length || (length == best_length && high / low < best_ratio)) {
          best_first = i;
          best_length = length;
          best_ratio = high / low;
        }
      }
    }
    if (best_length < min_points) return;
    const std::size_t last = best_first + best_length - 1;
    self(self, begin, best_first);
    stretches.push_back({best_first, last, median(y.subspan(best_first, best_length))});
    self(self, last + 1, end);
  };
  search(search, 0, y.size());
  std::vector<Plateau> distinct_plateaus;
  for (const Plateau& p : stretches) {
    if (!distinct_plateaus.empty() && p.level <= distinct_plateaus.back().level * (1 + tolerance)) {
      distinct_plateaus.back().last = p.last;
      distinct_plateaus.back().level =
          median(y.subspan(distinct_plateaus.back().first, p.last - distinct_plateaus.back().first + 1));
    } else {
      distinct_plateaus.push_back(p);
    }
  }
  return distinct_plateaus;
}

std::vector<Plateau> levels(std::span<const double> y, double apart) {
  std::vector<Plateau> distinct_levels;
  for (const Plateau& p : plateaus(y)) {
    if (!distinct_levels.empty() && p.level < apart * distinct_levels.back().level) {
      distinct_levels.back().last = p.last;
      distinct_levels.back().level =
          median(y.subspan(distinct_levels.back().first, p.last - distinct_levels.back().first + 1));
    } else {
      distinct_levels.push_back(p);
    }
  }
  return distinct_levels;
}

}  // namespace mm

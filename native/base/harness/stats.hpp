#pragma once
/// Order statistics of samples. No sample is removed: outliers are samples too.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace mm {

/// Returns each value once, ascending.
template <typename T>
std::vector<T> distinct(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

double median(std::span<const double> samples);  ///< Pre: not empty.

/// Returns the largest k with 1 - 2 P(Bin(n, 1/2) < k) >= 0.95, or 0 if no k satisfies it (n < 6).
std::size_t median_rank(std::size_t n);

/// Returns the 95 % order-statistic interval of the median; nothing if there are fewer than 6 samples. Source: Le
/// Boudec, Performance Evaluation of Computer and Communication Systems (2010), section 2.2.
std::optional<std::pair<double, double>> median_interval(std::span<const double> samples);

/// Returns whether half the width of that interval is at most `percent` per cent of the median.
bool inside_width(std::span<const double> samples, double percent);

/// A stretch of a curve that is level within a tolerance.
struct Plateau {
  std::size_t first, last;  ///< indices into the curve, inclusive
  double level;             ///< median of the stretch
};

/// Returns the plateaus of a rising curve y(x), x ascending (typically doubling). A plateau has at least `min_points`
/// points, and its highest point is at most (1 + tolerance) times its lowest. Longer plateaus take precedence, and
/// neighbours whose levels differ by at most the tolerance are merged.
std::vector<Plateau> plateaus(std::span<const double> y, double tolerance = 0.15, std::size_t min_points = 2);

/// Returns the levels of a memory hierarchy: the plateaus, where neighbours that differ by less than a factor of
/// `apart` are merged. Such small steps occur within a level, because with a larger footprint more loads miss the TLB
/// or a cache that others use, too.
std::vector<Plateau> levels(std::span<const double> y, double apart = 1.4);

}  // namespace mm

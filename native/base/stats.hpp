#pragma once
/// Order statistics of samples. Nothing is ever deleted: an outlier is a sample like any other.
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace mm {

double median(std::span<const double> samples);  ///< Pre: not empty.

/// Largest k with 1 - 2 P(Bin(n, 1/2) < k) >= 0.95, or 0 where there is none (n < 6).
std::size_t median_rank(std::size_t n);

/// 95 % order-statistic interval of the median, none below 6 samples.
/// Source: Le Boudec, Performance Evaluation of Computer and Communication Systems (2010), section 2.2.
std::optional<std::pair<double, double>> median_interval(std::span<const double> samples);

/// Whether that interval reaches no farther than so many per cent from the median to either side, on average.
bool inside_width(std::span<const double> samples, double percent);

/// Median absolute deviation from the median over the median: dispersion that one outlier cannot move.
double relative_mad(std::span<const double> samples);

/// A stretch of a curve that is level within `tolerance`.
struct Plateau {
  std::size_t first, last;  ///< indices into the curve, both inside
  double level;             ///< median of the stretch
};

/// Plateaus of a rising curve y(x), x ascending (typically doubling). A plateau has at least `least` points and
/// stays within a factor (1 + tolerance) from its lowest to its highest point; longer plateaus win, and two
/// neighbours whose levels differ by less than the tolerance are one.
std::vector<Plateau> plateaus(std::span<const double> y, double tolerance = 0.15, std::size_t least = 2);

/// Plateaus at least a factor `apart` from one another: levels of a hierarchy. Steps below it are one level whose
/// translation misses, or whose share of a busy cache, grow with the footprint.
std::vector<Plateau> levels(std::span<const double> y, double apart = 1.4);

}  // namespace mm

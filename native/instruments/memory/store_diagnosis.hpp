#pragma once
/// Determines whether another binary used ordinary or streaming stores, from the rates of STREAM kernels that it
/// reported.
#include <map>
#include <set>
#include <string>
#include <vector>

namespace mm {

/// A median with the bounds of its 95 % interval, in B/s.
struct MedianRate {
  double value = 0, low = 0, high = 0;
};

using StreamRates = std::map<std::string, MedianRate>;  ///< by kernel: copy, scale, add, triad

/// Our net rates under one set of conditions, with both kinds of stores.
struct StoreRates {
  StreamRates ordinary, streaming;
  std::set<std::string> flags;  ///< flags of all these rates
};

/// A ratio with bounds: the rate of copy and scale over the rate of add and triad.
struct StoreRatio {
  double value = 0, low = 0, high = 0;
};

struct StoreDiagnosis {
  std::string verdict;  ///< "ordinary stores", "streaming stores" or "cannot tell"
  std::string reason;
  StoreRatio other, ordinary, streaming;  ///< 0 if unknown
};

/// Determines which kind of stores another binary used. Ordinary stores read a line before they write it. A memory that
/// is the bottleneck then moves three operands for the two that copy names, and four for the three of triad, so copy
/// reports 8/9 of triad's net rate; with streaming stores both report the same. The ratio is independent of the speed
/// of the memory, so the other binary may have run with other threads or at another time. The ratio is compared with
/// our measured ratios of both kinds. The diagnosis is conclusive only if these two differ, and if the ratio is inside
/// the interval of one kind and outside the interval of the other. A net rate that we do not reach with ordinary stores
/// is evidence of streaming stores, too. `reported` needs copy or scale, and add or triad. Source: Hager, Wellein:
/// Introduction to HPC (2010), 1.3 and 3.1.
StoreDiagnosis diagnose_stores(const std::map<std::string, double>& reported, const StoreRates& ours);

/// Returns the diagnosis that is common to all sets of conditions; "cannot tell" if they disagree.
StoreDiagnosis common_diagnosis(const std::vector<StoreDiagnosis>& each);

}  // namespace mm

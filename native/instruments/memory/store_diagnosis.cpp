#include "instruments/memory/store_diagnosis.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/options/options.hpp"

namespace mm {
namespace {

// Relative uncertainty of a reported rate, since STREAM prints the best of several runs; a ratio has twice as much.
constexpr double kReported = 0.01;
constexpr double kExcess = 1.05;  // factor by which another run may exceed our rate with ordinary stores by chance

/// Returns the geometric mean, with bounds, of the kernels that both maps contain; nullopt if there is no such kernel,
/// or no interval.
std::optional<MedianRate> mean(const StreamRates& rates, const std::map<std::string, double>& reported,
                               std::initializer_list<const char*> kernels) {
  double value = 0, low = 0, high = 0;
  int n = 0;
  for (const char* kernel : kernels) {
    const auto rate = rates.find(kernel);
    if (rate == rates.end() || !reported.contains(kernel)) continue;
    if (!(rate->second.low > 0) || !std::isfinite(rate->second.high)) return std::nullopt;
    value += std::log(rate->second.value);
    low += std::log(rate->second.low);
    high += std::log(rate->second.high);
    ++n;
  }
  if (n == 0) return std::nullopt;
  return MedianRate{std::exp(value / n), std::exp(low / n), std::exp(high / n)};
}

std::optional<StoreRatio> ratio(const StreamRates& rates, const std::map<std::string, double>& reported) {
  const auto two_arrays = mean(rates, reported, {"copy", "scale"}),
             three_arrays = mean(rates, reported, {"add", "triad"});
  if (!two_arrays || !three_arrays) return std::nullopt;
  return StoreRatio{two_arrays->value / three_arrays->value, two_arrays->low / three_arrays->high,
                    two_arrays->high / three_arrays->low};
}

bool overlap(const StoreRatio& a, const StoreRatio& b) { return a.low <= b.high && b.low <= a.high; }

}  // namespace

StoreDiagnosis diagnose_stores(const std::map<std::string, double>& reported, const StoreRates& ours) {
  StoreDiagnosis diagnosis{"cannot tell", "", {}, {}, {}};
  const auto with_reason = [&](const std::string& reason) {
    diagnosis.reason = reason;
    return diagnosis;
  };
  StreamRates rates;
  std::map<std::string, double> common;  // kernels that all three maps contain
  for (const auto& [kernel, rate] : reported) {
    rates[kernel] = {rate, rate * (1 - kReported), rate * (1 + kReported)};
    if (ours.ordinary.contains(kernel) && ours.streaming.contains(kernel)) common[kernel] = rate;
  }
  const auto full_ratio = ratio(rates, reported);
  if (!full_ratio) return with_reason("needs the rates of copy or scale, and of add or triad");
  diagnosis.other = *full_ratio;
  if (!ours.flags.empty())
    return with_reason("our own rates are flagged: " + joined({ours.flags.begin(), ours.flags.end()}));
  const auto common_ratio = ratio(rates, common);
  if (!common_ratio)
    return with_reason("our own rates lack both copy and scale, or both add and triad: increase --budget");
  diagnosis.other = *common_ratio;
  const auto ordinary = ratio(ours.ordinary, common), streaming = ratio(ours.streaming, common);
  if (!ordinary || !streaming) return with_reason("too few samples of our own rates for an interval");
  diagnosis.ordinary = *ordinary;
  diagnosis.streaming = *streaming;
  if (overlap(*ordinary, *streaming))
    return with_reason("our own rates show no difference between the kinds of stores");
  const bool like_ordinary = overlap(*common_ratio, *ordinary), like_streaming = overlap(*common_ratio, *streaming);
  bool exceeds = false;
  for (const auto& [kernel, rate] : common) exceeds = exceeds || rate > kExcess * ours.ordinary.at(kernel).high;
  if (like_ordinary && like_streaming)
    return with_reason("the reported ratio is between the ratios of both kinds of stores");
  if (!like_ordinary && !like_streaming) return with_reason("the reported ratio matches neither kind of stores");
  if (like_ordinary && exceeds)
    return with_reason("the ratio matches ordinary stores, but the rates exceed what ordinary stores reach here");
  diagnosis.verdict = like_ordinary ? "ordinary stores" : "streaming stores";
  return with_reason(exceeds ? "the ratio matches, and the rates exceed what ordinary stores reach here"
                             : "the ratio matches");
}

StoreDiagnosis common_diagnosis(const std::vector<StoreDiagnosis>& each) {
  if (each.empty()) return {"cannot tell", "no kernel was measured with both kinds of stores", {}, {}, {}};
  const bool same =
      std::all_of(each.begin(), each.end(), [&](const StoreDiagnosis& d) { return d.verdict == each.front().verdict; });
  StoreDiagnosis diagnosis = each.front();
  if (!same) {
    diagnosis.verdict = "cannot tell";
    diagnosis.reason = "it depends on the conditions: measure with the threads and the footprint of the other run";
  }
  return diagnosis;
}

}  // namespace mm

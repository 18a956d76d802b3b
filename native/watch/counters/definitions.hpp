#pragma once
/// Definitions of events, and of metrics computed from them, from the data files of `events/`.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm::watch {

/// An event of a PMU: by the alias that the Linux kernel lists, or else by terms of its format.
struct EventDefinition {
  std::string name, use, terms;
  double scale = 1;  ///< value of one count of `terms`
};

using WeightedSum = std::vector<std::pair<std::size_t, double>>;  ///< event of the definition, weight

/// A metric: one weighted sum of events over another, or per second of counting if `over` is empty.
struct MetricDefinition {
  std::string name, unit, what, of;
  WeightedSum sum, over;
};

/// All PMUs whose device matches a pattern, each with one component (or one CPU) per instance.
struct PmuDefinition {
  std::string device, except;      ///< patterns; * matches any text
  std::vector<std::string> cpuid;  ///< vendor-family-model, or implementer-part; empty: any processor
  std::string component;           ///< class of the instances' components; cpu: the existing ones
  std::string label;               ///< label of a component, with {package}, {index} and {device}
  std::string file;                ///< file of the definition
  std::vector<EventDefinition> events;
  std::vector<MetricDefinition> metrics;
};

/// Returns the definitions in a file. Throws Failure with the file, the place and the error.
std::vector<PmuDefinition> parse_definitions(std::string_view toml, const std::string& file);

/// Returns the built-in definitions: all files of `events/`.
const std::vector<PmuDefinition>& built_in_definitions();

/// Returns whether a name matches a pattern such as `uncore_imc_*`.
bool matches(std::string_view name, std::string_view form);

}  // namespace mm::watch

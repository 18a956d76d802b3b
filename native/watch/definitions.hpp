#pragma once
/// What counters mean: definitions of events and of metrics over them, from the data files of `events/`.
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm::watch {

/// An event of a PMU: by the alias that the kernel lists, or else by terms of its format.
struct EventDefinition {
  std::string name, use, terms;
  double scale = 1;  ///< what one count of `terms` means
};

using WeightedSum = std::vector<std::pair<std::size_t, double>>;  ///< event of the definition, weight

/// A metric as one weighted sum of events over another, or per second of counting where `over` is empty.
struct MetricDefinition {
  std::string name, unit, what, of;
  WeightedSum sum, over;
};

/// All PMUs whose device has a name of this form: one component (or one CPU) each.
struct PmuDefinition {
  std::string device, except;      ///< with * for any text
  std::vector<std::string> cpuid;  ///< vendor-family-model, or implementer-part; none: any processor
  std::string component;           ///< class of the components that instances become; cpu: those that are there
  std::string label;               ///< of a component, with {package}, {index} and {device}
  std::string file;                ///< of the definition
  std::vector<EventDefinition> events;
  std::vector<MetricDefinition> metrics;
};

/// The definitions that a file holds.
/// Throws Failure with the file, the place and what is wrong there.
std::vector<PmuDefinition> parse_definitions(std::string_view toml, const std::string& file);

/// Those that were built in: every file of `events/`.
const std::vector<PmuDefinition>& built_in_definitions();

/// Whether a name has a form such as `uncore_imc_*`.
bool has_form(std::string_view name, std::string_view form);

}  // namespace mm::watch

/// Plans a run from its arguments, without measuring: how many points it has, and how much time it needs for them.
#include <algorithm>

#include "base/harness/instrument.hpp"
#include "base/harness/run_state.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"

namespace mm {
namespace {

constexpr double kUsualBytes = 512 << 20;  // size of a footprint `memory` for which budgets are meant
constexpr double kLongestBudget_s = 600;   // without --budget, unless the default of the instrument is longer

/// Returns the number of values in the text of a parameter; only lists have more than one.
std::size_t count_values(const Parameter& p, const std::string& text) {
  if (text.empty() || text == "memory") return 1;
  const int all = std::max(1, static_cast<int>(topology().allowed.size()));
  std::size_t count = 1;
  if (p.kind == Kind::sizes) count = parse_sizes(p.name, text).size();
  if (p.kind == Kind::integers) count = parse_integers(p.name, text, all).size();
  if (p.kind == Kind::choices) count = text == "all" ? p.choices.size() : split(text, ',').size();
  return std::max<std::size_t>(1, count);
}

}  // namespace

PlannedRun Run::plan() const {
  PlannedRun plan;
  for (const Parameter& p : state_.parameters) {
    const std::string& text = state_.value(p.name);
    plan.relative_points *=
        static_cast<double>(count_values(p, text)) / static_cast<double>(count_values(p, p.default_value));
    if (text == "memory" && p.kind == Kind::size) plan.memory_bytes = bytes(p.name);
    if (text == "memory" && p.kind == Kind::sizes) plan.memory_bytes = sizes(p.name).front();
  }
  const auto& identity = state_.description->identity;
  if (has("cpus") && given("cpus") && std::ranges::find(identity, "cpu") != identity.end())
    plan.relative_points *= static_cast<double>(cpus().size());
  if (plan.memory_bytes) plan.memory_scale = std::max(1.0, static_cast<double>(*plan.memory_bytes) / kUsualBytes);
  plan.budget_s = budget_s();
  if (!given("budget_s"))
    plan.budget_s = std::min(std::max(kLongestBudget_s, plan.budget_s),
                             plan.budget_s * std::max(1.0, plan.relative_points) * plan.memory_scale);
  return plan;
}

}  // namespace mm

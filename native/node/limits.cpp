#include "node/limits.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"

namespace mm::node {
namespace {

bool applies(const Limit& limit, const json& result) {
  if (limit.instrument != result.value("instrument", "") || limit.metric != result.value("metric", "")) return false;
  const json& conditions = result["conditions"];
  return std::all_of(limit.conditions.items().begin(), limit.conditions.items().end(), [&](const auto& condition) {
    const auto actual = conditions.find(condition.key());
    return actual != conditions.end() && *actual == condition.value();
  });
}

std::string named(const json& result) {
  const std::string instrument = result.value("instrument", ""), metric = result.value("metric", "");
  return metric.starts_with(instrument) ? metric : instrument + " " + metric;
}

std::string conditions_of(const Limit& limit) {
  std::string text;
  for (const auto& [key, value] : limit.conditions.items())
    text +=
        (text.empty() ? "" : " ") + key + "=" + (value.is_string() ? shown(value.get<std::string>()) : value.dump());
  return text;
}

}  // namespace

void LimitCheck::see(std::string_view line) {
  if (!line.starts_with("{\"type\":\"result\"")) return;
  const json result = parse_json(line);
  if (!result.is_object() || !result.contains("conditions")) return;
  const json flags = result.value("flags", json::array());
  if (std::find(flags.begin(), flags.end(), "unverified") != flags.end())
    problems_.push_back(named(result) + ": a kernel computed a wrong result");
  if (!flags.empty()) return;  // a disturbed result says nothing about the node
  const double value = result.value("value", 0.0);
  for (const Limit& limit : limits_) {
    if (!applies(limit, result)) continue;
    ++compared_;
    if (value >= limit.low && value <= limit.high) continue;
    const bool below = value < limit.low;
    // The most important part is first, because readers may cut the line.
    problems_.push_back(named(result) + ": " + four_digits(value) + " " + result.value("unit", "") + ", " +
                        (below ? "below " : "above ") + four_digits(below ? limit.low : limit.high) + " (" +
                        conditions_of(limit) + ")");
  }
}

}  // namespace mm::node

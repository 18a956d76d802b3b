#include "node/limits.hpp"

#include <algorithm>
#include <cstdio>

#include "text.hpp"

namespace mm::node {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

bool applies(const Limit& limit, const std::string& metric, const json& conditions) {
  if (limit.metric != metric) return false;
  return std::all_of(limit.conditions.items().begin(), limit.conditions.items().end(), [&](const auto& wanted) {
    const auto found = conditions.find(wanted.key());
    return found != conditions.end() && *found == wanted.value();
  });
}

std::string named(const json& result, const Limit* limit) {
  std::string text = result.value("metric", "");
  if (limit != nullptr)
    for (const auto& [key, value] : limit->conditions.items())
      text += " " + key + "=" + (value.is_string() ? shown(value.get<std::string>()) : value.dump());
  return text;
}

}  // namespace

void LimitCheck::see(std::string_view line) {
  if (!line.starts_with("{\"type\":\"result\"")) return;
  const json result = parse_json(line);
  if (!result.is_object() || !result.contains("conditions")) return;
  const json flags = result.value("flags", json::array());
  if (std::find(flags.begin(), flags.end(), "unverified") != flags.end())
    problems_.push_back(named(result, nullptr) + ": a kernel computed a wrong result");
  const double value = result.value("value", 0.0);
  const std::string metric = result.value("metric", "");
  for (const Limit& limit : limits_) {
    if (!applies(limit, metric, result["conditions"])) continue;
    ++compared_;
    if (value >= limit.low && value <= limit.high) continue;
    const bool below = value < limit.low;
    problems_.push_back(named(result, &limit) + ": " + number(value) + " " + result.value("unit", "") + ", " +
                        (below ? "below " : "above ") + number(below ? limit.low : limit.high) + " of its class");
  }
}

}  // namespace mm::node

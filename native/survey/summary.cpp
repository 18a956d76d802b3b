#include "survey/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "base/text.hpp"
#include "survey/steps.hpp"

namespace mm::survey {
namespace {

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

std::string number(double value, const char* form) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

/// Returns a number with four significant digits.
std::string digits(double value) {
  const double size = std::abs(value);
  return number(value, size >= 999.95 ? "%.0f" : size >= 99.995 ? "%.1f" : size >= 9.9995 ? "%.2f" : "%.3f");
}

struct UnitScale {
  double factor;
  const char* unit;
};

UnitScale scale_of(double value, std::string_view unit) {
  if (unit == "s") {
    if (value < 1e-6) return {1e-9, "ns"};
    return value < 1e-3 ? UnitScale{1e-6, "µs"} : UnitScale{1e-3, "ms"};
  }
  if (unit == "B/s") return value < 1e9 ? UnitScale{1e6, "MB/s"} : UnitScale{1e9, "GB/s"};
  if (value < 1 << 20) return {1 << 10, "KiB"};
  return value < 1 << 30 ? UnitScale{1 << 20, "MiB"} : UnitScale{1 << 30, "GiB"};
}

double condition(const json& conditions, const char* name) {
  const auto at = conditions.find(name);
  return at != conditions.end() && at->is_number() ? at->get<double>() : -1;
}

std::string text_of(const json& conditions, const char* name) {
  const auto at = conditions.find(name);
  return at != conditions.end() && at->is_string() ? at->get<std::string>() : "";
}

template <class Result>
std::string value_text(const Result& r, std::string_view unit) {
  const UnitScale scale = scale_of(r.value, unit);
  std::string text = right(digits(r.value / scale.factor), 7) + " " + padded(scale.unit, 5);
  if (r.interval.size() == 2)
    text += "[" + digits(r.interval[0] / scale.factor) + ", " + digits(r.interval[1] / scale.factor) + "]";
  return text;
}

template <class Result>
std::string flags_text(const Result& r) {
  std::string text;
  for (const std::string& flag : r.flags) text += (text.empty() ? "  " : ", ") + flag;
  return text;
}

}  // namespace

std::string with_unit(double value, std::string_view unit) {
  const UnitScale scale = scale_of(value, unit);
  const double scaled = value / scale.factor;
  return (unit == "B" ? number(scaled, "%.4g") : digits(scaled)) + " " + scale.unit;
}

void SurveyResults::take(std::string_view step, std::string_view line) {
  const json content = parse_json(line);
  if (!content.is_object()) return;
  const std::string type = text_of(content, "type");
  if (type == "absent") {
    const std::string metric = text_of(content, "metric");  // null if all metrics are absent
    problem(step, (metric.empty() ? "" : metric + ": ") + text_of(content, "reason"));
  }
  if (type == "error") problem(step, text_of(content, "message"));
  if (type != "result") return;
  results_.push_back({.step = std::string(step),
                      .metric = content.at("metric"),
                      .value = content.at("value"),
                      .interval = content.at("interval").is_array() ? content.at("interval").get<std::vector<double>>()
                                                                    : std::vector<double>{},
                      .flags = content.at("flags"),
                      .conditions = content.at("conditions")});
}

void SurveyResults::problem(std::string_view step, std::string_view reason) {
  std::string text = std::string(step) + ": " + std::string(reason);
  if (std::ranges::find(problems_, text) == problems_.end()) problems_.push_back(std::move(text));
}

std::vector<const SurveyResults::Result*> SurveyResults::results_of(std::string_view step,
                                                                    std::string_view metric) const {
  std::vector<const Result*> matches;
  for (const Result& r : results_)
    if (r.step == step && r.metric == metric) matches.push_back(&r);
  return matches;
}

std::string SurveyResults::levels() const {
  std::string text;
  for (const Result* r : results_of("latency", "level_latency")) {
    const bool is_memory = text_of(r->conditions, "kind") == "memory";
    std::string name = "memory";
    if (!is_memory) {
      name = "cache level " + number(condition(r->conditions, "level"), "%.0f");
      if (const double bytes = condition(r->conditions, "to_bytes"); bytes > 0)
        name += ", up to " + with_unit(bytes, "B");
    }
    text += "  " + padded(name, 30) + value_text(*r, "s") + flags_text(*r) + "\n";
  }
  return text.empty() ? "" : "Latency of dependent loads, one CPU, memory of its node\n" + text;
}

std::string SurveyResults::bandwidths() const {
  std::string text;
  std::map<std::pair<std::string, double>, const Result*> fastest;
  std::vector<std::pair<std::string, double>> order;
  for (const Result* r : results_of("bandwidth", "bandwidth_net")) {
    const std::pair key{text_of(r->conditions, "kernel"), condition(r->conditions, "threads")};
    const auto [at, is_new] = fastest.try_emplace(key, r);
    if (is_new) order.push_back(key);
    const Result& other = *at->second;
    // A valid result is preferred to a faster one that is flagged.
    if (r->flags.empty() != other.flags.empty() ? r->flags.empty() : r->value > other.value) at->second = r;
  }
  std::ranges::sort(order);
  for (const auto& key : order) {
    const Result& r = *fastest.at(key);
    const std::string store = key.first == "read" ? "" : ", " + text_of(r.conditions, "store") + " stores";
    const std::string threads = number(key.second, "%.0f") + (key.second == 1 ? " thread" : " threads");
    text += "  " + padded(key.first + ", " + threads + store, 38) + value_text(r, "B/s") + flags_text(r) + "\n";
  }
  return text.empty() ? "" : "Bandwidth of memory, as STREAM counts it\n" + text;
}

std::string SurveyResults::transfers(const Machine& machine) const {
  struct TransferValues {
    std::vector<double> values;
    int flagged = 0;
  };
  std::map<std::string, TransferValues> pairs_by_relation;
  for (const Result* r : results_of("lines", "line_latency")) {
    const double from = condition(r->conditions, "from_cpu"), to = condition(r->conditions, "to_cpu");
    if (from < 0 || to < 0) continue;
    TransferValues& pairs = pairs_by_relation[relation(machine, static_cast<int>(from), static_cast<int>(to))];
    pairs.values.push_back(r->value);
    pairs.flagged += r->flags.empty() ? 0 : 1;
  }
  std::string text;
  for (const char* name : {"same core", "same L3", "same package", "other package"}) {
    if (!pairs_by_relation.contains(name)) continue;
    std::vector<double>& values = pairs_by_relation[name].values;
    std::ranges::sort(values);
    const double median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
    text += "  " + padded(name, 30) + right(digits(median * 1e9), 7) + " ns   " + digits(values.front() * 1e9) +
            " to " + digits(values.back() * 1e9) + " in " + counted(values.size(), "directed pair");
    if (const int flagged = pairs_by_relation[name].flagged; flagged > 0)
      text += ", " + std::to_string(flagged) + " flagged";
    text += "\n";
  }
  return text.empty() ? "" : "Core-to-core latency, compare-and-swap, one way: median of a sample of CPUs\n" + text;
}

std::string SurveyResults::nodes(const Machine& machine) const {
  std::map<int, std::map<int, std::string>> matrix;
  std::set<int> columns;
  for (const Result* r : results_of("nodes", "load_latency")) {
    const double cpu = condition(r->conditions, "cpu"), memory = condition(r->conditions, "memory_node");
    if (cpu < 0 || memory < 0) continue;
    matrix[machine.cpu(static_cast<int>(cpu)).node][static_cast<int>(memory)] =
        digits(r->value * 1e9) + (r->flags.empty() ? " " : "*");
    columns.insert(static_cast<int>(memory));
  }
  if (matrix.empty()) return "";
  std::string text =
      "Latency of memory in ns, from CPUs of a node (rows) to the memory of a node (columns); *: flagged\n       ";
  for (const int column : columns) text += right(std::to_string(column) + " ", 9);
  text += "\n";
  for (const auto& [row, cells] : matrix) {
    text += right(std::to_string(row), 7);
    for (const int column : columns) text += right(cells.contains(column) ? cells.at(column) : "- ", 9);
    text += "\n";
  }
  return text;
}

std::string SurveyResults::doubts() const {
  std::map<std::string, int> count_by_flag;
  for (const Result& r : results_)
    for (const std::string& flag : r.flags) ++count_by_flag[flag];
  std::string text;
  for (const auto& [flag, count] : count_by_flag)
    text += "Flag " + flag + ": " + std::to_string(count) + " of " + std::to_string(results_.size()) + " results\n";
  for (const std::string& problem : problems_) text += "Not measured: " + shown(problem, 300) + "\n";
  return text;
}

std::string SurveyResults::summary(const Machine& machine) const {
  std::string text;
  for (const std::string& part : {levels(), bandwidths(), transfers(machine), nodes(machine), doubts()})
    if (!part.empty()) text += (text.empty() ? "" : "\n") + part;
  return text;
}

}  // namespace mm::survey

#include "watch/board.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mm::watch {

std::size_t Board::add(const std::string& klass, json about) {
  json& list = components_[klass];
  if (!list.is_array()) list = json::array();
  list.push_back(std::move(about));
  return list.size() - 1;
}

std::size_t Board::components(const std::string& klass) const {
  return components_.contains(klass) ? components_.at(klass).size() : 0;
}

std::size_t Board::add(ComponentMetric metric) {
  metric.first = values_.size();
  metric.count = components(metric.name.substr(0, metric.name.find('.')));
  values_.resize(values_.size() + metric.count, kUnknown);
  if (const std::size_t existing = find(metric.name); existing != kNone) {
    // Another source adds the metric for components added since: it gets new values for all of them.
    metrics_[existing].first = metric.first;
    metrics_[existing].count = metric.count;
    return existing;
  }
  metrics_.push_back(std::move(metric));
  return metrics_.size() - 1;
}

std::size_t Board::find(const std::string& metric) const {
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    if (metrics_[i].name == metric) return i;
  return kNone;
}

const json* Board::absence(const std::string& metric) const {
  for (const json& entry : absent_)
    if (entry.at("metric") == metric) return &entry;
  return nullptr;
}

void Board::absent(const std::string& metric, const std::string& reason, const std::string& hint) {
  json entry{{"metric", metric}, {"why", reason}};
  if (!hint.empty()) entry["hint"] = hint;
  absent_.push_back(entry);
}

void Board::forget(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i)
    std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(metrics_[i].first), metrics_[i].count, kUnknown);
}

json Board::header() const {
  json metrics = json::array();
  for (const ComponentMetric& m : metrics_) {
    json entry{{"name", m.name}, {"unit", m.unit}, {"what", m.what}};
    if (!m.of.empty()) entry["of"] = m.of;
    if (m.estimated) entry["estimated"] = true;
    metrics.push_back(entry);
  }
  json entry{{"components", components_}, {"metrics", metrics}, {"absent", absent_}};
  entry.update(more_);
  return entry;
}

namespace {

/// Appends a number. Shares have a resolution of 0.01 %; other values have six digits, and are whole above a thousand.
void write_number(std::string& line, double value, bool share) {
  if (!std::isfinite(value)) {
    line += "null";
    return;
  }
  char text[40];
  std::to_chars_result end{};
  if (share)
    end = std::to_chars(text, text + sizeof text, std::round(value * 1e4) / 1e4);
  else if (std::abs(value) >= 1000)
    end = std::to_chars(text, text + sizeof text,
                        static_cast<std::int64_t>(std::min(std::abs(value), 9e18)) * (value < 0 ? -1 : 1));
  else
    end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  line.append(text, end.ptr);
}

}  // namespace

void Board::write_values(std::string& line) const {
  line += "\"values\":{";
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    const ComponentMetric& m = metrics_[i];
    if (i > 0) line += ',';
    line += '"';
    line += m.name;
    line += "\":[";
    const bool share = m.unit == "1" && !m.of.empty();
    for (std::size_t c = 0; c < m.count; ++c) {
      if (c > 0) line += ',';
      write_number(line, values_[m.first + c], share);
    }
    line += ']';
  }
  line += '}';
  for (const auto& [key, text] : notes_) {
    line += ",\"";
    line += key;
    line += "\":";
    line += text;
  }
}

}  // namespace mm::watch

#include "model/network/table.hpp"

#include <cmath>

#include "base/error.hpp"

namespace mm::model {
namespace {

const json kNoKeys = json::object();

std::string shown(double value) {
  json number =
      value == std::floor(value) && std::abs(value) < 1e15 ? json(static_cast<std::int64_t>(value)) : json(value);
  return number.dump();
}

}  // namespace

Time ps(double ns) { return static_cast<Time>(std::llround(ns * 1000.0)); }

std::int64_t fs_per_flit(double gb_per_s, int flit_bytes) {
  const double fs = gb_per_s <= 0 ? 0 : flit_bytes / gb_per_s * 1e6;
  // 1 s per flit: larger values would exceed the range of times, and no link is that slow.
  if (fs > 1e15) throw UsageError("bandwidth", "found " + shown(gb_per_s) + " GB/s", "0 or at least 1e-6 GB/s");
  return std::llround(fs);
}

std::string brief(const json& value) { return shown_json(value); }

void Table::refuse(const std::string& key, const std::string& found, const std::string& allowed) const {
  throw UsageError(path(key), "found " + found, allowed);
}

const json& Table::at(const char* key) const {
  if (!object_.contains(key)) refuse(key, "nothing", "a value is required");
  return object_.at(key);
}

double Table::number(const char* key, double minimum, double maximum) const {
  const json& value = at(key);
  const bool valid = value.is_number() && std::isfinite(value.get<double>());
  if (!valid || value.get<double>() < minimum || value.get<double>() > maximum)
    refuse(key, brief(value), "a number from " + shown(minimum) + " to " + shown(maximum));
  return value.get<double>();
}

double Table::number(const char* key, double minimum, double maximum, double default_value) const {
  return has(key) ? number(key, minimum, maximum) : default_value;
}

int Table::integer(const char* key, int minimum, int maximum) const {
  const double value = number(key, minimum, maximum);
  if (value != std::floor(value)) refuse(key, shown(value), "a whole number");
  return static_cast<int>(value);
}

int Table::integer(const char* key, int minimum, int maximum, int default_value) const {
  return has(key) ? integer(key, minimum, maximum) : default_value;
}

bool Table::flag(const char* key, bool default_value) const {
  if (!has(key)) return default_value;
  if (!at(key).is_boolean()) refuse(key, brief(at(key)), "true or false");
  return at(key).get<bool>();
}

std::string Table::text(const char* key, const std::string& default_value) const {
  if (!has(key)) return default_value;
  if (!at(key).is_string()) refuse(key, brief(at(key)), "a text");
  return at(key).get<std::string>();
}

std::size_t Table::choice(const char* key, std::initializer_list<const char*> allowed) const {
  if (!has(key)) return 0;
  std::string words;
  std::size_t number = 0;
  for (const char* word : allowed) {
    if (at(key) == word) return number;
    words += (words.empty() ? "" : ", ") + std::string(word);
    ++number;
  }
  refuse(key, brief(at(key)), words);
}

Table Table::table(const char* key) const {
  if (!has(key)) return Table(kNoKeys, path(key));
  if (!at(key).is_object()) refuse(key, brief(at(key)), "a table");
  return Table(at(key), path(key));
}

}  // namespace mm::model

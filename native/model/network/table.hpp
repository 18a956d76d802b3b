#pragma once
/// Reads machine files and requests: values with limits, and times and rates in the units of the simulator.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/json.hpp"
#include "model/network/calendar.hpp"

namespace mm::model {

Time ps(double ns);  ///< rounds to whole picoseconds
std::int64_t fs_per_flit(double gb_per_s,
                         int flit_bytes);  ///< returns the time per flit at a rate in GB/s; 0 for an unlimited rate

/// Returns a value as messages show it: at most 60 characters, as ASCII, so that no character is cut.
std::string brief(const json& value);

/// Reads keys of one table; every error names the dotted key.
class Table {
 public:
  Table(const json& object, std::string path) : object_(object), path_(std::move(path)) {}
  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key, double minimum, double maximum) const;
  double number(const char* key, double minimum, double maximum, double default_value) const;
  int integer(const char* key, int minimum, int maximum) const;
  int integer(const char* key, int minimum, int maximum, int default_value) const;
  bool flag(const char* key, bool default_value) const;
  std::string text(const char* key, const std::string& default_value) const;
  /// Returns the index of the key's value in `allowed`; 0 if the key is missing.
  std::size_t choice(const char* key, std::initializer_list<const char*> allowed) const;
  Table table(const char* key) const;  ///< empty if it is missing
  const json& at(const char* key) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& found, const std::string& allowed) const;
  std::string path(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const json& object() const { return object_; }

 private:
  const json& object_;
  std::string path_;
};

}  // namespace mm::model

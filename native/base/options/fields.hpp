#pragma once
/// Values of an object in a JSON file, checked against their limits. Throws Failure with the place, what was found and
/// what is allowed.
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace mm {

struct Fields {
  const json& object;
  std::string where;

  [[noreturn]] void refuse(const std::string& key, const json& value, const std::string& allowed) const;
  bool has(const std::string& key) const;  ///< the key is present and not null
  const json& at(const std::string& key) const;

  std::string text(const std::string& key) const;
  double real(const std::string& key, double low, double high) const;
  std::uint64_t whole(const std::string& key, std::uint64_t low, std::uint64_t high) const;

  // These return `default_value` if the key is missing or null.
  std::string text(const std::string& key, const std::string& default_value) const;
  double real(const std::string& key, double default_value, double low, double high) const;
  int whole(const std::string& key, int default_value, int low, int high) const;
  bool truth(const std::string& key) const;             ///< false if missing
  std::vector<int> cpus(const std::string& key) const;  ///< empty if missing
};

/// Reads the object in a JSON file. Throws Failure unless its `format` is this one and its `version` is 1.
json read_format(const std::string& path, const std::string& format);

}  // namespace mm

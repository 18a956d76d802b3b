#pragma once
/// The components by class, their metrics, and one flat array of current values.
///
/// Sources allocate everything when they open; a tick only writes numbers.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace mm::watch {

/// An unknown value, never zero: views draw it hatched, with the reason from the header.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

inline constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// One number per component of a class and tick.
struct ComponentMetric {
  std::string name;        ///< class.what: cpu.busy, node.used …
  std::string unit;        ///< SI, as in records: 1, B, B/s, s, 1/s, Hz, W
  std::string what;        ///< description
  std::string of{};        ///< for a share: what 1 means
  bool estimated = false;  ///< inferred, not counted; NAME_low and NAME_high are its 95 % interval
  std::size_t first = 0, count = 0;
};

class Board {
 public:
  /// Adds a component of a class. `about` contains its `name`, and `node`, `package`, `kind` … if known.
  std::size_t add(const std::string& klass, json about);
  /// Adds a metric for all current components of its class (the part of its name before the period). If it already
  /// exists, it is extended, and its description stays.
  std::size_t add(ComponentMetric metric);
  /// Records that a metric, or a whole class, is unavailable, with the reason and a remedy.
  void absent(const std::string& metric, const std::string& reason, const std::string& hint = "");

  void set(std::size_t metric, std::size_t component, double value) {
    const ComponentMetric& m = metrics_[metric];
    if (component < m.count) values_[m.first + component] = value;
  }
  double at(std::size_t metric, std::size_t component) const { return values_[metrics_[metric].first + component]; }
  std::size_t components(const std::string& klass) const;
  const json& component(const std::string& klass, std::size_t number) const { return components_.at(klass)[number]; }
  /// Returns the index of a metric; kNone if it does not exist.
  std::size_t find(const std::string& metric) const;
  /// Returns the recorded absence of a metric; null if no absence was recorded. Valid until the next `absent`.
  const json* absence(const std::string& metric) const;
  const std::vector<ComponentMetric>& metrics() const { return metrics_; }

  json header() const;                               ///< components, metrics, absent
  void forget(std::size_t first, std::size_t last);  ///< sets the values of these metrics to unknown

  /// Adds a key to the header.
  void set_header(const std::string& key, json value) { more_[key] = std::move(value); }

  /// Adds a key and its JSON to all frames, until the next call with that key.
  void note(const std::string& key, std::string text) { notes_[key] = std::move(text); }

  /// Appends `"values": {…}` of a frame: numbers with the digits that their unit needs, null for unknown values.
  void write_values(std::string& line) const;

 private:
  json components_ = json::object(), absent_ = json::array(), more_ = json::object();
  std::vector<ComponentMetric> metrics_;
  std::vector<double> values_;
  std::map<std::string, std::string> notes_;
};

}  // namespace mm::watch

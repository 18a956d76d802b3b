#pragma once
/// What is sampled: components by class, metrics over them, and one flat array of their present values.
///
/// Everything that a tick needs is allocated while the sources open; a tick then only writes numbers.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace mm::watch {

/// A value that is not known. It is never zero: views draw it hatched, with the reason of the header.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

inline constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// One number for each component of a class, at every tick.
struct Metric {
  std::string name;        ///< class.what: cpu.busy, node.used …
  std::string unit;        ///< SI, as records have it: 1, B, B/s, s, 1/s, Hz, W
  std::string what;        ///< in words
  std::string of{};        ///< of a share: what 1 is
  bool estimated = false;  ///< not counted but inferred; NAME_low and NAME_high are its 95 % interval
  std::size_t first = 0, count = 0;
};

class Board {
 public:
  /// Adds a component of a class; `about` has its `name`, and `node`, `package`, `kind` … where they are known.
  std::size_t add(const std::string& klass, json about);
  /// Adds a metric for all components that its class (the part of its name before the point) has by now. One that is
  /// there already only grows; its first words stay.
  std::size_t add(Metric metric);
  /// Says that a metric, or a whole class, cannot be seen here, why, and what would show it.
  void absent(const std::string& metric, const std::string& why, const std::string& hint = "");

  void set(std::size_t metric, std::size_t component, double value) {
    const Metric& m = metrics_[metric];
    if (component < m.count) values_[m.first + component] = value;
  }
  double at(std::size_t metric, std::size_t component) const { return values_[metrics_[metric].first + component]; }
  std::size_t components(const std::string& klass) const;
  const json& component(const std::string& klass, std::size_t number) const { return components_.at(klass)[number]; }
  /// The number of a metric by its name; kNone where there is none.
  std::size_t find(const std::string& metric) const;
  /// What was said of a metric that is absent; none where nothing was. Valid until the next `absent`.
  const json* absence(const std::string& metric) const;
  const std::vector<Metric>& metrics() const { return metrics_; }

  json header() const;                               ///< components, metrics, absent
  void forget(std::size_t first, std::size_t last);  ///< the values of these metrics become unknown

  /// Something that the header says beside its lists.
  void say(const std::string& key, json value) { more_[key] = std::move(value); }

  /// Something beside the values that frames carry until it is said anew: a key and its JSON.
  void note(const std::string& key, std::string text) { notes_[key] = std::move(text); }

  /// Appends `"values": {…}` of a frame: numbers as short as their unit needs, null for what is unknown.
  void write_values(std::string& line) const;

 private:
  json components_ = json::object(), absent_ = json::array(), more_ = json::object();
  std::vector<Metric> metrics_;
  std::vector<double> values_;
  std::map<std::string, std::string> notes_;
};

}  // namespace mm::watch

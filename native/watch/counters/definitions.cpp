#include "watch/counters/definitions.hpp"

#include <initializer_list>
#include <sstream>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "built_in_events.hpp"

namespace mm::watch {

bool matches(std::string_view name, std::string_view form) {
  const std::size_t star = form.find('*');
  if (star == std::string_view::npos) return name == form;
  if (!name.starts_with(form.substr(0, star))) return false;
  form.remove_prefix(star + 1);
  for (std::size_t at = star; at <= name.size(); ++at)
    if (matches(name.substr(at), form)) return true;
  return false;
}

namespace {

/// Reads one table and reports invalid values.
class EventTable {
 public:
  EventTable(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  std::string text(const char* key, bool required) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) {
      if (required) refuse(key, "is missing");
      return {};
    }
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) refuse(key, "must be a non-empty string");
    return *value;
  }

  double real(const char* key, double default_value) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return default_value;
    const auto value = node->value<double>();
    if (!node->is_number() || !value) refuse(key, "must be a number");
    return *value;
  }

  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> values;
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return values;
    if (!node->is_array()) refuse(key, "must be a list of strings");
    for (const toml::node& element : *node->as_array()) {
      const auto value = element.value_exact<std::string>();
      if (!value) refuse(key, "must be a list of strings");
      values.push_back(*value);
    }
    return values;
  }

  WeightedSum sum(const char* key, const std::vector<EventDefinition>& events, bool required) const {
    WeightedSum terms;
    const toml::node* const node = table_.get(key);
    if (node == nullptr) {
      if (required) refuse(key, "is missing");
      return terms;
    }
    if (!node->is_table() || node->as_table()->empty()) refuse(key, "must be a table of events and their weights");
    for (const auto& [name, weight] : *node->as_table()) {
      std::size_t event = 0;
      while (event < events.size() && events[event].name != name.str()) ++event;
      if (event == events.size())
        refuse(key, "names " + quote(std::string(name.str())) + ", which is not an event of this PMU");
      const auto value = weight.value<double>();
      if (!weight.is_number() || !value) refuse(key, "must give each event a number");
      terms.emplace_back(event, *value);
    }
    return terms;
  }

  void only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, node] : table_) {
      bool is_known = false;
      for (const std::string_view k : known) is_known = is_known || k == key.str();
      if (!is_known) refuse(std::string(key.str()).c_str(), "is unknown");
    }
  }

  template <class Each>
  void each(const char* key, Each&& with) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_array()) refuse(key, "must be a list of tables");
    std::size_t i = 0;
    for (const toml::node& element : *node->as_array()) {
      const std::string place = where_ + (where_.ends_with(' ') ? "" : ".") + key + "[" + std::to_string(i++) + "]";
      if (!element.is_table()) throw Failure(place + ": must be a table");
      with(EventTable(*element.as_table(), place));
    }
  }

  [[noreturn]] void refuse(const char* key, const std::string& what) const {
    throw Failure(where_ + (where_.ends_with(' ') ? "" : ".") + key + ": " + what);
  }

 private:
  const toml::table& table_;
  std::string where_;
};

}  // namespace

std::vector<PmuDefinition> parse_definitions(std::string_view toml, const std::string& file) {
  toml::table root;
  try {
    root = toml::parse(toml, file);
  } catch (const toml::parse_error& error) {
    std::ostringstream message;
    message << file << ": line " << error.source().begin.line << ": " << error.description();
    throw Failure(message.str());
  }
  std::vector<PmuDefinition> definitions;
  const EventTable top(root, file + ": ");
  top.only({"pmu"});
  top.each("pmu", [&](const EventTable& pmu) {
    pmu.only({"device", "not", "cpuid", "component", "label", "source", "event", "metric"});
    PmuDefinition definition;
    definition.file = file;
    definition.device = pmu.text("device", true);
    definition.except = pmu.text("not", false);
    definition.cpuid = pmu.texts("cpuid");
    definition.component = pmu.text("component", true);
    definition.label = pmu.text("label", definition.component != "cpu");
    pmu.text("source", true);  // required: every definition names its source
    pmu.each("event", [&](const EventTable& event) {
      event.only({"name", "use", "terms", "scale", "unit"});
      EventDefinition e{event.text("name", true), event.text("use", false), event.text("terms", false),
                        event.real("scale", 1)};
      if (e.use.empty() && e.terms.empty()) event.refuse("use", "is missing, and so is terms: one of them is required");
      definition.events.push_back(std::move(e));
    });
    pmu.each("metric", [&](const EventTable& metric) {
      metric.only({"name", "unit", "what", "of", "sum", "over"});
      MetricDefinition m{metric.text("name", true),
                         metric.text("unit", true),
                         metric.text("what", true),
                         metric.text("of", false),
                         metric.sum("sum", definition.events, true),
                         metric.sum("over", definition.events, false)};
      if (!m.name.starts_with(definition.component + "."))
        metric.refuse("name", "found " + quote(m.name) + "; it must start with '" + definition.component + ".'");
      definition.metrics.push_back(std::move(m));
    });
    definitions.push_back(std::move(definition));
  });
  return definitions;
}

const std::vector<PmuDefinition>& built_in_definitions() {
  static const std::vector<PmuDefinition> all = [] {
    std::vector<PmuDefinition> definitions;
    for (const auto& [file, text] : kBuiltInEvents)
      for (PmuDefinition& definition : parse_definitions(text, file)) definitions.push_back(std::move(definition));
    return definitions;
  }();
  return all;
}

}  // namespace mm::watch

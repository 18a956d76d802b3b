#include "base/harness/instrument.hpp"

#include <algorithm>

#include "base/harness/output.hpp"
#include "base/harness/provenance.hpp"
#include "base/harness/run_state.hpp"
#include "base/input_file.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"

namespace mm {
namespace {

std::vector<const Instrument*>& registry() {
  static std::vector<const Instrument*> all;
  return all;
}

const char* kind_name(Kind kind) {
  constexpr const char* names[] = {"integer", "real",    "size", "sizes",    "time", "text",
                                   "choice",  "choices", "cpus", "integers", "flag"};
  return names[static_cast<int>(kind)];
}

std::string number(double n) {
  json j = n == static_cast<double>(static_cast<long long>(n)) ? json(static_cast<long long>(n)) : json(n);
  return j.dump();
}

}  // namespace

const char* better_name(Better better) {
  constexpr const char* names[] = {"lower", "higher", "none"};
  return names[static_cast<int>(better)];
}

Parameter choice(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed) {
  Parameter p = choices(std::move(name), std::move(help), std::move(default_value), std::move(allowed));
  p.kind = Kind::choice;
  return p;
}

Parameter choices(std::string name, std::string help, std::string default_value, std::vector<std::string> allowed) {
  return {.name = std::move(name),
          .help = std::move(help),
          .unit = "",
          .kind = Kind::choices,
          .default_value = std::move(default_value),
          .choices = std::move(allowed)};
}

Instrument::Instrument(const Description& d, void (*m)(Run&)) : description(d), measure(m) {
  auto& all = registry();
  all.insert(std::upper_bound(all.begin(), all.end(), this,
                              [](auto* a, auto* b) { return a->description.name < b->description.name; }),
             this);
}

const std::vector<const Instrument*>& instruments() { return registry(); }

std::vector<Parameter> common_parameters(const Description& d) {
  std::vector<Parameter> placement = {
      {"cpus", "CPUs to use", "", Kind::cpus, "allowed"},
      {"memory_node", "NUMA node that holds the memory: a number, a list, or all; empty: by policy", "", Kind::text,
       ""},
      {"policy", "where pages go without --memory-node", "", Kind::choice, "local", {}, {}, {"local", "interleave"}},
      {"pages",
       "page sizes, a list: 4KiB, thp (transparent huge), 2MiB, 1GiB (explicit huge)",
       "",
       Kind::choices,
       "thp",
       {},
       {},
       {"4KiB", "thp", "2MiB", "1GiB"}},
      {"shield",
       "short bursts at real-time priority where permitted; hold: keep the other CPUs of --cpus idle meanwhile",
       "",
       Kind::choice,
       "on",
       {},
       {},
       {"on", "hold", "off"}},
  };
  const std::vector<Parameter> all = {
      {"budget_s", "time limit; sampling ends even if intervals have not converged", "s", Kind::time, "10s", 0.01,
       86400},
      {"interval_percent", "half width of the 95 % interval of the median at which a point has converged", "%",
       Kind::real, "2", 0.01, 100},
      {"seed", "seed of all random orders", "", Kind::integer, "1", 0},
      {"resume", "output of an interrupted run of the same command; its points are not measured again", "", Kind::text,
       ""},
      {"machine", "name in the records", "", Kind::text, ""},
  };
  if (d.ranks) {
    std::vector<Parameter> rank_parameters = {
        {"ranks", "number of ranks; meshmark measure accepts a list, one run each", "", Kind::integers, "all", 1},
        {"mpi",
         "MPI library whose launcher starts the ranks; meshmark measure accepts a list, or all installed ones",
         "",
         Kind::choices,
         "any",
         {},
         {},
         {"any", "all", "openmpi", "mpich", "mpi"}}};
    rank_parameters.insert(rank_parameters.end(), all.begin(), all.end());
    return rank_parameters;
  }
  // Keeps the established order of listings.
  const auto shield = std::prev(placement.end());
  placement.insert(shield, all.begin(), all.begin() + 2);
  placement.insert(placement.end(), all.begin() + 2, all.end());
  return placement;
}

std::string option_of(const Parameter& p) {
  if (!p.option.empty()) return p.option;
  std::string word = p.name;
  for (const char* unit : {"_bytes", "_percent", "_s"}) {
    const std::string_view u = unit;
    if (word.size() > u.size() && word.ends_with(u)) {
      word.resize(word.size() - u.size());
      break;
    }
  }
  std::replace(word.begin(), word.end(), '_', '-');
  return "--" + word;
}

json describe(const std::vector<Metric>& metrics) {
  json all = json::array();
  for (const Metric& m : metrics)
    all.push_back({{"name", m.name}, {"help", m.help}, {"unit", m.unit}, {"better", better_name(m.better)}});
  return all;
}

json describe(const Description& d) {
  json j;
  j["schema"] = 1;
  j["name"] = d.name;
  j["summary"] = d.summary;
  j["detail"] = d.detail;
  j["source"] = d.source;
  j["spoils"] = d.spoils;
  j["needs"] = d.needs;
  j["parameters"] = json::array();
  std::vector<Parameter> all = d.parameters;
  for (const Parameter& c : common_parameters(d))
    if (std::none_of(all.begin(), all.end(), [&](const Parameter& p) { return p.name == c.name; })) all.push_back(c);
  for (const Parameter& p : all) {
    json q;
    q["name"] = p.name;
    q["option"] = option_of(p);
    q["help"] = p.help;
    q["unit"] = p.unit;
    q["kind"] = kind_name(p.kind);
    q["default"] = p.default_value;
    q["minimum"] = p.minimum ? json(*p.minimum) : json(nullptr);
    q["maximum"] = p.maximum ? json(*p.maximum) : json(nullptr);
    q["choices"] = p.choices;
    if (p.per_process) q["per_process"] = true;
    j["parameters"].push_back(std::move(q));
  }
  j["metrics"] = describe(d.metrics);
  j["identity"] = d.identity;
  if (!d.observed.empty()) j["observed"] = d.observed;
  j["ranks"] = d.ranks;
  j["work"] = json{{"bytes_per_iteration", d.bytes_per_iteration}, {"flops_per_iteration", d.flops_per_iteration}};
  for (const KernelWork& k : d.kernels)
    j["work"]["kernels"][k.name] = {
        {"reads", k.reads}, {"writes", k.writes}, {"allocates", k.allocates}, {"flops", k.flops}};
  return j;
}

// ---------------------------------------------------------------- parameters

const Parameter& Run::State::parameter(std::string_view name) const {
  for (const Parameter& p : parameters)
    if (p.name == name) return p;
  throw std::logic_error("the instrument reads a parameter that it does not describe: " + std::string(name));
}

const std::string& Run::State::value(std::string_view name) const { return values.at(parameter(name).name); }

namespace {

void check_limits(const Parameter& p, double value, const std::string& text) {
  if ((p.minimum && value < *p.minimum) || (p.maximum && value > *p.maximum)) {
    std::string allowed = p.minimum ? number(*p.minimum) : "";
    allowed += p.maximum ? (p.minimum ? " to " : "at most ") + number(*p.maximum) : " or more";
    throw UsageError(p.name, "found " + quote(text), allowed + (p.unit.empty() ? "" : " " + p.unit));
  }
}

}  // namespace

long long Run::integer(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  const long long n = parse_integer(p.name, text);
  check_limits(p, static_cast<double>(n), text);
  return n;
}

double Run::real(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  const double n = parse_real(p.name, text);
  check_limits(p, n, text);
  return n;
}

namespace {

/// Returns a footprint that is larger than any cache: four times all last-level caches (STREAM's rule), at least
/// 512 MiB, and at most a quarter of the available memory.
std::size_t memory_footprint() {
  const std::size_t bytes = std::max<std::size_t>(512 << 20, 4 * topology().all_last_level_bytes);
  return std::min(bytes, std::max<std::size_t>(memory_available() / 4, 64 << 20)) >> 20 << 20;
}

}  // namespace

std::size_t Run::bytes(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  const std::size_t n = text == "memory" ? memory_footprint() : parse_size(p.name, text);
  check_limits(p, static_cast<double>(n), text);
  return n;
}

double Run::time_s(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  const double n = parse_time(p.name, text);
  check_limits(p, n, text);
  return n;
}

std::string Run::text(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  if (p.kind == Kind::choice && std::find(p.choices.begin(), p.choices.end(), text) == p.choices.end())
    throw UsageError(p.name, "found " + quote(text), joined(p.choices));
  return text;
}

bool Run::flag(std::string_view name) const {
  const std::string& text = state_.value(name);
  if (text == "true") return true;
  if (text == "false" || text.empty()) return false;
  throw UsageError(state_.parameter(name).name, "found " + quote(text), "true, false");
}

std::vector<std::size_t> Run::sizes(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  auto all = text == "memory" ? std::vector{memory_footprint()} : parse_sizes(p.name, text);
  for (std::size_t n : all) check_limits(p, static_cast<double>(n), text);
  return all;
}

std::vector<std::string> Run::choices(std::string_view name) const {
  const Parameter& p = state_.parameter(name);
  std::vector<std::string> all = split(state_.value(name), ',');
  for (const std::string& word : all)
    if (!p.choices.empty() && std::find(p.choices.begin(), p.choices.end(), word) == p.choices.end())
      throw UsageError(p.name, "found " + quote(word), joined(p.choices));
  return all;
}

bool Run::selects(std::string_view name, std::initializer_list<std::string_view> any) const {
  const std::vector<std::string> words = choices(name);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word == "all" || std::find(any.begin(), any.end(), word) != any.end();
  });
}

std::vector<int> Run::integers(std::string_view name, int all) const {
  const Parameter& p = state_.parameter(name);
  const std::string& text = state_.value(name);
  auto numbers = parse_integers(p.name, text, all);
  for (int n : numbers) check_limits(p, n, text);
  return numbers;
}

std::vector<int> Run::team_sizes(std::string_view name, const std::vector<int>& cpus) const {
  const int all = static_cast<int>(cpus.size());
  auto sizes = integers(name, all);
  for (const int n : sizes)
    if (n > all) refuse(std::string(name), "found " + std::to_string(n), "1 to " + std::to_string(all));
  return sizes;
}

void Run::check() const {
  if (!state_.description->ranks) {
    cpus();
    memory_nodes();
  }
  for (const Parameter& p : state_.parameters) {
    if (p.name == "cpus" || p.name == "memory_node" || state_.value(p.name).empty()) continue;
    switch (p.kind) {
      case Kind::integer:
        integer(p.name);
        break;
      case Kind::real:
        real(p.name);
        break;
      case Kind::size:
        bytes(p.name);
        break;
      case Kind::sizes:
        sizes(p.name);
        break;
      case Kind::time:
        time_s(p.name);
        break;
      case Kind::choices:
        choices(p.name);
        break;
      case Kind::integers:
        integers(p.name, std::max(1, static_cast<int>(topology().allowed.size())));
        break;
      case Kind::flag:
        flag(p.name);
        break;
      case Kind::choice:
      case Kind::cpus:
      case Kind::text:
        text(p.name);
        break;
    }
  }
}

bool Run::has(std::string_view name) const {
  return std::any_of(state_.parameters.begin(), state_.parameters.end(),
                     [&](const Parameter& p) { return p.name == name; });
}

bool Run::given(std::string_view name) const { return state_.was_given.contains(state_.parameter(name).name); }

std::vector<int> Run::cpus() const {
  const std::string& text = state_.value("cpus");
  std::vector<int> allowed = allowed_cpus();
  if (text == "allowed" || text == "all") return allowed;
  std::vector<int> numbers = parse_cpu_list("cpus", text, allowed);
  for (int cpu : numbers)
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu))
      throw UsageError("cpus", "found cpu " + std::to_string(cpu) + ", which this process may not use",
                       cpu_list(allowed));
  return numbers;
}

std::vector<Pages> Run::pages() const {
  std::vector<Pages> all;
  for (const std::string& word : choices("pages")) all.push_back(parse_pages(word));
  return all;
}

std::vector<int> Run::single_cpus() const {
  std::vector<int> candidates = cpus();
  if (!given("cpus")) candidates.resize(1);
  return candidates;
}

Pages Run::single_pages() const {
  const std::vector<Pages> all = pages();
  if (all.size() != 1)
    refuse("pages", "found " + quote(state_.value("pages")),
           "one page size, since " + state_.description->name + " measures one at a time");
  return all.front();
}

int Run::single_node() const {
  const std::vector<int> nodes = placed_nodes();
  if (nodes.size() != 1)
    refuse("memory_node", "found " + quote(state_.value("memory_node")),
           "one node, since " + state_.description->name + " measures one at a time");
  return nodes.front();
}

std::vector<int> Run::memory_nodes() const {
  const std::string& text = state_.value("memory_node");
  if (text.empty()) return {};
  const std::vector<int>& nodes = topology().memory_nodes;
  if (text == "all") return nodes;
  std::vector<int> numbers = parse_cpu_list("memory_node", text, nodes);
  for (int node : numbers)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end())
      throw UsageError("memory_node", "found node " + std::to_string(node) + ", which has no memory for this process",
                       cpu_list(nodes));
  return numbers;
}

std::vector<int> Run::placed_nodes() const {
  std::vector<int> nodes = memory_nodes();
  if (nodes.empty()) nodes = {-1};
  return nodes;
}

json Run::memory_node(int node) const {
  if (node >= 0) return node;
  return policy() == Policy::interleave ? "interleave" : "local";
}

Policy Run::policy() const {
  if (!state_.value("memory_node").empty()) return Policy::node;
  return text("policy") == "interleave" ? Policy::interleave : Policy::local;
}

double Run::budget_s() const { return time_s("budget_s"); }
std::uint64_t Run::seed() const { return static_cast<std::uint64_t>(integer("seed")); }

void Run::refuse(const std::string& field, const std::string& message, const std::string& allowed) const {
  throw UsageError(field, message, allowed);
}

json Run::State::parameters_json() const {
  json j;
  for (const Parameter& p : parameters)
    if (p.name != "resume" && p.name != "machine") j[p.name] = values.at(p.name);
  return j;
}

json Run::State::provenance(const std::string& start, double duration_s) const {
  json j;
  j["build"] = kBuild;
  j["compiler"] = kCompiler;
  j["command"] = command;
  j["kernel"] = kernel_release();
  j["start"] = start;
  j["duration_s"] = duration_s;
  j["clock"] = clock_info().name;
  return j;
}

void Run::State::write_header(std::size_t count) {
  if (header_written) return;
  header_written = true;
  json j;
  j["type"] = "header";
  j["schema"] = 1;
  j["instrument"] = description->name;
  j["machine"] = machine;
  j["provenance"] = provenance(utc_now(), 0);
  j["conditions"] = host_conditions();
  j["conditions"]["clock"] = clock_info().name;
  j["conditions"]["clock_invariant"] = clock_info().invariant;
  j["parameters"] = parameters_json();
  j["points"] = count;
  if (!processes.is_null()) j["processes"] = processes;
  emit(j);
}

void Run::State::load_earlier(const std::string& path) {
  constexpr std::size_t kMaxJournal = std::size_t{1} << 30;
  const FileContent input = read_input(path, kMaxJournal);
  if (!input.wrong.empty())
    throw UsageError("resume", shown_path(path) + ": " + input.wrong,
                     "an earlier output of this command: " + input.allowed);
  for (std::string_view rest = input.text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const json j = parse_json(line);
    // Skip incomplete and foreign lines; their samples are measured again.
    if (!j.is_object() || !j.contains("type") || !j["type"].is_string()) continue;
    const std::string type = j["type"];
    if (type == "header" && !earlier.any) {
      if (!j.contains("instrument") || j["instrument"] != description->name || !j.contains("parameters"))
        throw UsageError("resume", quote(path) + " is from another instrument", "output of " + description->name);
      const json current_parameters = parameters_json();
      for (const auto& [key, value] : current_parameters.items())
        if (!j["parameters"].contains(key) || j["parameters"][key] != value)
          throw UsageError("resume", quote(path) + " was measured with another " + key, "the parameters of that file");
      earlier.any = true;
    } else if (type == "sample" && j.contains("point") && j["point"].is_number_unsigned() && j.contains("values") &&
               j["values"].is_array()) {
      Values numbers;
      for (const json& v : j["values"])
        if (v.is_number()) numbers.push_back(v);
      if (numbers.size() == j["values"].size())
        earlier.samples[j["point"]].emplace_back(
            std::move(numbers), j.contains("marks") && j["marks"].is_number_integer() ? j["marks"].get<int>() : 0);
    } else if (type == "result" && j.contains("point") && j["point"].is_number_unsigned() && j.contains("flags") &&
               j["flags"].is_array()) {
      std::vector<std::string>& flags = earlier.flags[j["point"]];
      flags.clear();
      for (const json& f : j["flags"])
        if (f.is_string()) flags.push_back(f);
    } else if (type == "point" && j.contains("index") && j["index"].is_number_unsigned()) {
      earlier.finished[j["index"]] = true;
    }
  }
}

}  // namespace mm

/// Parses LSF's affinity[…] and places its tasks.
///
/// Source: IBM, "Affinity string" and "Submit jobs with affinity resource requirements", Spectrum LSF 10.1.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/syntax.hpp"

namespace mm::place {
namespace {

constexpr const char* kExample =
    "affinity[core(2,same=socket,exclusive=(socket,injob))*1:cpubind=socket:membind=localonly"
    ":distribute=pack]";
constexpr int kMax = 1 << 16;  // units, groups, tasks

// Splits at `by`, except within brackets.
std::vector<std::string> cut(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == by && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

struct Parser {
  [[noreturn]] static void refuse(const std::string& word, const std::string& allowed = kExample) {
    throw UsageError("affinity", "found " + quote(word), allowed);
  }
  static int number(const std::string& word) {
    if (word.empty() || word.size() > 5 || word.find_first_not_of("0123456789") != std::string::npos ||
        std::stoi(word) < 1)
      refuse(word, "1 to 99999");
    return std::stoi(word);
  }
  // LSF also accepts LoadLeveler's names.
  static std::string level(const std::string& word, bool thread) {
    const std::string name = word == "mcm" ? "numa" : word == "cpu" ? "thread" : word;
    if (name == "numa" || name == "socket" || name == "core" || (thread && name == "thread")) return name;
    refuse(word, std::string("numa, socket, core") + (thread ? ", thread" : ""));
  }
  // Returns the content of `(…)`. Throws UsageError unless the brackets span all of `word`.
  static std::string inside(const std::string& word) {
    if (word.size() < 2 || word.front() != '(' || word.back() != ')') refuse(word);
    return word.substr(1, word.size() - 2);
  }
};

int level_of(const Cpu& cpu, const std::string& level) {
  return level == "thread" ? cpu.id : level == "core" ? cpu.core : level == "numa" ? cpu.node : cpu.package;
}

// From the narrowest to the widest, in LSF's order: a NUMA node is within a socket, or as wide.
int width(const std::string& level) { return level == "thread" ? 0 : level == "core" ? 1 : level == "numa" ? 2 : 3; }

struct CpuUnit {
  std::vector<int> cpus;
  Cpu at;  ///< its first CPU, which determines core, node and socket
  bool used = false;
};

/// Places tasks one after the other. Greedy: groups have equal sizes, so any container with room for a group is
/// suitable.
class TaskPlacer {
 public:
  TaskPlacer(const Machine& machine, const Affinity& affinity, const Occupancy& taken) : affinity_(affinity) {
    std::vector<Cpu> cpus;
    for (const Cpu& cpu : machine.cpus) {
      const std::vector<int>& within = affinity.request.within.empty() ? machine.allowed : affinity.request.within;
      if (std::find(within.begin(), within.end(), cpu.id) != within.end()) cpus.push_back(cpu);
    }
    std::stable_sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
      return a.package != b.package ? a.package < b.package : a.core != b.core ? a.core < b.core : a.smt < b.smt;
    });
    std::map<int, std::size_t> index;
    for (const Cpu& cpu : cpus) {
      const auto [at, fresh] = index.emplace(level_of(cpu, affinity.unit), units_.size());
      if (fresh) units_.push_back({{}, cpu});
      units_[at->second].cpus.push_back(cpu.id);
    }
    const auto holds = [](const auto& map, int cpu) {
      const auto at = map.find(cpu);
      return at != map.end() && at->second;
    };
    const bool alone = affinity.exclusive_scope.find("alljobs") != std::string::npos;
    std::set<int> foreign;  // containers of the exclusive level that others use
    for (const Cpu& cpu : machine.cpus)
      if (alone && (holds(taken.jobs, cpu.id) || holds(taken.exclusive, cpu.id)))
        foreign.insert(level_of(cpu, affinity.exclusive_level));
    for (CpuUnit& unit : units_) {
      for (const int cpu : unit.cpus) unit.used = unit.used || holds(taken.jobs, cpu) || holds(taken.exclusive, cpu);
      if (alone) unit.used = unit.used || foreign.contains(level_of(unit.at, affinity.exclusive_level));
    }
    for (CpuUnit& unit : units_) std::sort(unit.cpus.begin(), unit.cpus.end());
    at_start_ = units_;
  }

  /// Returns the units of all tasks, or nothing if they do not fit into container `number` of `level` (level "": the
  /// whole machine).
  std::vector<std::vector<std::size_t>> attempt(const std::string& level, int container) {
    units_ = at_start_;
    job_ = {};
    if (!level.empty())
      for (CpuUnit& unit : units_) unit.used = unit.used || level_of(unit.at, level) != container;
    std::vector<std::vector<std::size_t>> tasks;
    for (int t = 0; t < affinity_.request.slots / affinity_.units_per_task; ++t) {
      std::vector<std::size_t> task;
      const auto before = job_;
      for (int g = 0; g < affinity_.groups_per_task; ++g) {
        const std::vector<std::size_t> group = next_group(task, before);
        if (group.empty()) return {};
        for (const std::size_t u : group) {
          units_[u].used = true;
          job_.insert(u);
        }
        task.insert(task.end(), group.begin(), group.end());
      }
      tasks.push_back(task);
    }
    return tasks;
  }

  const std::vector<CpuUnit>& units() const { return units_; }

  std::set<int> containers(const std::string& level) const {
    std::set<int> all;
    for (const CpuUnit& unit : at_start_) all.insert(level_of(unit.at, level));
    return all;
  }

 private:
  bool scope(const char* name) const { return affinity_.exclusive_scope.find(name) != std::string::npos; }

  // Returns whether the unit is free and its container is not closed by exclusiveness: `injob` closes the containers of
  // the job's earlier tasks, `intask` the containers of the task's other groups.
  bool open(const CpuUnit& unit, const std::vector<std::size_t>& task, const std::set<std::size_t>& earlier) const {
    if (unit.used) return false;
    const auto together = [&](std::size_t u) {
      return level_of(units_[u].at, affinity_.exclusive_level) == level_of(unit.at, affinity_.exclusive_level);
    };
    return !(scope("injob") && std::any_of(earlier.begin(), earlier.end(), together)) &&
           !(scope("intask") && std::any_of(task.begin(), task.end(), together));
  }

  std::vector<std::size_t> next_group(const std::vector<std::size_t>& task,
                                      const std::set<std::size_t>& earlier) const {
    // Keeps the units of a container together: the container of `same`, which must hold all of them, or else the
    // socket.
    const std::string level = affinity_.same.empty() ? "socket" : affinity_.same;
    struct Container {
      int id, socket_used = 0, used = 0;
      std::vector<std::size_t> open;
    };
    std::vector<Container> containers;
    std::map<int, int> socket_used;
    for (const std::size_t u : job_) ++socket_used[units_[u].at.package];
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const int id = level_of(units_[u].at, level);
      auto c = std::find_if(containers.begin(), containers.end(), [&](const Container& x) { return x.id == id; });
      if (c == containers.end()) c = containers.insert(c, {id, socket_used[units_[u].at.package], 0, {}});
      c->used += job_.contains(u);
      if (open(units_[u], task, earlier)) c->open.push_back(u);
    }
    const std::string& distribution = affinity_.request.policy;
    std::stable_sort(containers.begin(), containers.end(), [&](const Container& a, const Container& b) {
      if (distribution == "any") return false;
      if (distribution == "pack") return a.used > b.used;
      if (a.socket_used != b.socket_used) return a.socket_used < b.socket_used;
      return a.used != b.used ? a.used < b.used : a.open.size() > b.open.size();
    });
    const auto n = static_cast<std::size_t>(affinity_.units_per_task / affinity_.groups_per_task);
    std::vector<std::size_t> group;
    for (const Container& c : containers)
      if (c.open.size() >= n) return {c.open.begin(), c.open.begin() + static_cast<std::ptrdiff_t>(n)};
    if (!affinity_.same.empty()) return {};
    for (const Container& c : containers)
      for (const std::size_t u : c.open)
        if (group.size() < n) group.push_back(u);
    return group.size() == n ? group : std::vector<std::size_t>{};
  }

  const Affinity& affinity_;
  std::vector<CpuUnit> units_, at_start_;
  std::set<std::size_t> job_;  ///< units that the job's tasks hold
};

}  // namespace

bool is_affinity(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\"");
  if (first == std::string::npos) return false;
  return text.compare(first, 9, "affinity[") == 0 || text.compare(first, 13, "span[hosts=1]") == 0;
}

std::string affinity_of(const std::string& where, const std::string& requirement) {
  std::string affinity;
  for (std::size_t at = requirement.find("affinity["); at != std::string::npos;
       at = requirement.find("affinity[", at + 1)) {
    if (at > 0 && (std::isalnum(static_cast<unsigned char>(requirement[at - 1])) != 0 || requirement[at - 1] == '_'))
      continue;  // the end of another word
    const std::size_t end = requirement.find(']', at);
    if (end == std::string::npos)
      throw UsageError(where, "found " + quote(requirement.substr(at)) + ", which lacks a ]", kExample);
    const std::string section = requirement.substr(at, end - at + 1);
    if (!affinity.empty() && section != affinity)
      throw UsageError(where, "found " + quote(affinity) + " and " + quote(section),
                       "the same for all tasks; select one with --bind or MESHMARK_BIND");
    affinity = section;
  }
  return affinity;
}

Affinity parse_affinity(const std::string& text, int tasks) {
  if (tasks < 1 || tasks > kMax) throw UsageError("tasks", "found " + std::to_string(tasks), "1 to 65536");
  std::string bare = text;
  std::erase_if(bare, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0 || c == '"'; });
  if (bare.starts_with("span[hosts=1]")) bare = bare.substr(13);  // implied: the layout has one host
  if (!bare.starts_with("affinity[") || bare.back() != ']') Parser::refuse(text.substr(0, 80));
  Affinity affinity;
  affinity.request.policy = "any";
  affinity.cpubind.clear();
  const std::vector<std::string> sections = cut(bare.substr(9, bare.size() - 10), ':');

  std::string unit = sections[0];
  if (const std::size_t star = unit.rfind('*');
      star != std::string::npos && unit.find(')', star) == std::string::npos) {
    affinity.groups_per_task = Parser::number(unit.substr(star + 1));
    unit.resize(star);
  }
  const std::size_t bracket = unit.find('(');
  affinity.unit = Parser::level(unit.substr(0, bracket), true);
  int units_per_group = 1;
  if (bracket != std::string::npos) {
    const std::vector<std::string> options = cut(Parser::inside(unit.substr(bracket)), ',');
    units_per_group = Parser::number(options[0]);
    for (std::size_t i = 1; i < options.size(); ++i) {
      const std::string& option = options[i];
      if (option.starts_with("same=") && affinity.same.empty()) {
        affinity.same = Parser::level(option.substr(5), false);
        if (width(affinity.same) <= width(affinity.unit)) Parser::refuse(option, "a level wider than " + affinity.unit);
      } else if (option.starts_with("exclusive=") && affinity.exclusive_level.empty()) {
        const std::vector<std::string> items = cut(Parser::inside(option.substr(10)), ',');
        affinity.exclusive_level = Parser::level(items[0], false);
        if (width(affinity.exclusive_level) < width(affinity.unit))
          Parser::refuse(option, "no level narrower than " + affinity.unit);
        affinity.exclusive_scope = items.size() > 1 ? items[1] : "injob";
        if (items.size() > 2) Parser::refuse(option);
        for (const std::string& scope : split(affinity.exclusive_scope, '|'))
          if (scope != "intask" && scope != "injob" && scope != "alljobs")
            Parser::refuse(scope, "intask, injob, alljobs");
      } else {
        Parser::refuse(option, "same=LEVEL, exclusive=(LEVEL,SCOPE)");
      }
    }
  }
  std::set<std::string> names;
  for (std::size_t i = 1; i < sections.size(); ++i) {
    const std::string& section = sections[i];
    const std::size_t equals = section.find('=');
    const std::string name = section.substr(0, equals),
                      value = equals == std::string::npos ? "" : section.substr(equals + 1);
    if (!names.insert(name).second) Parser::refuse(section, name + " once");
    if (name == "cpubind") {
      affinity.cpubind = Parser::level(value, true);
    } else if (name == "membind") {
      if (value != "localonly" && value != "localprefer") Parser::refuse(section, "localonly, localprefer");
      affinity.memory.policy = value == "localonly" ? "bind" : "preferred";
    } else if (name == "distribute") {
      affinity.request.policy = value.substr(0, value.find('('));
      if (value.starts_with("pack(")) {
        const std::string limit = Parser::inside(value.substr(4));
        if (!limit.ends_with("=1")) Parser::refuse(section, "pack(socket=1), pack(numa=1)");
        affinity.pack_level = Parser::level(limit.substr(0, limit.size() - 2), false);
        affinity.request.one_package = affinity.pack_level == "socket";
      } else if (value != "pack" && value != "balance" && value != "any") {
        Parser::refuse(section, "pack, pack(socket=1), balance, any");
      }
    } else {
      Parser::refuse(section, "cpubind, membind, distribute");
    }
  }
  if (affinity.cpubind.empty()) affinity.cpubind = affinity.unit;
  if (units_per_group > kMax / affinity.groups_per_task || units_per_group * affinity.groups_per_task > kMax / tasks)
    throw UsageError("affinity", "requests too many units", "at most 65536 for all tasks");
  affinity.units_per_task = units_per_group * affinity.groups_per_task;
  affinity.request.slots = affinity.units_per_task * tasks;
  affinity.request.kind = affinity.unit == "thread" ? SlotKind::threads
                          : affinity.unit == "core" ? SlotKind::cores
                                                    : SlotKind::procs;
  affinity.request.exclude = affinity.exclusive_scope.find("alljobs") != std::string::npos;
  return affinity;
}

Placement place(const Machine& machine, const Affinity& affinity, const Occupancy& taken) {
  std::vector<std::vector<std::size_t>> tasks;
  const auto attempt = [&](const Occupancy& occupied) {
    TaskPlacer placer(machine, affinity, occupied);
    // Packing: try to fit the whole job in one NUMA node, then in one socket, then anywhere.
    std::vector<std::string> levels{""};
    if (!affinity.pack_level.empty())
      levels = {affinity.pack_level};
    else if (affinity.request.policy == "pack")
      levels = placer.containers("numa").size() < placer.containers("socket").size()
                   ? std::vector<std::string>{"socket", "numa", ""}
                   : std::vector<std::string>{"numa", "socket", ""};
    for (const std::string& level : levels)
      for (const int container : level.empty() ? std::set<int>{0} : placer.containers(level))
        if (tasks.empty()) tasks = placer.attempt(level, container);
    return placer;
  };
  TaskPlacer placer = attempt(taken);
  const std::string description = std::to_string(affinity.request.slots / affinity.units_per_task) + " tasks of " +
                                  std::to_string(affinity.units_per_task) + " " + affinity.unit + "s";
  if (tasks.empty()) {
    attempt({});
    if (!tasks.empty())
      throw Busy("affinity: " + description + " would fit, but other jobs hold too much of this machine");
    throw UsageError("affinity", description + " do not fit",
                     std::to_string(placer.units().size()) + " " + affinity.unit +
                         "s of this machine, given `same` and `exclusive`");
  }
  Placement placement;
  const std::vector<int>& within = affinity.request.within.empty() ? machine.allowed : affinity.request.within;
  for (const auto& task : tasks) {
    std::set<int> containers, part;
    for (const std::size_t u : task) {
      containers.insert(level_of(placer.units()[u].at, affinity.cpubind));
      part.insert(placer.units()[u].cpus.begin(), placer.units()[u].cpus.end());
    }
    for (const Cpu& cpu : machine.cpus)
      if (width(affinity.cpubind) > width(affinity.unit) && containers.contains(level_of(cpu, affinity.cpubind)) &&
          std::find(within.begin(), within.end(), cpu.id) != within.end())
        part.insert(cpu.id);
    placement.layout.parts.emplace_back(part.begin(), part.end());
  }
  placement.why = "affinity: " + description + ", distributed by " + affinity.request.policy +
                  (width(affinity.cpubind) > width(affinity.unit) ? ", each bound to its " + affinity.cpubind : "");
  return placement;
}

}  // namespace mm::place

#include "watch/counters/pmu_components.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm::watch {
namespace {

/// Replaces the placeholders of a label.
std::string expand(std::string label, const std::string& device, std::int64_t package, std::size_t index) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"{device}", device},
                                   {"{package}", std::to_string(std::max<std::int64_t>(package, 0))},
                                   {"{index}", std::to_string(index)}})
    for (std::size_t at = label.find(key); at != std::string::npos; at = label.find(key, at + value.size()))
      label.replace(at, key.size(), value);
  return label;
}

/// Returns the first node of a package, as an index into `nodes`; -1 if it has none.
int first_node(const Host& host, const Board& board, std::int64_t package) {
  int first = -1;
  for (std::size_t i = 0; i < host.cpus.size(); ++i)
    if (board.component("cpu", i).value("package", std::int64_t{-1}) == package && host.node_of[i] >= 0 &&
        (first < 0 || host.node_of[i] < first))
      first = host.node_of[i];
  return first;
}

/// Returns the node at the other end of a link between sockets, from /sys/devices/uncore_upi_X/dieY, which contains
/// `upi_Z,die_W`; with two sockets, it is the node of the other one. -1 if it is unknown or the link is unconnected.
int other_end(const Host& host, const Board& board, const Pmu& pmu, std::int64_t package) {
  std::vector<std::int64_t> packages;  // dies are numbered in the order of packages
  for (std::size_t i = 0; i < host.cpus.size(); ++i)
    packages.push_back(board.component("cpu", i).value("package", std::int64_t{0}));
  std::sort(packages.begin(), packages.end());
  packages.erase(std::unique(packages.begin(), packages.end()), packages.end());
  const auto die = std::lower_bound(packages.begin(), packages.end(), package) - packages.begin();
  const std::string folder = host.root + "/sys/devices/uncore_upi_" + std::to_string(number_at_end(pmu.name)) + "/";
  const std::string text = first_line(folder + "die" + std::to_string(die));
  const std::size_t at = text.find("die_");
  if (at != std::string::npos) {
    const auto other_die = whole_number(std::string_view(text).substr(at + 4));
    if (other_die < 0 || static_cast<std::size_t>(other_die) >= packages.size() || other_die == die) return -1;
    return first_node(host, board, packages[static_cast<std::size_t>(other_die)]);
  }
  if (packages.size() == 2 && names_in(folder).empty()) return first_node(host, board, packages[die == 0 ? 1 : 0]);
  return -1;
}

}  // namespace

std::size_t PmuComponents::find_or_add(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                                       std::size_t place) {
  const json& cpu = board.component("cpu", place);
  const std::int64_t package = cpu.value("package", std::int64_t{0});
  const std::string group = definition.component + " " + definition.label + " " + std::to_string(package);
  // Definitions with the same label for one PMU on one CPU share a component.
  const std::string key = group + " " + pmu.name + " " + std::to_string(host.cpus[place]);
  if (const auto entry = known_.find(key); entry != known_.end()) return entry->second;
  json about{{"name", ""}, {"package", package}, {"pmu", pmu.name}};
  if (host.node_of[place] >= 0) about["node"] = host.node_of[place];
  if (definition.component == "link") {
    const int to = other_end(host, board, pmu, package);
    if (to < 0 || host.node_of[place] < 0) return known_[key] = kNone;
    about.erase("node");
    about["from"] = first_node(host, board, package);
    about["to"] = to;
    about["kind"] = "socket";
  }
  if (definition.component == "io") about["kind"] = "stack";
  std::string name = expand(definition.label, pmu.name, package, count_[group]++);
  while (!names_.insert(definition.component + name).second) name += "'";
  about["name"] = name;
  return known_[key] = board.add(definition.component, std::move(about));
}

}  // namespace mm::watch

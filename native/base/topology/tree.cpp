/// Machines from a tree of /proc and /sys.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>

#include "numbering.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::int64_t kMaxId = 1 << 16;

/// The CPUs that have a line in /proc/stat: what a tree without sysfs states.
std::vector<int> cpus_of_stat(const std::string& root) {
  std::vector<int> cpus;
  KernelFile stat(root + "/proc/stat");
  for (std::string_view text = stat.text(); !text.empty();) {
    std::string_view line = next_line(text);
    const std::string_view word = next_word(line);
    if (word.size() > 3 && word.substr(0, 3) == "cpu")
      if (const auto n = whole_number(word.substr(3)); n >= 0 && n < kMaxId) cpus.push_back(static_cast<int>(n));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<int> both(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

/// A core or package of a CPU: its first CPU, and what the operating system calls it.
struct Part {
  int first;
  std::int64_t id;
};

/// The core or package of each CPU. What one CPU states is not read again of its siblings: each file costs a large
/// machine's start.
class Parts {
 public:
  Parts(std::string folder, const char* id, std::vector<const char*> lists)
      : folder_(std::move(folder)), id_(id), lists_(std::move(lists)) {}

  const Part& of(int cpu, const std::vector<int>& online) {
    if (const auto at = parts_.find(cpu); at != parts_.end()) return at->second;
    const std::string at = folder_ + "cpu" + std::to_string(cpu) + "/topology/";
    std::string siblings;
    for (auto list = lists_.begin(); siblings.empty() && list != lists_.end(); ++list)
      siblings = first_line(at + *list);
    const Part part{cpu, std::max<std::int64_t>(number_in(at + id_, -1), -1)};
    for (const int sibling : both(ids_of(siblings), online)) parts_.emplace(sibling, part);
    return parts_.insert_or_assign(cpu, part).first->second;
  }

 private:
  std::string folder_, id_;
  std::vector<const char*> lists_;  // the older name last
  std::map<int, Part> parts_;
};

struct Found {
  int id;
  Part core, package;
};

void read_cpus(const std::string& root, Machine& machine) {
  const std::string folder = root + "/sys/devices/system/cpu/";
  std::vector<int> present = ids_of(first_line(folder + "present")), online = ids_of(first_line(folder + "online"));
  if (present.empty()) present = online;
  if (present.empty()) present = cpus_of_stat(root);
  online = both(present, online);
  if (online.empty()) online = present;
  std::set_difference(present.begin(), present.end(), online.begin(), online.end(),
                      std::back_inserter(machine.offline));

  std::vector<Found> found;
  Parts cores(folder, "core_id", {"core_cpus_list", "thread_siblings_list"});
  Parts packages(folder, "physical_package_id", {"package_cpus_list", "core_siblings_list"});
  std::map<std::int64_t, int> first_of;  // by the number of a package; CPUs that state none are in one
  for (const int cpu : online) {
    found.push_back({cpu, cores.of(cpu, online), packages.of(cpu, online)});
    Part& package = found.back().package;
    package.first = first_of.emplace(package.id, package.first).first->second;
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tuple{a.package.first, a.core.first, a.id} < std::tuple{b.package.first, b.core.first, b.id};
  });
  Numbering numbering;
  for (const Found& f : found) {
    const auto package = static_cast<std::uint64_t>(f.package.first);
    Cpu cpu = numbering.add(f.id, {static_cast<std::uint64_t>(f.core.first), package, package});
    cpu.core_id = static_cast<int>(f.core.id);
    cpu.package_id = static_cast<int>(f.package.id);
    machine.cpus.push_back(cpu);
  }
  machine.allowed = online;
}

/// What `MemTotal` of a machine's or a node's meminfo states, B.
std::optional<std::uint64_t> total_memory(const std::string& file) {
  KernelFile meminfo(file);
  for (std::string_view text = meminfo.text(); !text.empty();) {
    std::string_view line = next_line(text);
    while (!line.empty())
      if (next_word(line) == "MemTotal:") {
        const auto kib = whole_number(next_word(line));
        return kib < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(kib) << 10);
      }
  }
  return std::nullopt;
}

std::vector<double> distances(const std::string& file) {
  std::vector<double> found;
  const std::string text = first_line(file);
  for (std::string_view line = text; !line.empty();)
    if (const auto d = whole_number(next_word(line)); d >= 0) found.push_back(static_cast<double>(d));
  return found;
}

}  // namespace

Machine machine_of_tree(const std::string& root) {
  Machine machine;
  machine.origin = "tree";
  read_cpus(root, machine);
  std::vector<int> present = machine.offline;
  for (const int cpu : machine.allowed) present.push_back(cpu);
  std::sort(present.begin(), present.end());

  const std::string folder = root + "/sys/devices/system/node/";
  std::vector<int> nodes;
  for (const std::string& name : names_in(folder))
    if (name.substr(0, 4) == "node")
      if (const auto n = whole_number(std::string_view(name).substr(4)); n >= 0 && n < kMaxId)
        nodes.push_back(static_cast<int>(n));
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::optional<std::vector<std::vector<double>>> distance(std::in_place);
  for (const int n : nodes) {
    const std::string at = folder + "node" + std::to_string(n) + "/";
    machine.nodes.push_back({n, total_memory(at + "meminfo"), both(ids_of(first_line(at + "cpulist")), present)});
    distance->push_back(distances(at + "distance"));
    if (distance->back().size() != nodes.size()) distance->clear();
  }
  if (nodes.empty()) machine.nodes.push_back({0, total_memory(root + "/proc/meminfo"), present});  // no NUMA support
  if (nodes.empty() || distance->size() != nodes.size()) distance.reset();
  finish(machine, std::move(distance));
  return machine;
}

}  // namespace mm

/// Machines from a tree of /proc and /sys: CPUs, cores, packages, nodes and distances.
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>

#include "base/topology/numbering.hpp"
#include "sys/files.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::int64_t kMaxId = 1 << 16;
constexpr const char* kCpuFolder = "/sys/devices/system/cpu/";

/// Returns the CPUs that have a line in /proc/stat, which a tree without sysfs has, too.
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

/// Returns the CPUs on which this process may run; empty if they cannot be read.
std::vector<int> affinity_of_this_process() {
  for (int count = 1024; count <= kMaxId * 2; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(count));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(count));
    const bool is_read = sched_getaffinity(0, bytes, set) == 0;
    std::vector<int> cpus;
    for (int cpu = 0; is_read && cpu < count && cpu < kMaxId; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (is_read) return cpus;
  }
  return {};
}

/// Returns the CPUs on which the recorded process, or this process, may run; empty if the tree does not state them.
std::vector<int> affinity(const std::string& root) {
  if (root.empty()) return affinity_of_this_process();
  const std::string status = read_text(root + "/proc/self/status");
  if (auto ids = parse_id_list(value_of(status, "Cpus_allowed_list:"))) return *std::move(ids);
  return parse_id_mask(value_of(status, "Cpus_allowed:")).value_or(std::vector<int>{});
}

/// The CPUs of a tree, according to the files about each CPU.
class CpuFiles {
 public:
  explicit CpuFiles(const std::string& root) : root_(root), folder_(root + kCpuFolder) {
    numbered_ = numbered_names(folder_, "cpu", kMaxId);
    known_ = all_ids(numbered_, ids_in(folder_, {{"present", ""}}).value_or(std::vector<int>{}));
    const auto listed_cpus = ids_in(folder_, {{"online", ""}});
    if (known_.empty() && listed_cpus) known_ = *listed_cpus;
    if (known_.empty()) known_ = cpus_of_stat(root);
    if (listed_cpus) online_ = common_ids(known_, *listed_cpus);
    if (online_.empty())
      for (const int cpu : known_)
        if (!is_switched_off(cpu)) online_.push_back(cpu);
  }

  const std::vector<int>& known() const { return known_; }
  const std::vector<int>& online() const { return online_; }

  /// Adds the CPUs that are online although `online` does not list them, as in containers with LXCFS, which replaces
  /// that file. Returns the added CPUs on which the process may run.
  std::vector<int> add_unlisted(const std::vector<int>& allowed, bool live) {
    const std::vector<int> candidates = ids_without(common_ids(allowed, known_), online_);
    if (candidates.empty()) return {};
    const std::vector<int> running = running_cpus();
    std::vector<int> unlisted = live ? candidates : common_ids(candidates, running);
    if (!unlisted.empty()) online_ = all_ids(all_ids(online_, unlisted), running);
    return unlisted;
  }

 private:
  std::string at(int cpu) const { return folder_ + "cpu" + std::to_string(cpu) + "/"; }
  bool is_switched_off(int cpu) const { return number_in(at(cpu) + "online", 1) == 0; }
  /// Returns the CPUs that are online according to all other files: when a CPU goes offline, the Linux kernel removes
  /// its folder `topology`, and its number from the set of its node.
  std::vector<int> running_cpus() const {
    const std::string nodes = root_ + "/sys/devices/system/node/";
    std::vector<int> in_nodes;
    for (const int node : numbered_names(nodes, "node", kMaxId))
      if (const auto cpus = ids_in(nodes + "node" + std::to_string(node) + "/", {kNodeCpus}))
        in_nodes = all_ids(in_nodes, *cpus);
    std::vector<int> running;
    for (const int cpu : in_nodes.empty() ? known_ : common_ids(known_, in_nodes))
      if (!is_switched_off(cpu) && !names_in(at(cpu) + "topology").empty()) running.push_back(cpu);
    return running;
  }

  std::string root_, folder_;
  std::vector<int> numbered_, known_, online_;
};

/// A core or package of a CPU: its first CPU, its number in the operating system, and whether the tree states it.
struct CpuPart {
  int first;
  std::int64_t id;
  bool is_stated;
};

/// The core or package of each CPU. The files of one CPU serve its siblings, too, because each file that is read delays
/// the start on a large machine. A set that overlaps an earlier set is ignored.
class CpuParts {
 public:
  CpuParts(std::string folder, const char* id, SetFiles newer, SetFiles older)
      : folder_(std::move(folder)), id_(id), newer_(newer), older_(older) {}

  const CpuPart& of(int cpu, const std::vector<int>& online) {
    if (const auto at = parts_.find(cpu); at != parts_.end()) return at->second;
    const std::string at = folder_ + "cpu" + std::to_string(cpu) + "/topology/";
    const auto siblings = ids_in(at, {newer_, older_}, [&](const std::vector<int>& ids) {
      return std::binary_search(ids.begin(), ids.end(), cpu) &&
             std::none_of(ids.begin(), ids.end(), [&](int id) { return parts_.contains(id); });
    });
    const CpuPart part{cpu, std::max<std::int64_t>(number_in(at + id_, -1), -1), siblings.has_value()};
    if (siblings)
      for (const int sibling : common_ids(*siblings, online)) parts_.emplace(sibling, part);
    return parts_.insert_or_assign(cpu, part).first->second;
  }

 private:
  std::string folder_, id_;
  SetFiles newer_, older_;
  std::map<int, CpuPart> parts_;
};

/// Returns whether siblings with different core numbers are different cores: compute units of AMD's families 21 and 22
/// appear as siblings, and have a core per thread. Siblings in a virtual machine need not be compute units.
bool has_compute_units(const std::string& root) {
  const std::string all = beginning_of(root + "/proc/cpuinfo");
  bool is_amd = false, is_family = false;
  for (std::string_view text = all; !text.empty();) {
    const std::string_view line = next_line(text);
    if (line.empty()) break;  // the end of the first CPU
    const std::size_t colon = line.find(':');
    const std::string_view value = colon == std::string_view::npos ? "" : line.substr(line.find_last_of(" \t:") + 1);
    if (line.starts_with("vendor_id")) is_amd = value == "AuthenticAMD";
    if (line.starts_with("cpu family")) is_family = value == "21" || value == "22";
    if (line.starts_with("flags") && line.find(" hypervisor") != std::string_view::npos) return false;
  }
  return is_amd && is_family;
}

struct PlacedCpu {
  int id;
  CpuPart core, package;
};

std::vector<PlacedCpu> place_cpus(const std::string& root, const std::vector<int>& online) {
  const std::string folder = root + kCpuFolder;
  CpuParts cores(folder, "core_id", {"core_cpus_list", "core_cpus"}, {"thread_siblings_list", "thread_siblings"});
  CpuParts packages(folder, "physical_package_id", {"package_cpus_list", "package_cpus"},
                    {"core_siblings_list", "core_siblings"});
  const bool compute_units = has_compute_units(root);
  std::map<std::int64_t, int> first_by_id;  // first CPU by package id (-1: unknown), if no file lists the CPUs
  std::vector<PlacedCpu> placed_cpus;
  for (const int cpu : online) {
    placed_cpus.push_back({cpu, cores.of(cpu, online), packages.of(cpu, online)});
    auto& [id, core, package] = placed_cpus.back();
    if (!package.is_stated) {
      package.first = first_by_id.emplace(package.id, package.first).first->second;
      package.is_stated = package.id >= 0;
    }
    if (compute_units && core.first != cpu)
      if (const auto stated_id = number_in(folder + "cpu" + std::to_string(cpu) + "/topology/core_id", -1);
          stated_id != core.id)
        core = {cpu, stated_id, true};
  }
  return placed_cpus;
}

void read_cpus(const std::string& root, Machine& machine) {
  CpuFiles files(root);
  const std::vector<int> allowed = affinity(root);
  if (const auto unlisted = files.add_unlisted(allowed, root.empty()); !unlisted.empty())
    machine.doubts.push_back("the process may use CPUs " + id_list(unlisted) +
                             ", which the kernel's list of online CPUs lacks: they are used, since a container's file "
                             "system such as LXCFS may replace that list");
  const std::vector<int>& online = files.online();
  machine.offline = ids_without(files.known(), online);

  std::vector<PlacedCpu> placed_cpus = place_cpus(root, online);
  std::sort(placed_cpus.begin(), placed_cpus.end(), [](const PlacedCpu& a, const PlacedCpu& b) {
    return std::tuple{a.package.first, a.core.first, a.id} < std::tuple{b.package.first, b.core.first, b.id};
  });
  Numbering numbering;
  for (const PlacedCpu& p : placed_cpus) {
    const auto package = static_cast<std::uint64_t>(p.package.first);
    Cpu cpu = numbering.add(p.id, {static_cast<std::uint64_t>(p.core.first), package, package});
    cpu.core_id = static_cast<int>(p.core.id);
    cpu.package_id = static_cast<int>(p.package.id);
    cpu.has_core = p.core.is_stated;
    cpu.has_package = p.package.is_stated;
    cpu.has_l3 = false;
    machine.cpus.push_back(cpu);
  }
  machine.allowed = common_ids(online, allowed);
  if (machine.allowed.empty()) machine.allowed = online;
}

/// Returns `MemTotal` of a machine's or a node's meminfo, in bytes; nothing if the file does not state it.
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
  std::vector<double> row;
  const std::string text = first_line(file);
  for (std::string_view line = text; !line.empty();) {
    const std::string_view word = next_word(line);
    if (const auto distance = whole_number(word); distance >= 0)
      row.push_back(static_cast<double>(distance));
    else if (!word.empty())
      return {};
  }
  return row;
}

void read_nodes(const std::string& root, Machine& machine) {
  std::vector<int> known_cpus = machine.offline;
  for (const Cpu& cpu : machine.cpus) known_cpus.push_back(cpu.id);
  std::sort(known_cpus.begin(), known_cpus.end());
  const std::string folder = root + "/sys/devices/system/node/";
  const std::vector<int> nodes = numbered_names(folder, "node", kMaxId);
  machine.kernel_bytes = total_memory(root + "/proc/meminfo");
  std::vector<std::vector<double>> matrix;
  bool has_distances = false;
  for (const int n : nodes) {
    const std::string at = folder + "node" + std::to_string(n) + "/";
    const auto listed_cpus = ids_in(at, {kNodeCpus});
    machine.nodes.push_back({n,
                             total_memory(at + "meminfo"),
                             common_ids(listed_cpus ? *listed_cpus : numbered_names(at, "cpu", kMaxId), known_cpus),
                             {}});
    matrix.push_back(distances(at + "distance"));
    has_distances |= !matrix.back().empty();
  }
  if (nodes.empty()) {
    machine.nodes.push_back({0, machine.kernel_bytes, known_cpus, {}});
    machine.doubts.emplace_back("the kernel reports no NUMA nodes: all CPUs and memory are treated as node 0");
  }
  const bool is_complete = !nodes.empty() && std::all_of(matrix.begin(), matrix.end(),
                                                         [&](auto& row) { return row.size() == nodes.size(); });
  if (has_distances && !is_complete) {
    const std::string count = std::to_string(nodes.size());
    machine.doubts.push_back("node distances are not a " + count + " x " + count + " matrix: ignored");
  }
  finish(machine, is_complete ? std::optional(std::move(matrix)) : std::nullopt);
}

}  // namespace

Machine machine_of_tree(const std::string& root) {
  Machine machine;
  machine.origin = "tree";
  read_cpus(root, machine);
  read_nodes(root, machine);
  return machine;
}

}  // namespace mm

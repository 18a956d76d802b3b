#include "place/binding/bind.hpp"

#include <gnu/libc-version.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/resources/team.hpp"
#include "place/command.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

// The headers of some Linux kernels lack this mode; its number is part of the kernel's interface.
#ifndef MPOL_PREFERRED_MANY
#define MPOL_PREFERRED_MANY 5
#endif

namespace mm::place {
namespace {

constexpr int kWeightedInterleave = 6;  // MPOL_WEIGHTED_INTERLEAVE, Linux 6.9
constexpr const char* kWeights = "/sys/kernel/mm/mempolicy/weighted_interleave";
constexpr int kMaxCpus = 1 << 16;
constexpr unsigned kMaxNodes = 1024;  // the maximum that a Linux kernel can be built for
constexpr unsigned kWordBits = 8 * sizeof(unsigned long);

/// Returns false, with errno, if the Linux kernel rejects the text.
bool put(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return (std::fclose(file) == 0) && written;  // sysfs and cgroups may report errors only on flush
}

bool contains_word(const std::string& line, const std::string& word) {
  std::istringstream in(line);
  for (std::string w; in >> w;)
    if (w == word) return true;
  return false;
}

// ---------------------------------------------------------------- cpusets

constexpr const char* kSoft = "--soft binds by affinity, which requires no permission";

/// The mount point of a hierarchy, and the part of it that is visible there.
struct Mount {
  std::string root, point;
};

Mount mount_of_cpusets(bool v1) {
  for (const std::string& line : split(read_text("/proc/self/mountinfo"), '\n')) {
    // … root mountpoint options optional… - type source superoptions
    std::istringstream words(line);
    std::string skip, root, point, type, source, options;
    words >> skip >> skip >> skip >> root >> point;
    while (words >> skip && skip != "-") {}
    words >> type >> source >> options;
    const auto superoptions = split(options, ',');
    if (v1 ? type == "cgroup" && std::find(superoptions.begin(), superoptions.end(), "cpuset") != superoptions.end()
           : type == "cgroup2")
      return {root, point};
  }
  return {};
}

CpusetHome home() {
  if (auto position = cpuset_home()) return *position;
  throw Absent("no hard binding: no cgroup hierarchy with cpusets is mounted", kSoft);
}

[[noreturn]] void refused(const std::string& what) {
  throw Absent("no hard binding: " + what + ": " + errno_text(),
               std::string(kSoft) + "; hard binding requires root, or a delegated cgroup");
}

/// Enables the controller on the path from the root to `folder`, and for its children.
void enable_cpusets(const CpusetHome& at) {
  for (std::size_t slash = at.mount.size(); slash != std::string::npos;) {
    const std::string folder = at.folder.substr(0, slash);
    if (!contains_word(first_line(folder + "/cgroup.subtree_control"), "cpuset") &&
        !put(folder + "/cgroup.subtree_control", "+cpuset"))
      refused("cannot enable the cpuset controller in " + folder);
    if (slash == at.folder.size()) break;
    slash = std::min(at.folder.find('/', slash + 1), at.folder.size());
  }
}

void fill_cpuset(const CpusetHome& at, const std::string& folder, const std::vector<int>& cpus,
                 const std::vector<int>& memory_nodes) {
  if (at.version == 2) {
    enable_cpusets(at);
    // A cgroup with processes may only have children that contain threads of its domain ("no internal processes"). That
    // is intended: memory and CPU time stay accounted where they were.
    const std::string type = first_line(folder + "/cgroup.type");
    if (type != "domain" && type != "threaded" && !put(folder + "/cgroup.type", "threaded"))
      refused("cannot turn " + folder + " into a threaded cgroup (it is " + quote(type) + ")");
  }
  if (!put(folder + "/cpuset.cpus", cpu_list(cpus))) refused("cannot assign CPUs " + cpu_list(cpus) + " to " + folder);
  std::string mems = cpu_list(memory_nodes);
  if (mems.empty() && at.version == 1) {  // a new cpuset of version 1 has no nodes; in version 2 it has the parent's
    mems = first_line(at.folder + "/cpuset.effective_mems");
    if (mems.empty()) mems = first_line(at.folder + "/cpuset.mems");
  }
  if (!mems.empty() && !put(folder + "/cpuset.mems", mems)) refused("cannot assign nodes " + mems + " to " + folder);
  if (!put(folder + "/cgroup.procs", std::to_string(getpid()))) refused("cannot enter " + folder);
}

// ---------------------------------------------------------------- memory

struct Mode {
  const char* name;
  int mode;
};
constexpr Mode kModes[] = {
    {"default", MPOL_DEFAULT},     {"local", MPOL_LOCAL},           {"bind", MPOL_BIND},
    {"preferred", MPOL_PREFERRED}, {"interleave", MPOL_INTERLEAVE}, {"weighted", kWeightedInterleave}};

constexpr const char* kPageSizes[] = {"default", "4KiB", "thp", "2MiB", "1GiB"};

/// Sets the Linux kernel's weights, which are global to the machine. Writes a weight only if it differs, and reports
/// the change.
void set_weights(const MemoryPolicy& memory) {
  for (std::size_t i = 0; i < memory.nodes.size() && i < memory.weights.size(); ++i) {
    const std::string file = std::string(kWeights) + "/node" + std::to_string(memory.nodes[i]);
    const std::string weight = std::to_string(memory.weights[i]), previous = first_line(file);
    if (previous == weight) continue;
    if (!put(file, weight))
      throw Absent("weighted interleave: the weight of node " + std::to_string(memory.nodes[i]) + " is " +
                       (previous.empty() ? "unknown" : previous) + " and cannot be changed: " + errno_text(),
                   "as root: echo " + weight + " > " + file);
    std::fprintf(stderr, "meshmark: changed the weight of node %d from %s to %s, for the whole machine\n",
                 memory.nodes[i], previous.c_str(), weight.c_str());
  }
}

std::vector<int> with_memory(const Machine& machine) {
  std::vector<int> nodes;
  for (const Node& n : machine.nodes)
    if (n.bytes > 0) nodes.push_back(n.id);
  return nodes;
}

}  // namespace

std::vector<std::string> memory_policies() {
  std::vector<std::string> all;
  for (const Mode& m : kModes) all.emplace_back(m.name);
  return all;
}

std::vector<std::string> page_sizes() { return {std::begin(kPageSizes), std::end(kPageSizes)}; }

void set_affinity(const std::vector<int>& cpus) {
  std::vector<unsigned long> mask(kMaxCpus / kWordBits);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= kMaxCpus) throw Failure("cannot bind to CPU " + std::to_string(cpu));
    mask[static_cast<unsigned>(cpu) / kWordBits] |= 1UL << (static_cast<unsigned>(cpu) % kWordBits);
  }
  if (sched_setaffinity(0, 8 * mask.size(), reinterpret_cast<const cpu_set_t*>(mask.data())) != 0)
    throw Failure("cannot bind to CPUs " + cpu_list(cpus) + ": " + errno_text());
  if (const std::vector<int> actual_cpus = allowed_cpus(); actual_cpus != cpus)
    throw Failure("requested CPUs " + cpu_list(cpus) + ", got " + cpu_list(actual_cpus) +
                  ": the others are offline or outside this process's cgroup");
}

std::optional<CpusetHome> cpuset_home(pid_t process) {
  const std::string folder = "/proc/" + (process == 0 ? "self" : std::to_string(process));
  std::string v1_path, v2_path;
  for (const std::string& line : split(read_text(folder + "/cgroup"), '\n')) {
    const std::size_t colon = line.find(':'), path = line.find(':', colon + 1);
    if (path == std::string::npos) continue;
    const auto controllers = split(line.substr(colon + 1, path - colon - 1), ',');
    if (std::find(controllers.begin(), controllers.end(), "cpuset") != controllers.end())
      v1_path = line.substr(path + 1);
    if (line.starts_with("0::")) v2_path = line.substr(path + 1);
  }
  const bool v1 = !v1_path.empty();
  const std::string& path = v1 ? v1_path : v2_path;
  if (path.empty()) return std::nullopt;
  // Read once: the observer calls this repeatedly.
  static const Mount v1_mount = mount_of_cpusets(true), v2_mount = mount_of_cpusets(false);
  const Mount& mount = v1 ? v1_mount : v2_mount;
  if (mount.point.empty()) return std::nullopt;
  // In a container, the mount shows only a part of the tree, and the path may be relative to its root or to the host's.
  std::string subpath = path;
  if (mount.root != "/" && subpath.starts_with(mount.root)) subpath = subpath.substr(mount.root.size());
  if (subpath == "/") subpath.clear();
  return CpusetHome{mount.point + subpath, mount.point, path, v1 ? 1 : 2};
}

std::string cpuset_folder(const std::string& name) { return home().folder + "/" + name; }

std::string set_cpuset(const std::string& name, const std::vector<int>& cpus, const std::vector<int>& memory_nodes) {
  const CpusetHome at = home();
  const std::string folder = at.folder + "/" + name;
  const bool created = mkdir(folder.c_str(), 0755) == 0;
  if (!created && errno != EEXIST) refused("cannot make " + folder);  // an earlier rank of the launch created it
  try {
    fill_cpuset(at, folder, cpus, memory_nodes);
    set_affinity(cpus);  // also reads it back
  } catch (...) {
    if (created) {
      put(at.folder + "/cgroup.procs", std::to_string(getpid()));
      rmdir(folder.c_str());
    }
    throw;
  }
  return folder;
}

MemoryPolicy parse_memory(const std::string& text) {
  constexpr const char* kAllowed =
      "default, local, bind[=NODES], preferred[=NODES], interleave[=NODES], weighted=NODE:WEIGHT,…; NODES may be all";
  MemoryPolicy memory;
  const std::size_t equals = text.find('=');
  memory.policy = text.substr(0, equals);
  if (std::none_of(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return memory.policy == m.name; }))
    throw UsageError("memory", "found " + quote(text), kAllowed);
  const bool has_value = equals != std::string::npos;
  const std::string list = has_value ? text.substr(equals + 1) : "";
  if (memory.policy == "weighted") {
    std::set<int> distinct;
    for (const std::string& pair : split(list, ',')) {
      const std::size_t colon = pair.find(':');
      if (colon == std::string::npos) throw UsageError("memory", "found " + quote(text), kAllowed);
      const auto nodes = parse_cpu_list("memory", pair.substr(0, colon));
      const long long weight = parse_integer("memory", pair.substr(colon + 1));
      if (weight < 1 || weight > 255)
        throw UsageError("memory", "found weight " + std::to_string(weight),
                         "1 to 255");  // the range of the Linux kernel
      for (const int node : nodes) {
        if (!distinct.insert(node).second)
          throw UsageError("memory", "found node " + std::to_string(node) + " twice in " + quote(text), kAllowed);
        memory.nodes.push_back(node);
        memory.weights.push_back(static_cast<int>(weight));
      }
    }
  } else if (has_value) {
    if (memory.policy == "default" || memory.policy == "local")
      throw UsageError("memory", "found " + quote(text) + ": " + memory.policy + " accepts no nodes", kAllowed);
    memory.all_nodes = list == "all";
    if (!memory.all_nodes) memory.nodes = parse_cpu_list("memory", list);
  }
  return memory;
}

std::string memory_text(const MemoryPolicy& memory) {
  if (memory.all_nodes) return memory.policy + "=all";
  if (memory.nodes.empty()) return memory.policy;
  if (memory.policy != "weighted") return memory.policy + "=" + cpu_list(memory.nodes);
  std::string pairs;
  for (std::size_t i = 0; i < memory.nodes.size(); ++i)
    pairs += (i > 0 ? "," : "") + std::to_string(memory.nodes[i]) + ":" + std::to_string(memory.weights[i]);
  return "weighted=" + pairs;
}

std::vector<int> requested_nodes(const Machine& machine, const MemoryPolicy& memory, const std::vector<int>& cpus) {
  if (memory.policy == "default") return {};
  std::set<int> nodes(memory.nodes.begin(), memory.nodes.end());
  std::vector<int> possible = with_memory(machine);
  if (nodes.empty() && !memory.all_nodes)
    for (const int cpu : cpus)
      if (const int n = machine.cpu(cpu).node; std::binary_search(possible.begin(), possible.end(), n)) nodes.insert(n);
  if (nodes.empty()) return possible;
  return {nodes.begin(), nodes.end()};
}

void set_memory(const Machine& machine, const MemoryPolicy& memory, const std::vector<int>& cpus) {
  if (memory.policy == "default") return;
  int mode = MPOL_DEFAULT;
  for (const Mode& m : kModes)
    if (memory.policy == m.name) mode = m.mode;
  const std::vector<int> possible = with_memory(machine);
  std::vector<int> nodes;
  if (mode != MPOL_LOCAL) nodes = requested_nodes(machine, memory, cpus);
  for (const int n : nodes)
    if (!std::binary_search(possible.begin(), possible.end(), n))
      throw UsageError("memory", "found node " + std::to_string(n) + ", which has no memory", cpu_list(possible));
  if (mode == kWeightedInterleave) {
    if (access(kWeights, F_OK) != 0)
      throw Absent("no weighted interleave: this Linux kernel has no " + std::string(kWeights), "Linux 6.9 or later");
    set_weights(memory);
  }
  if (mode == MPOL_PREFERRED && nodes.size() > 1) mode = MPOL_PREFERRED_MANY;

  std::vector<unsigned long> mask(kMaxNodes / kWordBits), actual_mask(kMaxNodes / kWordBits);
  for (const int n : nodes) {
    if (n >= static_cast<int>(kMaxNodes)) throw UsageError("memory", "found node " + std::to_string(n), "0 to 1023");
    mask[static_cast<unsigned>(n) / kWordBits] |= 1UL << (static_cast<unsigned>(n) % kWordBits);
  }
  // The Linux kernel reads one bit less than specified.
  if (syscall(SYS_set_mempolicy, mode, nodes.empty() ? nullptr : mask.data(), kMaxNodes + 1) != 0) {
    const int reason = errno;
    if (reason == ENOSYS && machine.nodes.size() <= 1 && mode != kWeightedInterleave)
      return;  // without NUMA in the Linux kernel, all pages go to the only node
    if (reason == EINVAL && (mode == MPOL_PREFERRED_MANY || mode == kWeightedInterleave))
      throw Absent("the Linux kernel does not support memory policy " + quote(memory.policy) + " with several nodes",
                   mode == MPOL_PREFERRED_MANY ? "Linux 5.15 or later, or one node" : "Linux 6.9 or later");
    throw Absent("the Linux kernel refused memory policy " + quote(memory.policy) + " on nodes " + cpu_list(nodes) +
                     ": " + std::strerror(reason),
                 "nodes that this process's cpuset allows (Mems_allowed_list in /proc/self/status)");
  }
  int actual_mode = 0;
  if (syscall(SYS_get_mempolicy, &actual_mode, actual_mask.data(), kMaxNodes + 1, nullptr, 0) != 0)
    throw Failure("cannot read back the memory policy: " + errno_text());
  // Before 5.14, the Linux kernel reports `local` as preferred without nodes.
  const bool local = mode == MPOL_LOCAL && (actual_mode == MPOL_LOCAL || actual_mode == MPOL_PREFERRED);
  if ((actual_mode != mode && !local) || (mode != MPOL_LOCAL && actual_mask != mask))
    throw Failure("requested memory policy " + quote(memory.policy) + " on nodes " + cpu_list(nodes) +
                  ", but another one is in effect: this process's cpuset allows nodes " +
                  value_of(read_text("/proc/self/status"), "Mems_allowed_list:"));
}

void set_pages(const std::string& pages) {
  if (pages == "default") return;
  constexpr const char* kThp = "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto tunable = [&](const std::string& value) {
    int major = 0, minor = 0;
    std::sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor);
    if (major < 2 || (major == 2 && minor < 35))
      throw Absent("pages " + pages + ": glibc " + gnu_get_libc_version() + " does not support them in malloc",
                   "glibc 2.35 or later, or a program that maps them itself");
    std::string all;
    if (const char* previous = std::getenv("GLIBC_TUNABLES"); previous != nullptr)
      for (const std::string& setting : split(previous, ':'))
        if (!setting.empty() && setting.rfind("glibc.malloc.hugetlb=", 0) != 0) all += setting + ":";
    setenv("GLIBC_TUNABLES", (all + "glibc.malloc.hugetlb=" + value).c_str(), 1);
  };
  if (pages == "4KiB") {
    if (access(kThp, F_OK) == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
      throw Absent("pages 4KiB: cannot disable huge pages: " + errno_text(), "Linux 3.15 or later");
    tunable("0");
  } else if (pages == "thp") {
    const std::string modes = first_line(kThp);
    if (modes.empty() || modes.find("[never]") != std::string::npos)
      throw Absent(modes.empty() ? "pages thp: this Linux kernel has no transparent huge pages"
                                 : "pages thp: transparent huge pages are disabled",
                   std::string("as root: echo madvise > ") + kThp);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    tunable("1");
  } else if (pages == "2MiB" || pages == "1GiB") {
    const std::size_t bytes = parse_size("pages", pages);
    const std::string pool = "/sys/kernel/mm/hugepages/hugepages-" + std::to_string(bytes >> 10) + "kB";
    const std::string free = first_line(pool + "/free_hugepages"),
                      overcommit = first_line(pool + "/nr_overcommit_hugepages");
    if ((free.empty() || free == "0") && (overcommit.empty() || overcommit == "0"))
      throw Absent("no explicit huge pages of " + pages + " in the pool",
                   "as root: echo N > " + pool + "/nr_hugepages");
    tunable(std::to_string(bytes));
  } else {
    throw UsageError("pages", "found " + quote(pages), joined(page_sizes()));
  }
}

std::vector<int> relative(const std::vector<int>& cpus, const std::vector<int>& allowed) {
  std::vector<int> positions;
  for (const int cpu : cpus) {
    const auto at = std::lower_bound(allowed.begin(), allowed.end(), cpu);
    if (at == allowed.end() || *at != cpu)
      throw UsageError("cpus", "found CPU " + std::to_string(cpu), cpu_list(allowed));
    positions.push_back(static_cast<int>(at - allowed.begin()));
  }
  return positions;
}

}  // namespace mm::place

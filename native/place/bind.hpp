#pragma once
/// Applying a placement to this process before it becomes the command: affinity or cpuset, memory policy, page size.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "types.hpp"

namespace mm::place {

void set_affinity(const std::vector<int>& cpus);  ///< and reads it back; Failure where the kernel gave another one
/// Where a process is in the hierarchy that governs CPUs: v1 where the controller is mounted there, else the unified
/// one.
struct CpusetHome {
  std::string folder;  ///< of its cgroup
  std::string mount;   ///< of the hierarchy
  std::string path;    ///< of its cgroup, as /proc/PID/cgroup tells it
  int version = 0;
};
/// Of this process (0) or another; none where no such hierarchy is mounted, or the process has ended.
std::optional<CpusetHome> cpuset_home(pid_t process = 0);
/// The folder that `set_cpuset` will make, known before so that it can be journalled. Absent where there are no
/// cpusets.
std::string cpuset_folder(const std::string& name);
/// A cpuset of its own (cgroup v2, else v1), with this process in it: the command cannot undo it. Returns the folder.
/// Absent, with the reason and the remedy, where that is not permitted.
std::string set_cpuset(const std::string& name, const std::vector<int>& cpus, const std::vector<int>& memory_nodes);
/// The nodes that a policy means: those named, else those of `cpus` that have memory, else all that have; none for
/// `default`.
std::vector<int> nodes_meant(const Machine& machine, const Memory& memory, const std::vector<int>& cpus);
/// Memory policy of this process and its children (set_mempolicy), read back. Weighted interleave: Linux 6.9's sysfs.
/// Absent where the kernel has no such policy; UsageError where a node has no memory.
void set_memory(const Machine& machine, const Memory& memory, const std::vector<int>& cpus);
std::vector<std::string> memory_policies();    ///< that --memory takes
std::vector<std::string> page_sizes();         ///< that --pages takes
Memory parse_memory(const std::string& text);  ///< `bind`, `bind=0-1`, `preferred=1`, `interleave`, `weighted=0:3,1:1`
/// Page size of this process and its children: prctl for 4KiB, glibc's tunable for thp, 2MiB, 1GiB (by `environment`).
/// Absent where the pool is empty or the kernel has no THP.
void set_pages(const std::string& pages);
/// What the machine's cgroup leaves: the CPUs' numbers relative to it (position among the allowed ones).
std::vector<int> relative(const std::vector<int>& cpus, const std::vector<int>& allowed);

}  // namespace mm::place

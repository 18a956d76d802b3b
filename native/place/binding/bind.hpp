#pragma once
/// Applies a placement to this process before it executes the command: affinity or cpuset, memory policy, page size.
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place {

void set_affinity(const std::vector<int>& cpus);  ///< also reads the affinity back; throws Failure if it differs
/// Position of a process in the hierarchy that controls CPUs: version 1 if the controller is mounted there, otherwise
/// the unified one.
struct CpusetHome {
  std::string folder;  ///< folder of its cgroup
  std::string mount;   ///< mount point of the hierarchy
  std::string path;    ///< path of its cgroup, as in /proc/PID/cgroup
  int version = 0;
};
/// Returns the position of this process (0) or of another one; nullopt if no such hierarchy is mounted or the process
/// has ended.
std::optional<CpusetHome> cpuset_home(pid_t process = 0);
/// Returns the folder that `set_cpuset` will create, so that it can be journalled first. Throws Absent if there are no
/// cpusets.
std::string cpuset_folder(const std::string& name);
/// Creates a cpuset (cgroup v2, else v1) and moves this process into it; the command cannot leave it. Returns the
/// folder. Throws Absent, with the reason and the remedy, if that is not permitted.
std::string set_cpuset(const std::string& name, const std::vector<int>& cpus, const std::vector<int>& memory_nodes);
/// Returns the nodes of a policy: the listed nodes, or else the nodes of `cpus` that have memory, or else all nodes
/// that have memory. Returns an empty list for `default`.
std::vector<int> requested_nodes(const Machine& machine, const MemoryPolicy& memory, const std::vector<int>& cpus);
/// Sets the memory policy of this process and its children (set_mempolicy) and reads it back. Weighted interleave uses
/// the sysfs interface of Linux 6.9. Throws Absent if the Linux kernel lacks the policy, UsageError if a node has no
/// memory.
void set_memory(const Machine& machine, const MemoryPolicy& memory, const std::vector<int>& cpus);
std::vector<std::string> memory_policies();  ///< accepted by --memory
std::vector<std::string> page_sizes();       ///< accepted by --pages
MemoryPolicy parse_memory(
    const std::string& text);  ///< `bind`, `bind=0-1`, `preferred=1`, `interleave`, `weighted=0:3,1:1`
std::string memory_text(const MemoryPolicy& memory);  ///< the inverse, without pages: `bind=0-1`
/// Sets the page size of this process and its children: with prctl for 4KiB, and with glibc's tunable (environment
/// variable GLIBC_TUNABLES) for thp, 2MiB and 1GiB. Throws Absent if the pool is empty or the Linux kernel has no THP.
void set_pages(const std::string& pages);
/// Returns the numbers of the CPUs relative to the machine's cgroup: their positions among the allowed CPUs. Throws
/// UsageError if a CPU is not allowed.
std::vector<int> relative(const std::vector<int>& cpus, const std::vector<int>& allowed);

}  // namespace mm::place

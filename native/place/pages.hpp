#pragma once
/// Where the pages of a process are, by the kernel's word, and how full the nodes are.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mm::place {

/// A process's pages in memory. Those of files and shared libraries are told apart: whoever read the file first put
/// them where they are, so they prove nothing about this process.
struct PageCount {
  std::map<int, std::uint64_t> own;    ///< node → B: anonymous, shared memory, explicit huge pages
  std::map<int, std::uint64_t> files;  ///< node → B
  std::uint64_t huge_bytes = 0;        ///< of `own`, in explicit huge pages; count_pages adds transparent ones
  /// B of `own` by (node, policy of the mapping as the kernel writes it: default, bind:1 …).
  std::map<std::pair<int, std::string>, std::uint64_t> by_policy;
};

/// Of the text of /proc/PID/numa_maps. Counts there are of pages of the mapping's size (kernelpagesize_kB): a
/// transparent huge page is 512 of 4 KiB, an explicit one is 1 of 2 MiB.
PageCount parse_numa_maps(std::string_view text);
/// Of a living process. Absent where the kernel has no NUMA or the process is another user's; an empty count of a
/// process that has ended.
PageCount count_pages(pid_t process);

/// Is a mapping of this path (numa_maps, maps) a file's, rather than memory that only has a name?
bool is_file(std::string_view path);

struct NodeLevel {
  std::uint64_t bytes = 0, free = 0;  ///< B
  std::uint64_t reserve = 0;          ///< B that the allocator leaves: the high watermarks of its zones
  std::uint64_t foreign = 0;          ///< pages wanted here that found no room, since boot (numastat's numa_foreign)
};
/// All nodes by number; of this machine, or of a recorded tree.
std::map<int, NodeLevel> node_levels(const std::string& root = "");

}  // namespace mm::place

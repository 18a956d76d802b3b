#pragma once
/// The nodes of a process's pages according to the Linux kernel, and how full the nodes are.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mm::place {

/// A process's pages in memory. Pages of files and shared libraries are separate: the first reader of the file
/// determined their node, so they say nothing about this process.
struct PageCount {
  std::map<int, std::uint64_t> own;    ///< node → B: anonymous, shared memory, explicit huge pages
  std::map<int, std::uint64_t> files;  ///< node → B
  std::uint64_t huge_bytes = 0;        ///< part of `own` in explicit huge pages; count_pages adds transparent ones
  /// B of `own` by (node, policy of the mapping in the Linux kernel's format: default, bind:1 …).
  std::map<std::pair<int, std::string>, std::uint64_t> by_policy;
};

/// Parses /proc/PID/numa_maps. Its counts are in pages of the mapping's size (kernelpagesize_kB): a transparent huge
/// page counts as 512 of 4 KiB, an explicit one as 1 of 2 MiB.
PageCount parse_numa_maps(std::string_view text);
/// Counts the pages of a living process; the counts are empty if it has ended. Throws Absent without NUMA in the Linux
/// kernel, or if the process belongs to another user.
PageCount count_pages(pid_t process);

std::uint64_t transparent_huge_bytes(pid_t process);  ///< B in transparent huge pages, of memory and of shared memory
[[noreturn]] void refuse_pages_of_others(pid_t process);  ///< throws Absent: this user may not see these pages

/// Returns whether a mapping with this path (numa_maps, maps) belongs to a file, rather than to named anonymous memory.
bool is_file(std::string_view path);

/// Returns the bytes that a file of the Linux kernel states in KiB after a key; 0 if it has no such line.
std::uint64_t kib(std::string_view text, std::string_view key);

struct NodeLevel {
  std::uint64_t bytes = 0, free = 0;  ///< B
  std::uint64_t reserve = 0;          ///< B that the allocator keeps free: the high watermarks of its zones
  std::uint64_t foreign = 0;          ///< pages that found no room here, since boot (numa_foreign of numastat)
};
/// Returns the levels of all nodes by number, of this machine or of a recorded tree.
std::map<int, NodeLevel> node_levels(const std::string& root = "");

}  // namespace mm::place

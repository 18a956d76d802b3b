#pragma once
/// Names the parts of a machine in which CPUs and memory are, in words that mean the same on every machine: results of
/// different machines are comparable only if they were measured on the same kind of part.
#include <cstddef>
#include <string>
#include <vector>

#include "base/topology/topology.hpp"

namespace mm {

/// Returns the smallest part that contains all of `cpus`: "cpu", "core", "cache" (CPUs that share the last-level
/// cache), "node", "socket" or "machine"; "" if the source of the machine does not state it.
std::string smallest_part(const Machine& machine, const std::vector<int>& cpus);

/// Returns the largest part in which every core contains one of `cpus`: "machine", "socket", "node", "cache" or "core";
/// "" if they fill no part. On a machine of one socket and one node, all CPUs fill the "machine".
std::string filled_part(const Machine& machine, const std::vector<int>& cpus);

/// Returns where the memory of a node is, seen from `cpus`: "local" (on their node), "same socket", "other socket", or
/// "without CPUs" (a memory-only node); "" if `cpus` are on several nodes or the place is unknown.
std::string memory_place(const Machine& machine, const std::vector<int>& cpus, int node);

/// Returns the level of the memory hierarchy, "L1" to "memory", that serves `cpus` of this host if each CPU uses a
/// separate range of `bytes`, according to the cache sizes that the operating system reports. Returns "" between two
/// levels: for more than a cache holds, but less than twice as much.
std::string level_of(const Machine& machine, const std::vector<int>& cpus, std::size_t bytes);

}  // namespace mm

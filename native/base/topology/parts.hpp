#pragma once
/// Which part of a machine CPUs and memory are in, in words that mean the same on every machine: results of different
/// machines compare only if they measured the same kind of part.
#include <cstddef>
#include <string>
#include <vector>

#include "topology.hpp"

namespace mm {

/// The smallest part that contains all of `cpus`: "cpu", "core", "cache" (CPUs that share the last-level cache),
/// "node", "socket" or "machine"; "" if the source of the machine does not state it.
std::string smallest_part(const Machine& machine, const std::vector<int>& cpus);

/// The largest part of which every core has one of `cpus`: "machine", "socket", "node", "cache" or "core"; "" if they
/// fill none. On a machine of one socket and one node, all CPUs fill the "machine".
std::string filled_part(const Machine& machine, const std::vector<int>& cpus);

/// Where the memory of a node is, seen from `cpus`: "local" (their own node), "same socket", "other socket", or
/// "without CPUs" (a memory-only node); "" if they are on several nodes or it is unknown.
std::string memory_place(const Machine& machine, const std::vector<int>& cpus, int node);

/// The level of the memory hierarchy, "L1" to "memory", that serves `cpus` of this host if each uses `bytes` of its
/// own, by the sizes that the operating system claims. "" for what lies between two levels: more than a cache holds,
/// but not twice as much.
std::string level_of(const Machine& machine, const std::vector<int>& cpus, std::size_t bytes);

}  // namespace mm

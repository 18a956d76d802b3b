#pragma once
/// The few facts about where things are that instruments need, from hwloc.
#include <cstddef>
#include <string>
#include <vector>

namespace mm {

struct Cpu {
  int id, core, package, node;  ///< OS index of the CPU; logical indices of core and package; OS index of its NUMA node
  int smt;                      ///< 0 for the first CPU of its core, 1 for the second …
};

struct CacheLevel {
  int level;
  std::size_t bytes;  ///< of one instance, as the operating system claims
  int shared_by;      ///< CPUs
  std::size_t line_bytes;
};

struct Topology {
  std::vector<Cpu> cpus;                     ///< allowed ones, ascending id
  std::vector<int> memory_nodes;             ///< OS indices of nodes that have memory and that we may use
  std::vector<CacheLevel> caches;            ///< data or unified caches, L1 first, of the first CPU
  const Cpu& cpu(int id) const;              ///< UsageError where it is not allowed
  std::size_t cache_bytes(int level) const;  ///< 0 where unknown
  std::size_t last_level_bytes() const;
  std::size_t all_last_level_bytes = 0;  ///< claimed, of all instances together
};

const Topology& topology();  ///< read once

/// CPUs in the order in which a team fills the machine: "compact" fills one core's threads, then one socket;
/// "cores" one CPU a core first, package by package; "spread" deals cores round the packages first.
std::vector<int> fill_order(const std::string& how, const std::vector<int>& among);

}  // namespace mm

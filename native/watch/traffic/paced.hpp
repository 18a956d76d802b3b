#pragma once
/// Loads that access memory of one node at a prescribed rate, and count the bytes.
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/resources/memory.hpp"
#include "watch/source.hpp"

namespace mm::watch {

inline constexpr std::size_t kLineBytes = 64;  ///< bytes of a cache line

/// Writes a cache line back and removes it from all caches. Returns false if this processor has no such instruction.
bool flush_line(const void* line);
/// Returns whether this processor can flush a line.
bool can_flush();

/// Returns memory in huge pages if available, bound to the node if `bound`.
std::shared_ptr<Arena> memory_of_node(int node, bool bound, std::size_t bytes);

/// Sleeps, in s; a signal ends it.
void nap(double seconds);

/// Returns the CPUs of the part of a node, given by its index, that are also in `allowed`.
std::vector<int> usable_cpus(const Host& host, std::size_t node, const cpu_set_t& allowed);

enum class PacedAccess {
  read,           ///< reads of memory that exceeds caches; a large last-level cache may still serve a part
  read_flushed,   ///< reads of lines that are flushed afterwards, so that each read reaches memory
  write_flushed,  ///< stores of whole lines that are flushed afterwards: a write of memory, and on most machines a read
};

/// A thread that accesses memory of a node at a prescribed rate. It spins while it waits, also at rate 0, so that the
/// load of the CPUs is the same at all rates.
class PacedLoad {
 public:
  PacedLoad(int cpu, int node, bool bound, PacedAccess access);
  ~PacedLoad();
  PacedLoad(const PacedLoad&) = delete;
  PacedLoad& operator=(const PacedLoad&) = delete;
  void pace(double bytes_per_s) { pace_ = bytes_per_s; }
  /// Returns the bytes that were read, or the bytes that were written.
  double moved() const { return static_cast<double>(moved_.load(std::memory_order_relaxed)); }

 private:
  void run(int cpu);

  PacedAccess access_;
  std::shared_ptr<Arena> memory_;
  std::atomic<double> pace_ = 0;
  std::atomic<std::uint64_t> moved_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// One load on each of several CPUs, which share a rate.
class PacedTeam {
 public:
  PacedTeam(const std::vector<int>& cpus, int node, bool bound, PacedAccess access);
  void pace(double bytes_per_s);
  double moved() const;

 private:
  std::vector<std::unique_ptr<PacedLoad>> loads_;
};

}  // namespace mm::watch

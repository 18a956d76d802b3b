#pragma once
/// Runs the kernel calls of a program on a team of OpenMP threads.
#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "load/program.hpp"
#include "workloads/kernel.hpp"

namespace mm::load {

/// A part with its memory and the position of its walk.
struct Running {
  std::unique_ptr<workloads::Memory> memory;
  std::unique_ptr<workloads::Kernel> kernel;
  workloads::Counts unit;
  std::size_t cursor = 0;
  double wall_s = 0, cpu_s = 0;  ///< total of its calls
};

class Executor {
 public:
  /// Allocates and touches all memory. Throws Failure if a load kernel's counts differ from those in the file, Absent
  /// if a kernel is unavailable.
  explicit Executor(const SyntheticProgram& program);

  std::size_t memory_bytes() const { return memory_bytes_; }
  std::vector<Running>& running() { return running_; }
  /// Runs one call: its window of units, which begins at the end of the part's previous call.
  void call(std::size_t k);
  /// Spins all threads until this time, to keep their CPUs busy without memory accesses.
  void spin(Ticks until) const;

 private:
  void work(const Running& r, const KernelVariant& part, int rank) const;

  const SyntheticProgram& program_;
  std::vector<double> cumulative_shares_;  ///< by thread
  std::vector<Running> running_;
  std::size_t memory_bytes_ = 0;
};

}  // namespace mm::load

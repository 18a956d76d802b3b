#pragma once
/// Runs calls of a program's load kernels on a team of OpenMP threads.
#include <cstddef>
#include <memory>
#include <vector>

#include "clock.hpp"
#include "load/program.hpp"
#include "workloads/kernel.hpp"

namespace mm::load {

/// A part with its memory, and where its walk stands.
struct Running {
  std::unique_ptr<workloads::Memory> memory;
  std::unique_ptr<workloads::Kernel> kernel;
  workloads::Counts unit;
  std::size_t cursor = 0;
  double wall_s = 0, cpu_s = 0;  ///< of all its calls
};

class Executor {
 public:
  /// Takes and touches all memory. Failure where a load kernel now counts other than when the file was made. Absent
  /// where one is not to be had.
  explicit Executor(const Program& program);

  std::size_t memory_bytes() const { return memory_bytes_; }
  std::vector<Running>& running() { return running_; }
  /// One call: its window of units, from where the last call of this part ended.
  void call(std::size_t k);
  /// All threads spin until then: they keep their CPUs busy and touch nothing.
  void spin(Ticks until) const;

 private:
  void work(const Running& r, const Part& part, int rank) const;

  const Program& program_;
  std::vector<double> upto_;  ///< sums of shares, by thread
  std::vector<Running> running_;
  std::size_t memory_bytes_ = 0;
};

}  // namespace mm::load

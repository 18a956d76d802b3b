#pragma once
/// A team of pinned processes that start work together. Each process has its own address space, page tables and memory,
/// like the ranks of a message-passing program.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"

namespace mm {

class ProcessTeam {
 public:
  /// Numbers only: the processes share no other memory.
  using Order = std::array<std::uint64_t, 7>;
  using Work = std::function<double(const Order&)>;
  /// Forks one process per CPU, pins it, and calls `prepare(rank)` in it, which returns the work to do for each order.
  /// Throws Failure if a process cannot start, dies, or throws.
  ProcessTeam(std::vector<int> cpus, const std::function<Work(int)>& prepare);
  ~ProcessTeam();
  ProcessTeam(const ProcessTeam&) = delete;
  ProcessTeam& operator=(const ProcessTeam&) = delete;

  /// Runs `order` on all processes, which start together, and returns their results.
  const std::vector<double>& run(const Order& order);
  double elapsed_s() const;  ///< from the first begin to the last end of the last run
  bool moved() const;        ///< a process ended the last run on a CPU other than the one it is pinned to
  bool faulted() const;      ///< a process had page faults in the last run
  const std::vector<int>& cpus() const { return cpus_; }
  int size() const { return static_cast<int>(cpus_.size()); }

 private:
  struct Shared;
  struct Member;
  void wait_for_all();
  void end();
  [[noreturn]] void serve(int rank, int line, const std::function<Work(int)>& prepare);

  std::vector<int> cpus_;
  Shared* shared_ = nullptr;
  Member* members_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<int> pids_, lines_;
  std::vector<double> values_;
};

}  // namespace mm

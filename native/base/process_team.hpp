#pragma once
/// A team of pinned processes that start a piece of work together. Each process has its
/// own address space, page tables and memory, as the ranks of a message-passing program do.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "clock.hpp"

namespace mm {

class ProcessTeam {
 public:
  /// What the processes are told: numbers only, for they share nothing else.
  using Order = std::array<std::uint64_t, 6>;
  using Work = std::function<double(const Order&)>;
  /// Forks one process a CPU, pins it, and calls `prepare(rank)` there, which returns what the process shall do with
  /// an order. Failure when a process cannot start, dies, or throws.
  ProcessTeam(std::vector<int> cpus, const std::function<Work(int)>& prepare);
  ~ProcessTeam();
  ProcessTeam(const ProcessTeam&) = delete;
  ProcessTeam& operator=(const ProcessTeam&) = delete;

  /// All processes work on `order`, released together; returns what each one's work returned.
  const std::vector<double>& run(const Order& order);
  double elapsed_s() const;  ///< from the first begin to the last end of the last run
  bool moved() const;        ///< one ended the last run on another CPU than its own
  bool faulted() const;      ///< one had page faults in the last run
  const std::vector<int>& cpus() const { return cpus_; }
  int size() const { return static_cast<int>(cpus_.size()); }

 private:
  struct Shared;
  struct Member;
  void hear_all();
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

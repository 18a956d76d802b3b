#pragma once
/// The sea of the instrument swim_threads: its rows are divided over the threads of a team.
#include <barrier>
#include <cstdint>
#include <string_view>
#include <vector>

#include "workloads/sea.hpp"

namespace mm {

class SeaTeam {
 public:
  /// First row of a thread; it ends at the first row of the next.
  static int first_row(int cells, std::size_t threads, std::size_t thread) {
    return static_cast<int>(static_cast<std::size_t>(cells) * thread / threads);
  }
  /// Numbers that the fields of a thread's rows occupy.
  static std::size_t words(int cells, std::size_t threads, std::size_t thread) {
    return workloads::Sea::words(cells, first_row(cells, threads, thread + 1) - first_row(cells, threads, thread));
  }

  /// `memory`: of each thread, at most one a row, as many numbers as `words`; it must outlive the team.
  SeaTeam(int cells, const std::vector<double*>& memory, std::string_view isa)
      : isa_(isa), meeting_(static_cast<std::ptrdiff_t>(memory.size())) {
    for (std::size_t t = 0; t < memory.size(); ++t) {
      const int first = first_row(cells, memory.size(), t), end = first_row(cells, memory.size(), t + 1);
      parts_.emplace_back(cells, first, end - first, memory[t]);
    }
  }

  std::size_t threads() const { return parts_.size(); }
  workloads::Sea& part(std::size_t thread) { return parts_[thread]; }

  /// Steps, called on every thread. The adjacent rows are read where their threads keep them.
  void run(std::size_t thread, int steps) {
    workloads::Sea& own = parts_[thread];
    const workloads::Sea &below = before(thread), &above = after(thread);
    const workloads::Sea::Row south[] = {below.row(below.rows()), below.row(below.rows(), 1)};
    const workloads::Sea::Row north[] = {above.row(1), above.row(1, 1)};
    meeting_.arrive_and_wait();  // A neighbour that steps changes which level is the present one.
    for (int n = 0; n < steps; ++n) {
      own.step(south[n % 2], north[n % 2], isa_);
      meeting_.arrive_and_wait();
    }
  }

  /// Of the rows of a thread, while no thread steps.
  workloads::Sea::Invariants invariants(std::size_t thread) const {
    const workloads::Sea &below = before(thread), &above = after(thread);
    return parts_[thread].invariants(below.row(below.rows()), above.row(1));
  }

 private:
  const workloads::Sea& before(std::size_t t) const { return parts_[(t + parts_.size() - 1) % parts_.size()]; }
  const workloads::Sea& after(std::size_t t) const { return parts_[(t + 1) % parts_.size()]; }

  std::string_view isa_;
  std::vector<workloads::Sea> parts_;
  std::barrier<> meeting_;
};

}  // namespace mm

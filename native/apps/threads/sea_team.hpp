#pragma once
/// The sea of the instrument swim_threads. Its rows are divided over the threads of a team.
#include <barrier>
#include <cstdint>
#include <string_view>
#include <vector>

#include "apps/models/sea.hpp"

namespace mm {

class SeaTeam {
 public:
  /// Returns the first row of a thread. The rows of a thread end at the first row of the next thread.
  static int first_row(int cells, std::size_t threads, std::size_t thread) {
    return static_cast<int>(static_cast<std::size_t>(cells) * thread / threads);
  }
  /// Returns how many numbers the fields of a thread's rows occupy.
  static std::size_t words(int cells, std::size_t threads, std::size_t thread) {
    return workloads::Sea::words(cells, first_row(cells, threads, thread + 1) - first_row(cells, threads, thread));
  }

  /// `memory` has an entry for each thread, and at most one entry per row. Each entry points to as many numbers as
  /// `words` returns, and must outlive the team.
  SeaTeam(int cells, const std::vector<double*>& memory, std::string_view isa)
      : isa_(isa), meeting_(static_cast<std::ptrdiff_t>(memory.size())) {
    for (std::size_t t = 0; t < memory.size(); ++t) {
      const int first = first_row(cells, memory.size(), t), end = first_row(cells, memory.size(), t + 1);
      parts_.emplace_back(cells, first, end - first, memory[t]);
    }
  }

  std::size_t threads() const { return parts_.size(); }
  workloads::Sea& part(std::size_t thread) { return parts_[thread]; }

  /// Computes steps. Every thread calls this function. The adjacent rows are read where their threads keep them.
  void run(std::size_t thread, int steps) {
    workloads::Sea& sea = parts_[thread];
    const workloads::Sea &below = before(thread), &above = after(thread);
    const workloads::Sea::Row south[] = {below.row(below.rows()), below.row(below.rows(), 1)};
    const workloads::Sea::Row north[] = {above.row(1), above.row(1, 1)};
    meeting_.arrive_and_wait();  // A neighbour that steps changes which time level is the current one.
    for (int n = 0; n < steps; ++n) {
      sea.step(south[n % 2], north[n % 2], isa_);
      meeting_.arrive_and_wait();
    }
  }

  /// Returns the invariants of the rows of a thread. No thread may step in the meantime.
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

#pragma once
/// The common part of the NAS parallel kernels. Each kernel is one file.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/npb/threads.hpp"
#include "apps/ranks/apps.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi::npb {

/// The report's random number generator: x becomes 5^13 x mod 2^46.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t skip = 0) : x_(seed) {
    for (std::uint64_t factor = kFactor; skip != 0; skip >>= 1, factor = factor * factor & kMask)
      if (skip & 1) x_ = x_ * factor & kMask;
  }
  /// Returns the next number, times 2^46.
  std::uint64_t bits() { return x_ = x_ * kFactor & kMask; }
  /// Returns the next number, between 0 and 1.
  double next() { return static_cast<double>(bits()) * 0x1p-46; }

 private:
  static constexpr std::uint64_t kFactor = 1220703125, kMask = (std::uint64_t{1} << 46) - 1;
  std::uint64_t x_;
};

/// The seed of all kernels except ep.
constexpr std::uint64_t kSeed = 314159265;

/// Returns a sum. It uses four accumulators, so that consecutive additions are independent.
template <class Term>
double in_fours(std::size_t n, const Term& term) {
  double a = 0, b = 0, c = 0, d = 0;
  std::size_t k = 0;
  for (; k + 4 <= n; k += 4) a += term(k), b += term(k + 1), c += term(k + 2), d += term(k + 3);
  for (; k < n; ++k) a += term(k);
  return (a + b) + (c + d);
}

/// A communicator that frees itself.
class Communicator {
 public:
  Communicator() = default;
  ~Communicator() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Creates the communicator of all ranks with the same `color`, in order of `key`. Collective.
  void split(int color, int key) { check(MPI_Comm_split(World::get().all(), color, key, &comm_), "MPI_Comm_split"); }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// One NPB kernel of one class, on all ranks. Construction is not collective.
class NpbKernel {
 public:
  NpbKernel() = default;
  virtual ~NpbKernel() = default;
  NpbKernel(const NpbKernel&) = delete;
  NpbKernel& operator=(const NpbKernel&) = delete;

  /// Prepares the kernel. Untimed, once, collective.
  virtual void prepare() {}
  /// Restores the state before a solution. Untimed.
  virtual void reset() {}
  /// Solves the problem: the timed part, as defined by the report. Collective.
  virtual void solve() = 0;
  /// Returns what is wrong with the solution, or "". Rank 0's answer counts. After `solve`, untimed, collective.
  virtual std::string verify() = 0;
  /// Returns observed conditions to add.
  virtual json observed() const { return json::object(); }

  Channel library;  ///< time in the MPI library

 protected:
  /// Replaces numbers by their sums over the ranks of a communicator.
  void sum(double* numbers, int count, MPI_Comm among) {
    if (ranks_ == 1) return;
    library([&] { check(MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_DOUBLE, MPI_SUM, among), "MPI_Allreduce"); });
  }

  const int ranks_ = World::get().size(), rank_ = World::get().rank();
  const MPI_Comm all_ = World::get().all();
};

/// Returns "", or a message if the number differs from the expected one by more than `tolerance`, relative.
std::string differs(const std::string& what, double expected, double actual, double tolerance);

struct Problem {
  std::string kernel, class_name;
  std::string size;       ///< "1400 rows"
  double operations = 0;  ///< per solution, counted as in the report
  double bytes = 0;       ///< approximate memory of all ranks together
  int max_ranks = 0;
  int max_threads = 0;        ///< of all ranks together; 0: the same as max_ranks
  bool power_of_two = false;  ///< whether the number of ranks must be a power of two
  std::function<std::shared_ptr<NpbKernel>(bool fftw)> make;

  int most_threads() const { return std::max(max_ranks, max_threads); }
  int most_ranks() const { return std::min(max_ranks, most_threads() / static_cast<int>(threads())); }
  bool fits(int ranks) const { return ranks <= most_ranks() && (!power_of_two || (ranks & (ranks - 1)) == 0); }
  std::string field() const { return most_ranks() == 0 ? "threads" : "ranks"; }  ///< the option that does not fit
  std::string allowed() const {                                                  ///< the supported numbers
    if (most_ranks() == 0) return "1 to " + std::to_string(most_threads());
    return (power_of_two ? "powers of two to " : "1 to ") + std::to_string(most_ranks());
  }
};

// Return the problems of each kernel, class S first.
std::vector<Problem> ep_problems();
std::vector<Problem> cg_problems();
std::vector<Problem> is_problems();
std::vector<Problem> ft_problems();
std::vector<Problem> mg_problems();
std::vector<Problem> lu_problems();
std::vector<Problem> bt_problems();
std::vector<Problem> sp_problems();

/// Returns the version of FFTW, or "" if its library is not installed.
std::string fftw_version();

}  // namespace mm::mpi::npb

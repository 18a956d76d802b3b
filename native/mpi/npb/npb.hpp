#pragma once
/// What the NAS parallel kernels have in common. Each is one file: npb_ep.cpp, npb_cg.cpp …
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mpi/apps/apps.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi::npb {

/// The report's random numbers: x becomes 5^13 x mod 2^46.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t skip = 0) : x_(seed) {
    for (std::uint64_t factor = kFactor; skip != 0; skip >>= 1, factor = factor * factor & kMask)
      if (skip & 1) x_ = x_ * factor & kMask;
  }
  /// The next one, times 2^46.
  std::uint64_t bits() { return x_ = x_ * kFactor & kMask; }
  /// The next one, between 0 and 1.
  double next() { return static_cast<double>(bits()) * 0x1p-46; }

 private:
  static constexpr std::uint64_t kFactor = 1220703125, kMask = (std::uint64_t{1} << 46) - 1;
  std::uint64_t x_;
};

/// The seed of all kernels but ep.
constexpr std::uint64_t kSeed = 314159265;

/// Where part `i` of `parts` begins, of n things.
constexpr std::size_t part(std::size_t n, std::size_t parts, std::size_t i) { return n * i / parts; }

/// A sum in four parts, so that an addition need not wait for the one before it.
template <class Term>
double in_fours(std::size_t n, const Term& term) {
  double a = 0, b = 0, c = 0, d = 0;
  std::size_t k = 0;
  for (; k + 4 <= n; k += 4) a += term(k), b += term(k + 1), c += term(k + 2), d += term(k + 3);
  for (; k < n; ++k) a += term(k);
  return (a + b) + (c + d);
}

/// A communicator that lets go of itself.
class Group {
 public:
  Group() = default;
  ~Group() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Of all ranks with the same `color`, in order of `key`. Collective.
  void split(int color, int key) { check(MPI_Comm_split(World::get().all(), color, key, &comm_), "MPI_Comm_split"); }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// One kernel of one class, among all ranks. Constructing one is no collective operation.
class Kernel {
 public:
  Kernel() = default;
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Untimed, once, collective.
  virtual void prepare() {}
  /// Untimed: as it is before a solution.
  virtual void reset() {}
  /// What the report times. Collective.
  virtual void solve() = 0;
  /// After `solve`, untimed, collective: what is wrong, or ""; what rank 0 says counts.
  virtual std::string proof() = 0;
  /// Conditions to add: what came out.
  virtual json observed() const { return json::object(); }

  Channel library;  ///< what was timed inside of it

 protected:
  /// Of the numbers of all ranks of a communicator, at each of them.
  void sum(double* numbers, int count, MPI_Comm among) {
    if (ranks_ == 1) return;
    library([&] { check(MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_DOUBLE, MPI_SUM, among), "MPI_Allreduce"); });
  }

  const int ranks_ = World::get().size(), rank_ = World::get().rank();
  const MPI_Comm all_ = World::get().all();
};

/// "" or how a number differs by more than a share of it from what the report says.
std::string differs(const std::string& what, double expected, double got, double tolerance);

struct Problem {
  std::string kernel, class_name;
  std::string size;       ///< "1400 rows"
  double operations = 0;  ///< a solution's, as the report counts
  double bytes = 0;       ///< that all ranks together need, about
  int most_ranks = 0;
  bool power_of_two = false;  ///< ranks have to be one
  std::function<std::shared_ptr<Kernel>(bool fftw)> make;

  bool fits(int ranks) const { return ranks <= most_ranks && (!power_of_two || (ranks & (ranks - 1)) == 0); }
  std::string allowed() const {  ///< which numbers of ranks do
    return (power_of_two ? "powers of two to " : "1 to ") + std::to_string(most_ranks);
  }
};

// Each kernel's problems, class S first.
std::vector<Problem> ep_problems();
std::vector<Problem> cg_problems();
std::vector<Problem> is_problems();
std::vector<Problem> ft_problems();
std::vector<Problem> mg_problems();

/// Of FFTW where its library is here, else "".
std::string fftw_version();

}  // namespace mm::mpi::npb

#pragma once
/// Programs of ranks in small: a field that is stepped, with messages between. What a rank spends in each kind of
/// message is told apart from what it computes, and every run is proven.
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mpi/harness/measure.hpp"
#include "mpi/protocols/halo.hpp"

namespace mm::mpi {

/// One kind of communication of a program on this rank: how often, how long, and a delay that `anatomy` adds.
class Channel {
 public:
  template <class Work>
  void operator()(const Work& work) {
    const Ticks begin = ticks();
    if (delay_ > 0)
      while (ticks() - begin < delay_) {}
    work();
    spent_ += ticks() - begin;
    ++count_;
  }
  void clear() { spent_ = 0, count_ = 0; }
  void delay(double s) { delay_ = static_cast<Ticks>(s / clock_info().seconds_per_tick); }
  double spent_s() const { return seconds(spent_); }
  std::uint64_t count() const { return count_; }

 private:
  Ticks spent_ = 0, delay_ = 0;
  std::uint64_t count_ = 0;
};

/// A kind of communication as one of several that a program has.
struct Part {
  std::string operation;  ///< "halo", "sum", "alltoall"
  std::string metric;     ///< "halo_time"
  Channel* channel;
  std::size_t bytes;  ///< of one message of an operation
  /// The same operation by itself with messages of so many bytes, a multiple of 8. Collective.
  std::function<Case(std::size_t bytes)> alone;
};

class Program {
 public:
  Program() = default;
  virtual ~Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  virtual json conditions() const = 0;
  virtual std::string metric() const { return "step_time"; }  ///< s a step
  virtual double steps() const = 0;                           ///< of a run
  virtual void run() = 0;                                     ///< timed
  virtual void prove(Case& c) = 0;                            ///< adds what marks and checks runs
  virtual std::vector<Part> parts() = 0;                      ///< always the same ones
};

/// What is known of a program's case before it is made.
Case planned(const std::string& metric, const HaloProtocol& how, const json& more);

/// "compute_time" and "imbalance", which every program has beside the times of its parts.
std::vector<Metric> compute_metrics();

/// A program with delays (s, by part; none: as it is). Its further metrics are the parts' times, "compute_time" (s a
/// step, means over ranks) and "imbalance"; `kept`, if given, is filled with their values and those of every block.
Case program_case(const std::shared_ptr<Program>& program, const std::vector<double>& delays = {},
                  const std::shared_ptr<std::vector<Values>>& kept = {});

/// Programs as other instruments want them, with the defaults of their own.
std::shared_ptr<Program> make_pop(const HaloProtocol& how, const Grid& grid, int reductions);
std::shared_ptr<Program> make_swim(const HaloProtocol& how, int cells, int steps);
std::shared_ptr<Program> make_gyro(int modes, int radii, const std::vector<int>& extent);
/// Ranks of gyro's grid: modes by those who transpose together. UsageError where this number of ranks does not fit.
std::vector<int> gyro_extent(int modes, int radii);

/// The exchange of a program's halo by itself, in those of its dimensions that it uses.
Case halo_alone(const HaloProtocol& how, const Grid& grid, const std::vector<int>& lows, std::size_t bytes);
/// Sums over all ranks by themselves, as they go beside that protocol.
Case sums_alone(const HaloProtocol& how, std::size_t bytes);
/// MPI_Alltoall by itself, with so many bytes from each rank of `among` to each.
Case alltoall_alone(MPI_Comm among, std::size_t bytes);

/// A number as a word of a row.
inline std::uint64_t word_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline double number_of(std::uint64_t word) { return std::bit_cast<double>(word); }

/// First of the cells that part `at` of so many parts has; those of part `at` end where those of `at + 1` begin.
inline int first_cell(int cells, int parts, int at) {
  return static_cast<int>(static_cast<long long>(cells) * at / parts);
}

}  // namespace mm::mpi

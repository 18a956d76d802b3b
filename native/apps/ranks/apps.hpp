#pragma once
/// Applications in miniature. A field is stepped, with messages between steps. The time of each kind of message is
/// accounted separately from computation, and every run is verified.
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mpi/harness/measure.hpp"
#include "mpi/protocols/halo.hpp"

namespace mm::mpi {

/// One kind of communication of a program on this rank: its count, its time, and a delay that `anatomy` adds.
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

/// One kind of communication of an application.
struct CommunicationPart {
  std::string operation;  ///< "halo", "sum", "alltoall"
  std::string metric;     ///< "halo_time"
  Channel* channel;
  std::size_t bytes;  ///< bytes of one message of an operation
  /// Returns a case of the same operation alone, with messages of `bytes`, a multiple of 8. Collective.
  std::function<Case(std::size_t bytes)> alone;
};

class MiniApplication {
 public:
  MiniApplication() = default;
  virtual ~MiniApplication() = default;
  MiniApplication(const MiniApplication&) = delete;
  MiniApplication& operator=(const MiniApplication&) = delete;

  virtual json conditions() const = 0;
  virtual std::string metric() const { return "step_time"; }  ///< in s per step
  virtual double steps() const = 0;                           ///< number of steps of a run
  virtual void run() = 0;                                     ///< the timed part
  virtual void add_checks(Case& c) = 0;                       ///< sets the functions that fill and verify its data
  virtual std::vector<CommunicationPart> parts() = 0;         ///< the same parts in every call
};

/// Returns the metric and the conditions of a case that has not been created yet.
Case planned_case(const std::string& metric, const HaloProtocol& protocol, const json& more);

/// Returns "compute_time" and "imbalance", which every application reports beside the times of its parts.
std::vector<Metric> compute_metrics();

/// Returns a case of an application with delays (in s, by part; empty: no delays). Its extra metrics are the parts'
/// times, "compute_time" (s per step, mean over ranks) and "imbalance". If `values_by_block` is not null, it collects
/// their values per block.
Case program_case(const std::shared_ptr<MiniApplication>& program, const std::vector<double>& delays = {},
                  const std::shared_ptr<std::vector<Values>>& values_by_block = {});

/// Creates an application with default options, for use by other instruments.
std::shared_ptr<MiniApplication> make_pop(const HaloProtocol& protocol, const RankGrid& grid, int reductions);
std::shared_ptr<MiniApplication> make_swim(const HaloProtocol& protocol, int cells, int steps);
std::shared_ptr<MiniApplication> make_gyro(int modes, int radii, const std::vector<int>& extent);
/// Returns the rank grid of gyro: groups of modes by ranks that transpose together. Throws UsageError if no grid fits
/// the number of ranks.
std::vector<int> gyro_extent(int modes, int radii);

/// Returns a case of the halo exchange of an application alone, in the dimensions that it uses.
Case halo_alone(const HaloProtocol& protocol, const RankGrid& grid, const std::vector<int>& lows, std::size_t bytes);
/// Returns a case of global sums alone, by the reduction that corresponds to the protocol.
Case reduction_alone(const HaloProtocol& protocol, std::size_t bytes);
/// Returns a case of MPI_Alltoall alone, with `bytes` from each rank of `among` to each.
Case alltoall_alone(MPI_Comm among, std::size_t bytes);

/// Returns the bits of a number as a word of a row.
inline std::uint64_t word_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline double number_of(std::uint64_t word) { return std::bit_cast<double>(word); }

/// Returns the first cell of part `at` when `cells` are divided into `parts`. The part ends at the first cell of part
/// `at + 1`.
inline int first_cell(int cells, int parts, int at) {
  return static_cast<int>(static_cast<long long>(cells) * at / parts);
}

}  // namespace mm::mpi

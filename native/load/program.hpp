#pragma once
/// A synthetic program: a sequence of kernel calls that its file fully determines.
#include <cstdint>
#include <string>
#include <vector>

#include "workloads/kernel.hpp"

namespace mm::load {

/// One variant of a kernel in a program. src/meshmark/load/synthesis/program.py writes and documents the file.
struct KernelVariant {
  std::string name;
  const workloads::KernelEntry* entry = nullptr;
  workloads::Shape shape;
  std::size_t window = 1;  ///< units per call
  std::uint64_t calls = 0;
  double phase = 0;
  bool from_memory = false, from_cache = false;  ///< where its volume fits
  workloads::Counts planned;                     ///< counts of one call that the file assumes
};

struct SyntheticProgram {
  std::string name;
  int threads = 1;
  double run_time_s = 0, pace = 0;  ///< from the target profile; with a pace > 0, calls start no earlier than planned
  double planned_s = 0;             ///< time of all calls; 0 if the file does not state it
  std::vector<double> shares;       ///< by thread: share of each call's units; the sum is 1
  std::vector<KernelVariant> parts;
};

/// Reads a program from its file. Throws Failure with the file, the field, what was found and what is allowed.
SyntheticProgram read_program(const std::string& path);

/// The order of calls. Call c of part k has the time (c + phase_k) / calls_k; ties go to the smaller k.
/// src/meshmark/load/calibration/order.py uses the same arithmetic and yields the same order.
class Order {
 public:
  explicit Order(const std::vector<KernelVariant>& parts);
  bool done() const { return heap_.empty(); }
  std::size_t next();
  double due() const {
    return heap_.front().time;
  }  ///< planned time of the next call: 0 is the start, 1 the end of the program

 private:
  struct Due {
    double time;
    std::size_t part;
    std::uint64_t call;
    bool operator>(const Due& other) const { return time > other.time || (time == other.time && part > other.part); }
  };
  const std::vector<KernelVariant>& parts_;
  std::vector<Due> heap_;
};

}  // namespace mm::load

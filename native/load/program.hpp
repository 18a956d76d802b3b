#pragma once
/// A synthesised program: calls of load kernels in an order that is computed from its file alone.
#include <cstdint>
#include <string>
#include <vector>

#include "workloads/kernel.hpp"

namespace mm::load {

/// One variant of a kernel in a program. src/meshmark/load/program.py writes and documents the file.
struct Part {
  std::string name;
  const workloads::Entry* entry = nullptr;
  workloads::Shape shape;
  std::size_t window = 1;  ///< units of one call
  std::uint64_t calls = 0;
  double phase = 0;
  bool from_memory = false, from_cache = false;  ///< what serves its volume
  workloads::Counts planned;                     ///< of one call, as the file was made with
};

struct Program {
  std::string name;
  int threads = 1;
  double run_time_s = 0, pace = 0;  ///< of the prescription; with a pace > 0, calls begin no sooner than planned
  std::vector<double> shares;       ///< of each call's units, by thread; sum 1
  std::vector<Part> parts;
};

/// Failure names the file, the field, what was found and what is allowed.
Program read_program(const std::string& path);

/// Which part is called next: call c of part k has the time (c + phase_k) / calls_k; among equal times the smaller k is
/// first. The same arithmetic as src/meshmark/load/order.py, so the same order.
class Order {
 public:
  explicit Order(const std::vector<Part>& parts);
  bool done() const { return heap_.empty(); }
  std::size_t next();
  double due() const { return heap_.front().time; }  ///< of the next call: 0 begin, 1 end of the program

 private:
  struct Due {
    double time;
    std::size_t part;
    std::uint64_t call;
    bool operator>(const Due& other) const { return time > other.time || (time == other.time && part > other.part); }
  };
  const std::vector<Part>& parts_;
  std::vector<Due> heap_;
};

}  // namespace mm::load

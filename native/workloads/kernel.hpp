#pragma once
/// What a load kernel is: a piece of work with exact counts, cut into equal units that threads share.
///
/// A kernel is one class template in native/workloads/kernels, written once and compiled twice: over plain memory, and
/// over memory and numbers that count what is done to them (access.hpp), by which a test checks `counts()`. It knows
/// nothing of time, placement or output. See kernels/stream.cpp for the pattern.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workloads/counts.hpp"

namespace mm::workloads {

/// Which variant of a kernel.
struct Shape {
  std::size_t volume_bytes = 0;  ///< of all its arrays together, at most
  int stride = 1;                ///< in elements
  int threads = 1;
};

/// Runs a function once on every thread of the team, with its rank.
using Everyone = std::function<void(const std::function<void(int)>&)>;

/// Zeroed memory for a kernel's arrays, each cut evenly among the threads and touched first by them.
class Memory {
 public:
  Memory(int threads, Everyone everyone);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  /// n elements that start at a page. Absent where there is not so much memory.
  template <class T>
  T* take(std::size_t n) {
    return static_cast<T*>(take_bytes(n * sizeof(T)));
  }
  std::size_t bytes() const { return bytes_; }
  int threads() const { return threads_; }
  const Everyone& everyone() const { return everyone_; }

 private:
  void* take_bytes(std::size_t bytes);
  int threads_;
  Everyone everyone_;
  std::vector<std::pair<void*, std::size_t>> maps_;
  std::size_t bytes_ = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Units of one walk over the volume; the next walk begins again with unit 0.
  virtual std::size_t units() const = 0;
  /// Of one unit; all units are alike.
  virtual Counts counts() const = 0;
  /// Units [first, last), last <= units(), by one thread. Units are independent of each other, so threads take
  /// different ones; but in a kernel with `Info::team` every thread is called with the same ones at once, and they
  /// do each unit together.
  virtual void run(std::size_t first, std::size_t last, int thread) = 0;
  /// "" where the result is right, else what is wrong. To be asked after any number of units.
  virtual std::string verify() const = 0;
  /// What `verify` looks at: a test spoils it and expects to be told.
  virtual std::span<std::byte> result() = 0;
};

struct Info {
  std::string name;      ///< snake_case
  std::string kind;      ///< stream, irregular, dense, spectral, solver, compute, integer, sharing, system, idle
  std::string summary;   ///< one line: what it does
  std::string source;    ///< the field's name for it, or where it is from
  bool parity = false;   ///< one of the 28 that stand for the published set
  bool sized = true;     ///< has variants by volume
  bool strided = false;  ///< has variants by stride
  bool team = false;     ///< its threads work on each unit together
  int least_threads = 1, most_threads = 1 << 16;
  std::size_t least_bytes = 4096;                 ///< volume
  std::size_t most_bytes = std::size_t{1} << 40;  ///< likewise; a larger wish is cut to it
  std::string stands_for = "f64";                 ///< type of its data: f64, f32, i64, u64, i32, u32, u8
};

using Maker = std::unique_ptr<Kernel> (*)(const Shape&, Memory&);

struct Entry {
  Info info;
  Maker plain, counted;
};

/// All kernels, by name.
const std::vector<Entry>& kernels();
const Entry& kernel(const std::string& name);  ///< UsageError where there is none

void add_kernel(const Info& info, Maker plain, Maker counted);

struct Plain;
struct Counted;

/// Registers `K`, a class template over the way of access with a constructor (const Shape&, Memory&).
template <template <class> class K>
struct Register {
  explicit Register(const Info& info) {
    add_kernel(
        info, [](const Shape& s, Memory& m) -> std::unique_ptr<Kernel> { return std::make_unique<K<Plain>>(s, m); },
        [](const Shape& s, Memory& m) -> std::unique_ptr<Kernel> { return std::make_unique<K<Counted>>(s, m); });
  }
};

/// Makes a kernel of this shape. Absent where the shape cannot be had (volume too small, too few threads, no memory).
std::unique_ptr<Kernel> make(const Entry& entry, const Shape& shape, Memory& memory, bool counted = false);

inline constexpr std::size_t kLine = 64;  ///< B, by which traffic is counted on every machine

/// Elements of an array when `arrays` of them of `element` B share a volume, cut to whole units of `unit` elements at
/// this stride; Absent where there is not one.
std::size_t fit(const Shape& shape, std::size_t arrays, std::size_t element, std::size_t unit);

/// A fixed sequence that looks random (splitmix64): the same on every machine, cheap at any place.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
/// In [0, 1).
constexpr double unit_real(std::uint64_t x) { return static_cast<double>(scramble(x) >> 11) * 0x1p-53; }
/// 0 … n-1 in a random order, the same for the same seed.
std::vector<std::uint32_t> shuffled(std::size_t n, std::uint64_t seed);

}  // namespace mm::workloads

#pragma once
/// A load kernel: work with exact counts, divided into equal units that threads share.
///
/// A kernel is one class template in native/workloads/kernels, compiled twice: with plain memory, and with memory and
/// numbers that count their operations (access.hpp), by which a test verifies `counts()`. It does not depend on timing,
/// placement or output. See kernels/stream.cpp for the pattern.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workloads/counts.hpp"

namespace mm::workloads {

/// The variant of a kernel.
struct Shape {
  std::size_t volume_bytes = 0;  ///< maximum of all its arrays together
  int stride = 1;                ///< in elements
  int threads = 1;
};

/// Calls a function once on every thread of the team, with its rank.
using OnEveryThread = std::function<void(const std::function<void(int)>&)>;

/// Zeroed memory for a kernel's arrays, each divided evenly among the threads, which touch their parts first.
class Memory {
 public:
  Memory(int threads, OnEveryThread on_every_thread);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  /// Returns n elements. Throws Absent if there is not enough memory.
  template <class T>
  T* take(std::size_t n) {
    return static_cast<T*>(take_bytes(n * sizeof(T)));
  }
  std::size_t bytes() const { return bytes_; }
  int threads() const { return threads_; }
  const OnEveryThread& on_every_thread() const { return on_every_thread_; }

 private:
  void* take_bytes(std::size_t bytes);
  int threads_;
  OnEveryThread on_every_thread_;
  std::vector<std::pair<void*, std::size_t>> maps_;
  std::size_t bytes_ = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Returns the number of units of one pass over the volume. The next pass starts again with unit 0.
  virtual std::size_t units() const = 0;
  /// Returns the counts of one unit. All units are alike.
  virtual Counts counts() const = 0;
  /// Runs units [first, last), last <= units(), on one thread. Units are independent, so threads take different ones.
  /// In a kernel with `Info::team`, all threads are called with the same units at once, and do each unit together.
  virtual void run(std::size_t first, std::size_t last, int thread) = 0;
  /// Returns "" if the result is correct, otherwise what is wrong. Valid after any number of units.
  virtual std::string verify() const = 0;
  /// Returns the data that `verify` checks. A test corrupts it and expects an error.
  virtual std::span<std::byte> result() = 0;
};

struct Info {
  std::string name;      ///< snake_case
  std::string kind;      ///< stream, irregular, dense, spectral, solver, compute, integer, sharing, system, idle
  std::string summary;   ///< one line: what the kernel does
  std::string source;    ///< the usual name in the field, or the origin
  bool parity = false;   ///< whether it is one of the 28 that correspond to the published set
  bool sized = true;     ///< whether it has variants by volume
  bool strided = false;  ///< whether it has variants by stride
  bool team = false;     ///< whether its threads work on each unit together
  int min_threads = 1, max_threads = 1 << 16;
  std::size_t min_bytes = 4096;                  ///< volume
  std::size_t max_bytes = std::size_t{1} << 40;  ///< volume; larger requests are reduced to it
  std::string stands_for = "f64";                ///< type of its data: f64, f32, i64, u64, i32, u32, u8
};

using Maker = std::unique_ptr<Kernel> (*)(const Shape&, Memory&);

struct KernelEntry {
  Info info;
  Maker plain, counted;
};

/// Returns all kernels, by name.
const std::vector<KernelEntry>& kernels();
const KernelEntry& kernel(const std::string& name);  ///< throws UsageError if there is no such kernel

void add_kernel(const Info& info, Maker plain, Maker counted);

struct Uncounted;
struct Counted;

/// Registers `K`, a class template over the access type with a constructor (const Shape&, Memory&).
template <template <class> class K>
struct Register {
  explicit Register(const Info& info) {
    add_kernel(
        info, [](const Shape& s, Memory& m) -> std::unique_ptr<Kernel> { return std::make_unique<K<Uncounted>>(s, m); },
        [](const Shape& s, Memory& m) -> std::unique_ptr<Kernel> { return std::make_unique<K<Counted>>(s, m); });
  }
};

/// Makes a kernel of this shape. Throws Absent if that is impossible (volume too small, too few threads, no memory).
std::unique_ptr<Kernel> make(const KernelEntry& entry, const Shape& shape, Memory& memory, bool counted = false);

inline constexpr std::size_t kLine = 64;  ///< bytes, the unit of counted traffic on every machine

/// Returns the number of elements per array if `arrays` arrays share a volume, with elements of `element` B, rounded
/// down to whole units of `unit` elements at this stride. Throws Absent if there are fewer units than threads.
std::size_t fit(const Shape& shape, std::size_t arrays, std::size_t element, std::size_t unit);

/// Returns an element of a fixed pseudorandom sequence (splitmix64), which is the same on every machine and has random
/// access.
constexpr std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
/// Returns a number in [0, 1).
constexpr double unit_real(std::uint64_t x) { return static_cast<double>(scramble(x) >> 11) * 0x1p-53; }
/// Returns 0 … n-1 in an order that depends only on the seed.
std::vector<std::uint32_t> shuffled(std::size_t n, std::uint64_t seed);

}  // namespace mm::workloads

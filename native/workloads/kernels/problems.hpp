#pragma once
/// Sizes and numbers of problems for kernels of many small problems, and data whose sums need no rounding.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "workloads/kernel.hpp"

namespace mm::workloads {

/// Returns the number of units of `bytes` that fit into the volume beside `shared` bytes. Throws Absent if there are
/// fewer units than threads.
inline std::size_t units_in(const Shape& shape, std::size_t bytes, std::size_t shared = 0) {
  const std::size_t units = shape.volume_bytes > shared ? (shape.volume_bytes - shared) / bytes : 0;
  if (units < static_cast<std::size_t>(shape.threads) || units == 0)
    throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer units of " +
                 std::to_string(bytes) + " B than threads");
  return units;
}

/// Returns the largest of the ascending `sizes` of which sixteen problems fit, so that threads share them evenly and
/// little of the volume is unused; otherwise the first size. `bytes` returns the memory of a problem.
template <class Bytes>
std::size_t problem_size(const Shape& shape, std::initializer_list<std::size_t> sizes, const Bytes& bytes) {
  std::size_t result = *sizes.begin();
  for (const std::size_t size : sizes)
    if (16 * bytes(size) <= shape.volume_bytes) result = size;
  return result;
}

/// Calls body with `n`, one of `sizes`, as a compile-time constant: loops of known length are faster.
template <std::size_t... sizes, class Body>
void with_size(std::size_t n, const Body& body) {
  ((n == sizes ? body(std::integral_constant<std::size_t, sizes>{}) : void()), ...);
}

/// Returns one of 256 values in [1, 2), exact in nine bits: sums of products of two of them are exact, in any order.
inline double exact(std::size_t i) { return static_cast<double>(256 + ((i + 1) * 0x9e3779b97f4a7c15u >> 56)) * 0x1p-8; }

constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + kLine - 1) / kLine; }

/// The first element of a result that no unit has written yet.
inline constexpr double kUndone = -1e300;

inline constexpr double kUnset = -1;                             ///< an element that no unit has written yet
inline constexpr std::size_t kPlaces = 64;                       ///< accesses per unit of most kernels
inline constexpr std::size_t kPerLine = kLine / sizeof(double);  ///< elements of 8 B per cache line

/// Returns the counts of one unit from its operations and bytes, and the lines that it touches and writes.
inline Counts counted(double flops, double int_ops, double load_bytes, double store_bytes, std::size_t lines,
                      std::size_t lines_written) {
  Counts c;
  c.flops = flops;
  c.int_ops = int_ops;
  c.load_bytes = load_bytes;
  c.store_bytes = store_bytes;
  c.line_read_bytes = static_cast<double>(kLine * lines);
  c.line_write_bytes = static_cast<double>(kLine * lines_written);
  return c;
}

/// Returns the message of a failed check.
template <class T, class U>
std::string wrong(const std::string& what, std::size_t at, T actual, U expected) {
  return what + " " + std::to_string(at) + " is " + std::to_string(actual) + ", not " + std::to_string(expected);
}

}  // namespace mm::workloads

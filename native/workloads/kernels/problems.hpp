#pragma once
/// How a kernel of many small problems chooses their size and how many fit, and data whose sums have no rounding.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "error.hpp"
#include "workloads/kernel.hpp"

namespace mm::workloads {

/// As many units as fit, of so many bytes each, beside `shared` bytes. Absent where there are fewer than threads.
inline std::size_t units_in(const Shape& shape, std::size_t bytes, std::size_t shared = 0) {
  const std::size_t units = shape.volume_bytes > shared ? (shape.volume_bytes - shared) / bytes : 0;
  if (units < static_cast<std::size_t>(shape.threads) || units == 0)
    throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B holds fewer units, of " +
                 std::to_string(bytes) + " B, than there are threads");
  return units;
}

/// Of `sizes`, rising, the largest of which sixteen problems fit, so that threads share them evenly and little of the
/// volume is left over; else the first. `bytes` says how many a problem takes.
template <class Bytes>
std::size_t problem_size(const Shape& shape, std::initializer_list<std::size_t> sizes, const Bytes& bytes) {
  std::size_t chosen = *sizes.begin();
  for (const std::size_t size : sizes)
    if (16 * bytes(size) <= shape.volume_bytes) chosen = size;
  return chosen;
}

/// Calls body with `n` as a constant of the type, one of `sizes`: loops that know their length are faster.
template <std::size_t... sizes, class Body>
void with_size(std::size_t n, const Body& body) {
  ((n == sizes ? body(std::integral_constant<std::size_t, sizes>{}) : void()), ...);
}

/// One of 256 values in [1, 2), exact in nine bits: sums of products of two of them have no rounding, in any order.
inline double exact(std::size_t i) { return static_cast<double>(256 + ((i + 1) * 0x9e3779b97f4a7c15u >> 56)) * 0x1p-8; }

constexpr std::size_t lines_of(std::size_t bytes) { return (bytes + kLine - 1) / kLine; }

/// Of a result that no unit has written yet: in its first element.
inline constexpr double kUndone = -1e300;

inline constexpr double kUnset = -1;                             ///< of an element that no unit has written yet
inline constexpr std::size_t kPlaces = 64;                       ///< accesses of most units
inline constexpr std::size_t kPerLine = kLine / sizeof(double);  ///< elements of 8 B

/// Operations and bytes of one unit, and the lines that it touches and writes.
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

/// What a check found instead of what it wanted.
template <class T, class U>
std::string wrong(const std::string& what, std::size_t at, T is, U wanted) {
  return what + " " + std::to_string(at) + " is " + std::to_string(is) + ", not " + std::to_string(wanted);
}

}  // namespace mm::workloads

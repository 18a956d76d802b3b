#pragma once
/// Counter-based random numbers: a draw depends only on its key and count, not on the order of events. Source: Steele,
/// Lea, Flood, "Fast splittable pseudorandom number generators" (2014), the SplitMix64 finaliser.
#include <cstdint>

namespace mm::model {

__extension__ typedef unsigned __int128 Wide;

constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Draws {
 public:
  Draws() = default;
  Draws(std::uint64_t seed, std::uint64_t stream)
      : key_(mix64(mix64(seed + 0x9e3779b97f4a7c15ULL) + stream * 0xd1342543de82ef95ULL)) {}
  std::uint64_t next() { return mix64(key_ + ++count_ * 0x9e3779b97f4a7c15ULL); }
  /// Returns a number uniform in [0, n); n > 0. The bias is below n / 2^64.
  std::uint64_t below(std::uint64_t n) { return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64); }
  /// Returns a number uniform in (0, 1].
  double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

 private:
  std::uint64_t key_ = 0, count_ = 0;
};

}  // namespace mm::model

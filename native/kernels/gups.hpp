#pragma once
/// Random updates of a table, after HPCC RandomAccess.
#include <cstddef>
#include <cstdint>

namespace mm {

/// Returns the next number of HPCC's random stream: a shift register over GF(2) with the polynomial x^63 + x^2 + x + 1
/// of the benchmark's definition (POLY = 7).
inline std::uint64_t next_random(std::uint64_t x) noexcept {
  return (x << 1) ^ (static_cast<std::int64_t>(x) < 0 ? 7u : 0u);
}

/// Returns the n-th number of the stream that starts with 1, in O(log n) by squaring the shift in the field.
/// Source: HPC Challenge RandomAccess, HPCC_starts.
inline std::uint64_t random_at(std::uint64_t n) noexcept {
  constexpr std::uint64_t kPeriod = 1317624576693539401u;
  n %= kPeriod;
  if (n == 0) return 1;
  std::uint64_t powers[64], x = 1;
  for (auto& p : powers) {
    p = x;
    x = next_random(next_random(x));
  }
  int bit = 62;
  while (bit >= 0 && ((n >> bit) & 1) == 0) --bit;
  std::uint64_t r = 2;
  while (bit > 0) {
    std::uint64_t squared = 0;
    for (int j = 0; j < 64; ++j)
      if ((r >> j) & 1) squared ^= powers[j];
    r = squared;
    if ((n >> --bit) & 1) r = next_random(r);
  }
  return r;
}

/// Repeats `updates` times: takes the next number, and xors it into the word that its low bits select. Returns the last
/// number. `mask` is the number of words minus one, and that number is a power of two.
inline std::uint64_t update_plain(std::uint64_t* table, std::uint64_t mask, std::uint64_t x,
                                  std::uint64_t updates) noexcept {
  for (; updates != 0; --updates) {
    x = next_random(x);
    table[x & mask] ^= x;
  }
  return x;
}

inline constexpr std::uint64_t kLookahead = 32;  // 64 would exceed the outstanding loads of a core

/// Performs the same updates in the same order with prefetching: the stream is `kLookahead` numbers ahead, well below
/// the 1024 numbers that the benchmark allows. `updates` must be a multiple of kLookahead.
inline std::uint64_t update_ahead(std::uint64_t* table, std::uint64_t mask, std::uint64_t x,
                                  std::uint64_t updates) noexcept {
  std::uint64_t pending[kLookahead];
  for (auto& a : pending) {
    a = x = next_random(x);
    __builtin_prefetch(table + (a & mask), 1, 3);
  }
  for (std::uint64_t done = kLookahead; done < updates; done += kLookahead)
    for (auto& a : pending) {
      const std::uint64_t now = a;
      a = x = next_random(x);
      __builtin_prefetch(table + (a & mask), 1, 3);
      table[now & mask] ^= now;
    }
  for (const std::uint64_t now : pending) table[now & mask] ^= now;
  return x;
}

}  // namespace mm

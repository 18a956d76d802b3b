#pragma once
/// Dot products of 32-bit floating-point numbers, for every vector width. Lengths are multiples of 64.
#include <cstddef>
#include <cstring>
#include <string_view>

namespace mm {

using DotFunction = float (*)(const float* a, const float* b, std::size_t n);

namespace dot {

// Four sums per loop, so that the latency of an addition does not limit the rate.
#define MM_DOT(NAME, TARGET, BYTES)                                         \
  TARGET inline float NAME(const float* a, const float* b, std::size_t n) { \
    using V = float __attribute__((vector_size(BYTES)));                    \
    constexpr std::size_t kLanes = (BYTES) / sizeof(float);                 \
    V sum[4] = {};                                                          \
    for (std::size_t i = 0; i < n; i += 4 * kLanes)                         \
      for (std::size_t k = 0; k < 4; ++k) {                                 \
        V x, y;                                                             \
        std::memcpy(&x, a + i + k * kLanes, sizeof x);                      \
        std::memcpy(&y, b + i + k * kLanes, sizeof y);                      \
        sum[k] += x * y;                                                    \
      }                                                                     \
    const V all = (sum[0] + sum[1]) + (sum[2] + sum[3]);                    \
    float total = 0;                                                        \
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += all[lane];   \
    return total;                                                           \
  }

#if defined(__x86_64__)
MM_DOT(avx512, __attribute__((target("avx512f"))), 64)
MM_DOT(avx2, __attribute__((target("avx2,fma"))), 32)
#endif
MM_DOT(narrow, , 16)
#undef MM_DOT

}  // namespace dot

/// Returns the function for an instruction set, as `best_isa` names it.
inline DotFunction dot_function([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "avx512") return dot::avx512;
  if (isa == "avx2") return dot::avx2;
#endif
  return dot::narrow;
}

}  // namespace mm

#pragma once
/// Compute-only loops: chains of x = x · m + a in registers, enough of them to fill the pipelines of all units.
///
/// With m = 1/2 and a = 1 every chain converges to exactly 2, whatever the type, so that the result can be verified and
/// nothing overflows. Integers use x = x · 3 + 1 modulo 2³², which has a closed form.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mm {

enum class FmaType { fp64, fp32, int32 };

/// Runs `iterations` steps of every chain and returns a checksum: the summed distances of all lanes from their expected
/// values (0 if all are correct). Operations: iterations · lanes · 2.
using FmaFunction = double (*)(std::uint64_t iterations);

struct FmaKernel {
  FmaFunction run = nullptr;  ///< nullptr: the instruction set has no such instruction
  int lanes = 0;              ///< chains × elements of a vector
};

namespace fma {

/// Returns x after n steps of x = 3x + 1 from 0, modulo 2^32: (3^n - 1) / 2.
inline std::uint32_t affine(std::uint64_t n) {
  std::uint64_t power = 1, base = 3, mask = 0x1ffffffff;  // one extra bit for the halving
  for (std::uint64_t e = n; e != 0; e >>= 1, base = base * base & mask)
    if (e & 1) power = power * base & mask;
  return static_cast<std::uint32_t>(((power - 1) & mask) >> 1);
}

// Twelve chains and two constants fit into sixteen registers; two units with a latency of four cycles need eight
// chains, five cycles need ten.
#define MM_CHAINS(STEP) \
  STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)

// Keeps every chain in a register at the end of a step, and keeps the steps separate.
#define MM_HOLD                                                                                                  \
  asm volatile(""                                                                                                \
               : "+" MM_REG(x0), "+" MM_REG(x1), "+" MM_REG(x2), "+" MM_REG(x3), "+" MM_REG(x4), "+" MM_REG(x5), \
                 "+" MM_REG(x6), "+" MM_REG(x7), "+" MM_REG(x8), "+" MM_REG(x9), "+" MM_REG(x10), "+" MM_REG(x11));

#define MM_STORE_ALL(WIDTH, STORE) \
  STORE(out, x0);                  \
  STORE(out + WIDTH, x1);          \
  STORE(out + 2 * WIDTH, x2);      \
  STORE(out + 3 * WIDTH, x3);      \
  STORE(out + 4 * WIDTH, x4);      \
  STORE(out + 5 * WIDTH, x5);      \
  STORE(out + 6 * WIDTH, x6);      \
  STORE(out + 7 * WIDTH, x7);      \
  STORE(out + 8 * WIDTH, x8);      \
  STORE(out + 9 * WIDTH, x9);      \
  STORE(out + 10 * WIDTH, x10);    \
  STORE(out + 11 * WIDTH, x11);

#define MM_FLOAT_KERNEL(NAME, TARGET, V, T, WIDTH, SET, STEP_EXPR, STORE)                                             \
  TARGET inline double NAME(std::uint64_t iterations) {                                                               \
    const V m = SET(static_cast<T>(0.5)), a = SET(static_cast<T>(1));                                                 \
    V x0 = SET(static_cast<T>(1.5)), x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0, x7 = x0, x8 = x0, x9 = x0, \
      x10 = x0, x11 = x0;                                                                                             \
    for (std::uint64_t i = iterations; i != 0; --i) {                                                                 \
      MM_CHAINS(STEP_EXPR)                                                                                            \
      MM_HOLD                                                                                                         \
    }                                                                                                                 \
    alignas(64) T out[12 * WIDTH];                                                                                    \
    MM_STORE_ALL(WIDTH, STORE)                                                                                        \
    double wrong = 0;                                                                                                 \
    for (T lane : out) wrong += iterations < 64 ? 0 : static_cast<double>(lane > 2 ? lane - 2 : 2 - lane);            \
    return wrong;                                                                                                     \
  }

#define MM_INT_KERNEL(NAME, TARGET, V, WIDTH, SET, STEP_EXPR, STORE)                                          \
  TARGET inline double NAME(std::uint64_t iterations) {                                                       \
    const V m = SET(3), a = SET(1);                                                                           \
    V x0 = SET(0), x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0, x7 = x0, x8 = x0, x9 = x0, x10 = x0, \
      x11 = x0;                                                                                               \
    for (std::uint64_t i = iterations; i != 0; --i) {                                                         \
      MM_CHAINS(STEP_EXPR)                                                                                    \
      MM_HOLD                                                                                                 \
    }                                                                                                         \
    alignas(64) std::uint32_t out[12 * WIDTH];                                                                \
    MM_STORE_ALL(WIDTH, STORE)                                                                                \
    double wrong = 0;                                                                                         \
    for (std::uint32_t lane : out) wrong += lane != affine(iterations);                                       \
    return wrong;                                                                                             \
  }

#if defined(__x86_64__)
#define MM_AVX2 __attribute__((target("avx2,fma")))
#define MM_AVX512 __attribute__((target("avx512f,avx512dq")))
#define MM_REG(x) "x"(x)
#define MM_S(k) x##k = _mm_add_pd(_mm_mul_pd(x##k, m), a);
MM_FLOAT_KERNEL(sse2_fp64, , __m128d, double, 2, _mm_set1_pd, MM_S, _mm_store_pd)
#undef MM_S
#define MM_S(k) x##k = _mm_add_ps(_mm_mul_ps(x##k, m), a);
MM_FLOAT_KERNEL(sse2_fp32, , __m128, float, 4, _mm_set1_ps, MM_S, _mm_store_ps)
#undef MM_S
#define MM_S(k) x##k = _mm256_fmadd_pd(x##k, m, a);
MM_FLOAT_KERNEL(avx2_fp64, MM_AVX2, __m256d, double, 4, _mm256_set1_pd, MM_S, _mm256_store_pd)
#undef MM_S
#define MM_S(k) x##k = _mm256_fmadd_ps(x##k, m, a);
MM_FLOAT_KERNEL(avx2_fp32, MM_AVX2, __m256, float, 8, _mm256_set1_ps, MM_S, _mm256_store_ps)
#undef MM_S
#define MM_S(k) x##k = _mm256_add_epi32(_mm256_mullo_epi32(x##k, m), a);
#define MM_STORE(p, v) _mm256_store_si256(reinterpret_cast<__m256i*>(p), v)
MM_INT_KERNEL(avx2_int32, MM_AVX2, __m256i, 8, _mm256_set1_epi32, MM_S, MM_STORE)
#undef MM_STORE
#undef MM_S
#undef MM_REG
#define MM_REG(x) "v"(x)
#define MM_S(k) x##k = _mm512_fmadd_pd(x##k, m, a);
MM_FLOAT_KERNEL(avx512_fp64, MM_AVX512, __m512d, double, 8, _mm512_set1_pd, MM_S, _mm512_store_pd)
#undef MM_S
#define MM_S(k) x##k = _mm512_fmadd_ps(x##k, m, a);
MM_FLOAT_KERNEL(avx512_fp32, MM_AVX512, __m512, float, 16, _mm512_set1_ps, MM_S, _mm512_store_ps)
#undef MM_S
#define MM_S(k) x##k = _mm512_add_epi32(_mm512_mullo_epi32(x##k, m), a);
#define MM_STORE(p, v) _mm512_store_si512(p, v)
MM_INT_KERNEL(avx512_int32, MM_AVX512, __m512i, 16, _mm512_set1_epi32, MM_S, MM_STORE)
#undef MM_STORE
#undef MM_S
#undef MM_REG
#elif defined(__aarch64__)
#define MM_REG(x) "w"(x)
#define MM_S(k) x##k = vfmaq_f64(a, x##k, m);
MM_FLOAT_KERNEL(neon_fp64, , float64x2_t, double, 2, vdupq_n_f64, MM_S, vst1q_f64)
#undef MM_S
#define MM_S(k) x##k = vfmaq_f32(a, x##k, m);
MM_FLOAT_KERNEL(neon_fp32, , float32x4_t, float, 4, vdupq_n_f32, MM_S, vst1q_f32)
#undef MM_S
#define MM_S(k) x##k = vmlaq_u32(a, x##k, m);
MM_INT_KERNEL(neon_int32, , uint32x4_t, 4, vdupq_n_u32, MM_S, vst1q_u32)
#undef MM_S
#undef MM_REG
#endif

#undef MM_HOLD
#undef MM_STORE_ALL
#undef MM_CHAINS
#undef MM_FLOAT_KERNEL
#undef MM_INT_KERNEL

}  // namespace fma

/// Returns the kernel of a type and an instruction set, which the processor must support; `run` is nullptr if the set
/// has no such kernel.
inline FmaKernel fma_kernel(std::string_view isa, FmaType type) {
#if defined(__x86_64__)
  if (isa == "sse2" && type == FmaType::fp64) return {fma::sse2_fp64, 24};
  if (isa == "sse2" && type == FmaType::fp32) return {fma::sse2_fp32, 48};
  if (isa == "avx2" && type == FmaType::fp64) return {fma::avx2_fp64, 48};
  if (isa == "avx2" && type == FmaType::fp32) return {fma::avx2_fp32, 96};
  if (isa == "avx2" && type == FmaType::int32) return {fma::avx2_int32, 96};
  if (isa == "avx512" && type == FmaType::fp64) return {fma::avx512_fp64, 96};
  if (isa == "avx512" && type == FmaType::fp32) return {fma::avx512_fp32, 192};
  if (isa == "avx512" && type == FmaType::int32) return {fma::avx512_int32, 192};
#elif defined(__aarch64__)
  if (isa == "neon" && type == FmaType::fp64) return {fma::neon_fp64, 24};
  if (isa == "neon" && type == FmaType::fp32) return {fma::neon_fp32, 48};
  if (isa == "neon" && type == FmaType::int32) return {fma::neon_int32, 48};
#endif
  return {};
}

}  // namespace mm

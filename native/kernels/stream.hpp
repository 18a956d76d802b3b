#pragma once
/// Streaming loops: copy, scale, add, triad (after STREAM: McCalpin, Memory Bandwidth and Machine Balance in
/// Current High Performance Computers, 1995), read, write and in-place update, with write-allocate (regular) and with
/// streaming (non-temporal) stores, for every vector width.
#include <array>
#include <cstddef>
#include <string_view>

#include "kernels/isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#if defined(__ARM_FEATURE_SVE) || (defined(__GNUC__) && __GNUC__ >= 12)
#define MM_HAVE_SVE 1
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+sve")
#include <arm_sve.h>
#pragma GCC pop_options
#endif
#endif

namespace mm {

enum class StreamKernel { copy, scale, add, triad, read, write, update };

/// `a` is written (read: summed), `b` and `c` are read; `s` is the factor. Returns the sum for `read`, otherwise 0.
using StreamFunction = double (*)(double* a, const double* b, const double* c, std::size_t n, double s);

struct StreamTable {
  /// `ahead` contains `streaming` with a software prefetch; for kernels without loads, both have the same functions.
  std::array<StreamFunction, 7> ordinary, streaming, ahead;
};

struct StreamShape {
  std::string_view name;
  int arrays;         ///< number of arrays that the kernel accesses
  int reads, writes;  ///< doubles per element; as in STREAM, every operand counts once
  int allocates;      ///< doubles that write-allocate stores read, too, before they write a line
  int flops;          ///< per element
  double net() const { return 8.0 * (reads + writes); }  ///< B per element
  double allocated() const { return 8.0 * allocates; }   ///< B per element
};

inline constexpr std::array<StreamShape, 7> kStreamShapes{{{"copy", 2, 1, 1, 1, 0},
                                                           {"scale", 2, 1, 1, 1, 1},
                                                           {"add", 3, 2, 1, 1, 1},
                                                           {"triad", 3, 2, 1, 1, 2},
                                                           {"read", 1, 1, 0, 0, 1},
                                                           {"write", 1, 0, 1, 1, 0},
                                                           {"update", 1, 1, 1, 0, 1}}};

/// Returns whether a thread moved more than the ports of any core to its first-level cache allow: three loads and two
/// stores of a full vector per cycle, and a margin. `core_hz` measures the clock once; interrupted trials are too low,
/// so only the best of many trials counts.
template <class CoreHz>
bool beyond_ports(double bytes_per_s, double vector_bytes, const CoreHz& core_hz) {
  for (int trial = 0; trial < 20; ++trial)
    if (bytes_per_s <= 1.3 * 5 * vector_bytes * core_hz()) return false;
  return true;
}

namespace stream {

inline constexpr std::size_t kAhead = 128;  // doubles: 1 KiB ahead of the loads

#if defined(__x86_64__)
inline double hsum(__m128d v) { return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v))); }

#define MM_ISA sse2
#define MM_T
#define V __m128d
#define W std::size_t{2}
#define LD(p) _mm_load_pd(p)
#define ST(p, v) _mm_store_pd(p, v)
#define NT(p, v) _mm_stream_pd(p, v)
#define MUL(x, y) _mm_mul_pd(x, y)
#define ADD(x, y) _mm_add_pd(x, y)
#define FMA(x, y, z) _mm_add_pd(_mm_mul_pd(x, y), z)
#define SET(x) _mm_set1_pd(x)
#define SUM(v) hsum(v)
#define FENCE() _mm_sfence()
#include "kernels/stream_isa.inc"

#define MM_ISA avx2
#define MM_T __attribute__((target("avx2,fma")))
#define V __m256d
#define W std::size_t{4}
#define LD(p) _mm256_load_pd(p)
#define ST(p, v) _mm256_store_pd(p, v)
#define NT(p, v) _mm256_stream_pd(p, v)
#define MUL(x, y) _mm256_mul_pd(x, y)
#define ADD(x, y) _mm256_add_pd(x, y)
#define FMA(x, y, z) _mm256_fmadd_pd(x, y, z)
#define SET(x) _mm256_set1_pd(x)
#define SUM(v) hsum(_mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1)))
#define FENCE() _mm_sfence()
#include "kernels/stream_isa.inc"

// Written by hand, because the reduction of the compiler starts from an undefined value and causes a warning.
__attribute__((target("avx512f"))) inline double hsum(__m512d v) {
  alignas(64) double lane[8];
  _mm512_store_pd(lane, v);
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

#define MM_ISA avx512
#define MM_T __attribute__((target("avx512f,avx512dq")))
#define V __m512d
#define W std::size_t{8}
#define LD(p) _mm512_load_pd(p)
#define ST(p, v) _mm512_store_pd(p, v)
#define NT(p, v) _mm512_stream_pd(p, v)
#define MUL(x, y) _mm512_mul_pd(x, y)
#define ADD(x, y) _mm512_add_pd(x, y)
#define FMA(x, y, z) _mm512_fmadd_pd(x, y, z)
#define SET(x) _mm512_set1_pd(x)
#define SUM(v) hsum(v)
#define FENCE() _mm_sfence()
#include "kernels/stream_isa.inc"

#elif defined(__aarch64__)

// Arm's streaming store of a pair is STNP, which has no intrinsic.
#define MM_ISA neon
#define MM_T
#define V float64x2_t
#define W std::size_t{2}
#define LD(p) vld1q_f64(p)
#define ST(p, v) vst1q_f64(p, v)
#define NT(p, v) asm volatile("stnp %d0, %d1, [%2]" : : "w"(vget_low_f64(v)), "w"(vget_high_f64(v)), "r"(p) : "memory")
#define MUL(x, y) vmulq_f64(x, y)
#define ADD(x, y) vaddq_f64(x, y)
#define FMA(x, y, z) vfmaq_f64(z, x, y)
#define SET(x) vdupq_n_f64(x)
#define SUM(v) vaddvq_f64(v)
#define FENCE() asm volatile("dmb ishst" : : : "memory")
#include "kernels/stream_isa.inc"

#if defined(MM_HAVE_SVE)
#define MM_ISA sve
#define MM_T __attribute__((target("arch=armv8.2-a+sve")))
#define V svfloat64_t
#define W svcntd()
#define LD(p) svld1_f64(svptrue_b64(), p)
#define ST(p, v) svst1_f64(svptrue_b64(), p, v)
#define NT(p, v) svstnt1_f64(svptrue_b64(), p, v)
#define MUL(x, y) svmul_f64_x(svptrue_b64(), x, y)
#define ADD(x, y) svadd_f64_x(svptrue_b64(), x, y)
#define FMA(x, y, z) svmla_f64_x(svptrue_b64(), z, x, y)
#define SET(x) svdup_n_f64(x)
#define SUM(v) svaddv_f64(svptrue_b64(), v)
#define FENCE() asm volatile("dmb ishst" : : : "memory")
#include "kernels/stream_isa.inc"
#endif
#endif

}  // namespace stream

/// Returns the kernels of an instruction set, which the processor must support; nullptr if they are not built.
inline const StreamTable* stream_table(std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "sse2") return &stream::sse2::kTable;
  if (isa == "avx2") return &stream::avx2::kTable;
  if (isa == "avx512") return &stream::avx512::kTable;
#elif defined(__aarch64__)
  if (isa == "neon") return &stream::neon::kTable;
#if defined(MM_HAVE_SVE)
  if (isa == "sve") return &stream::sve::kTable;
#endif
#endif
  return nullptr;
}

}  // namespace mm

#pragma once
/// Fourier transforms of 2^k complex numbers, for many rows at once. Stockham's autosort algorithm with passes of four,
/// and one pass of two if k is odd: a pass reads one array and writes the other. Source: Swarztrauber, FFT algorithms
/// for vector computers, Parallel Computing 1 (1984).
#include <cstddef>
#include <utility>

#include "apps/pstswm/turns.hpp"

#define MM_INLINE [[gnu::always_inline]] inline

namespace mm::pstswm {

/// Real and imaginary parts of rows. Number k of row w is at k * width + w.
struct Rows {
  double *re, *im;
};

/// Computes one butterfly of four for `count` neighbours: from x, whose parts are `from` apart, to y, whose parts are
/// `to` apart. `sign` is 1 for backward, exp(+i ...), and -1 for forward.
template <class Count>
MM_INLINE void butterflies(Rows x, Rows y, std::size_t from, std::size_t to, const double* w, double sign,
                           Count count) {
  const double w1r = w[0], w1i = sign * w[1], w2r = w[2], w2i = sign * w[3], w3r = w[4], w3i = sign * w[5];
  const double* const __restrict xr = x.re, * const __restrict xi = x.im;
  double* const __restrict yr = y.re, * const __restrict yi = y.im;
  const std::size_t n = count;
#pragma omp simd
  for (std::size_t q = 0; q < n; ++q) {
    const double ar = xr[q], br = xr[q + from], cr = xr[q + 2 * from], dr = xr[q + 3 * from];
    const double ai = xi[q], bi = xi[q + from], ci = xi[q + 2 * from], di = xi[q + 3 * from];
    const double sr = ar + cr, si = ai + ci, tr = ar - cr, ti = ai - ci;
    const double ur = br + dr, ui = bi + di, vr = sign * (di - bi), vi = sign * (br - dr);  // v = sign i (b - d)
    const double er = tr + vr, ei = ti + vi, fr = sr - ur, fi = si - ui, gr = tr - vr, gi = ti - vi;
    yr[q] = sr + ur;
    yi[q] = si + ui;
    yr[q + to] = w1r * er - w1i * ei;
    yi[q + to] = w1r * ei + w1i * er;
    yr[q + 2 * to] = w2r * fr - w2i * fi;
    yi[q + 2 * to] = w2r * fi + w2i * fr;
    yr[q + 3 * to] = w3r * gr - w3i * gi;
    yi[q + 3 * to] = w3r * gi + w3i * gr;
  }
}

/// Transforms `width` rows, unscaled, and returns the one of the two arrays that contains the result. Kind::kFused
/// joins the loops over neighbouring numbers and over rows into one long loop.
template <class Kind, int Sign, class Width>
MM_INLINE Rows transform(const Turns& turns, Rows x, Rows y, Width width) {
  const auto length = static_cast<std::size_t>(turns.length());
  const double* w = turns.data();
  std::size_t n = length, s = 1;
  for (; n >= 4; n /= 4, s *= 4) {
    const std::size_t quarter = n / 4, source_step = s * quarter * width, target_step = s * width;
    for (std::size_t p = 0; p < quarter; ++p, w += 6) {
      const std::size_t in = s * p * width, out = 4 * s * p * width;
      if constexpr (Kind::kFused) {
        butterflies({x.re + in, x.im + in}, {y.re + out, y.im + out}, source_step, target_step, w, Sign, s * width);
      } else {
        for (std::size_t q = 0; q < s; ++q)
          butterflies({x.re + in + q * width, x.im + in + q * width}, {y.re + out + q * width, y.im + out + q * width},
                      source_step, target_step, w, Sign, width);
      }
    }
    std::swap(x, y);
  }
  if (n == 2) {
    const std::size_t half = s * width;
    const double* const __restrict xr = x.re, * const __restrict xi = x.im;
    double* const __restrict yr = y.re, * const __restrict yi = y.im;
#pragma omp simd
    for (std::size_t q = 0; q < half; ++q) {
      const double ar = xr[q], ai = xi[q], br = xr[q + half], bi = xi[q + half];
      yr[q] = ar + br;
      yi[q] = ai + bi;
      yr[q + half] = ar - br;
      yi[q + half] = ai - bi;
    }
    std::swap(x, y);
  }
  return x;
}

}  // namespace mm::pstswm

/// The timed loops, for each variant and instruction set.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "apps/pstswm/fourier.hpp"
#include "apps/pstswm/model.hpp"
#include "kernels/isa.hpp"

namespace mm::pstswm {
namespace {

/// The order of the loops of a variant. Rows are numbered field by field, each by `outer` times `inner`, and `inner` is
/// contiguous in the waves too.
struct Plain {
  static constexpr bool kFused = false, kByLatitudes = false;
  std::size_t levels;
  explicit Plain(const Model& model) : levels(static_cast<std::size_t>(model.levels())) {}
};

template <int Levels>
struct Fixed {
  static constexpr bool kFused = false, kByLatitudes = false;
  static constexpr std::integral_constant<std::size_t, Levels> levels{};
  explicit Fixed(const Model&) {}
};

struct Vector {
  static constexpr bool kFused = true, kByLatitudes = true;
  std::size_t levels;
  explicit Vector(const Model& model) : levels(static_cast<std::size_t>(model.levels())) {}
};

template <std::size_t Factor, class Levels>
MM_INLINE auto times(Levels levels) {
  if constexpr (std::is_integral_v<Levels>)
    return Factor * levels;
  else
    return std::integral_constant<std::size_t, Factor * Levels::value>{};
}

template <class Levels>
inline constexpr std::size_t most = std::is_integral_v<Levels> ? std::size_t{kMaxLevels} : std::size_t{Levels{}};

/// Computes the coefficients from which waves are summed, for each degree: for P, absolute vorticity, geopotential, and
/// the parts of U and V that come from the derivative in longitude; for H, the parts of U and V that come from the
/// derivative in latitude.
template <class Levels>
MM_INLINE void prepare(const Model& model, int m, Levels levels, double* to) {
  const std::size_t count = levels, first = static_cast<std::size_t>(model.sphere().first(m));
  const auto wave = static_cast<double>(m);
  for (int n = m; n <= model.truncation(); ++n, to += 2 * kPrepared * count) {
    const std::size_t c = first + static_cast<std::size_t>(n - m), offset = 2 * c * count;
    const double curl = model.t.curl[static_cast<std::size_t>(n)], rotation = model.t.rotation[c];
    const double *const __restrict vorticity = model.t.now[kVorticity] + offset,
                                   *const __restrict divergence = model.t.now[kDivergence] + offset,
                                   *const __restrict geopotential = model.t.now[kGeopotential] + offset;
    double* const __restrict out = to;
#pragma omp simd
    for (std::size_t l = 0; l < count; ++l) {
      const double zr = curl * (vorticity[l] - rotation), zi = curl * vorticity[count + l];
      const double dr = curl * divergence[l], di = curl * divergence[count + l];
      out[l] = vorticity[l];
      out[count + l] = vorticity[count + l];
      out[2 * count + l] = geopotential[l];
      out[3 * count + l] = geopotential[count + l];
      out[4 * count + l] = wave * di;
      out[5 * count + l] = -(wave * dr);
      out[6 * count + l] = wave * zi;
      out[7 * count + l] = -(wave * zr);
      out[8 * count + l] = zr;
      out[9 * count + l] = zi;
      out[10 * count + l] = -dr;
      out[11 * count + l] = -di;
    }
  }
}

/// Adds one degree to the waves of a pair: eight numbers of each level to the part of the same symmetry, and four to
/// the other part.
template <class Levels>
MM_INLINE void add_degree(double* same, double* other, const double* from, double p, double h, Levels levels) {
  const std::size_t count = levels;
  for (std::size_t x = 0; x < 8; ++x)
    for (std::size_t l = 0; l < count; ++l) same[x * count + l] += p * from[x * count + l];
  for (std::size_t x = 0; x < 4; ++x)
    for (std::size_t l = 0; l < count; ++l) other[(4 + x) * count + l] += h * from[(8 + x) * count + l];
}

template <class Levels>
MM_INLINE void synthesise_by_levels(const Model& model, int m, Levels levels, const double* prepared) {
  const std::size_t count = levels, degrees = static_cast<std::size_t>(model.truncation() - m) + 1;
  const std::size_t step = 2 * kPrepared * count;
  const double* p = model.function(m);
  double* wave = model.wave(m);
  for (int j = 0; j < model.pairs(); ++j, p += 2 * degrees, wave += 4 * kWaves * count) {
    double even[8 * most<Levels>], odd[8 * most<Levels>];
    for (std::size_t x = 0; x < 8; ++x)
      for (std::size_t l = 0; l < count; ++l) even[x * count + l] = odd[x * count + l] = 0;
    std::size_t k = 0;
    for (; k + 1 < degrees; k += 2) {
      add_degree(even, odd, prepared + k * step, p[k], p[degrees + k], levels);
      add_degree(odd, even, prepared + (k + 1) * step, p[k + 1], p[degrees + k + 1], levels);
    }
    if (k < degrees) add_degree(even, odd, prepared + k * step, p[k], p[degrees + k], levels);
    for (std::size_t x = 0; x < 8 * count; ++x) {
      wave[x] = even[x];
      wave[2 * kWaves * count + x] = odd[x];
    }
  }
}

/// Adds two degrees at a time, so that waves are loaded and stored half as often. The pointers are to one level's
/// pairs.
MM_INLINE void add_two_degrees(double* const (&even)[8], double* const (&odd)[8], const double* f, std::size_t pairs,
                               const double (&a)[12], const double (&b)[12]) {
  for (std::size_t x = 0; x < 8; ++x) {
    double* const __restrict e = even[x], * const __restrict o = odd[x];
    const double* const __restrict p = f, * const __restrict h = f + pairs, * const __restrict q = f + 2 * pairs, * const __restrict g = f + 3 * pairs;
    if (x < 4) {
#pragma omp simd
      for (std::size_t j = 0; j < pairs; ++j) {
        e[j] += p[j] * a[x];
        o[j] += q[j] * b[x];
      }
    } else {
#pragma omp simd
      for (std::size_t j = 0; j < pairs; ++j) {
        e[j] += p[j] * a[x] + g[j] * b[4 + x];
        o[j] += q[j] * b[x] + h[j] * a[4 + x];
      }
    }
  }
}

MM_INLINE void synthesise_by_latitudes(const Model& model, int m, std::size_t levels, const double* prepared) {
  const auto pairs = static_cast<std::size_t>(model.pairs());
  const std::size_t degrees = static_cast<std::size_t>(model.truncation() - m) + 1, step = 2 * kPrepared * levels;
  double* const wave = model.wave(m);
  for (std::size_t l = 0; l < levels; ++l) {
    double *even[8], *odd[8];
    for (std::size_t x = 0; x < 8; ++x) {
      even[x] = wave + (x * levels + l) * pairs;
      odd[x] = wave + ((2 * kWaves + x) * levels + l) * pairs;
      std::fill_n(even[x], pairs, 0.0);
      std::fill_n(odd[x], pairs, 0.0);
    }
    for (std::size_t k = 0; k < degrees; k += 2) {
      double a[12], b[12] = {};
      for (std::size_t x = 0; x < 12; ++x) a[x] = prepared[k * step + x * levels + l];
      const double* const f = model.function(m) + 2 * k * pairs;
      if (k + 1 < degrees) {
        for (std::size_t x = 0; x < 12; ++x) b[x] = prepared[(k + 1) * step + x * levels + l];
        add_two_degrees(even, odd, f, pairs, a, b);
        continue;
      }
      for (std::size_t x = 0; x < 8; ++x) {
        double* const __restrict e = even[x], * const __restrict o = odd[x];
#pragma omp simd
        for (std::size_t j = 0; j < pairs; ++j) e[j] += f[j] * a[x];
        if (x < 4) continue;
#pragma omp simd
        for (std::size_t j = 0; j < pairs; ++j) o[j] += f[pairs + j] * a[4 + x];
      }
    }
  }
}

template <class Kind>
MM_INLINE void synthesise(Model& model, int rank) {
  const Kind kind(model);
  double* const prepared = model.t.thread_blocks[static_cast<std::size_t>(rank)];
  for (const int m : model.t.waves_of[static_cast<std::size_t>(rank)]) {
    prepare(model, m, kind.levels, prepared);
    if constexpr (Kind::kByLatitudes)
      synthesise_by_latitudes(model, m, kind.levels, prepared);
    else
      synthesise_by_levels(model, m, kind.levels, prepared);
  }
}

/// Computes the sums over pairs, for each degree: products of P with fields 0 to 3 of the same symmetry, and of H with
/// fields 2 to 4 of the other.
template <class Levels>
MM_INLINE void sum_by_levels(const Model& model, int m, Levels levels, double* sums) {
  const std::size_t count = levels, degrees = static_cast<std::size_t>(model.truncation() - m) + 1;
  for (std::size_t k = 0; k < degrees; ++k) {
    double sum[2 * kSums * most<Levels>];
    for (std::size_t x = 0; x < 2 * kSums; ++x)
      for (std::size_t l = 0; l < count; ++l) sum[x * count + l] = 0;
    const double* function = model.function(m) + k;
    const double* same = model.wave(m) + (k % 2) * 2 * kWaves * count;
    const double* other = model.wave(m) + (1 - k % 2) * 2 * kWaves * count;
    for (int j = 0; j < model.pairs(); ++j) {
      const double p = function[0], h = function[degrees];
      for (std::size_t x = 0; x < 8; ++x)
        for (std::size_t l = 0; l < count; ++l) sum[x * count + l] += p * same[x * count + l];
      for (std::size_t x = 0; x < 6; ++x)
        for (std::size_t l = 0; l < count; ++l) sum[(8 + x) * count + l] += h * other[(4 + x) * count + l];
      function += 2 * degrees;
      same += 4 * kWaves * count;
      other += 4 * kWaves * count;
    }
    for (std::size_t x = 0; x < 2 * kSums * count; ++x) sums[k * 2 * kSums * count + x] = sum[x];
  }
}

MM_INLINE void sum_by_latitudes(const Model& model, int m, std::size_t levels, double* sums) {
  const auto pairs = static_cast<std::size_t>(model.pairs());
  const std::size_t degrees = static_cast<std::size_t>(model.truncation() - m) + 1, field = levels * pairs;
  for (std::size_t k = 0; k < degrees; ++k)
    for (std::size_t l = 0; l < levels; ++l) {
      const double *const p = model.function(m) + 2 * k * pairs, *const h = p + pairs;
      const double* const same = model.wave(m) + (k % 2) * 2 * kWaves * field + l * pairs;
      const double* const other = model.wave(m) + (1 - k % 2) * 2 * kWaves * field + l * pairs;
      double a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0;
      double* target = sums + k * 2 * kSums * levels + l;
      for (std::size_t part = 0; part < 2; ++part, target += levels) {  // real, imaginary
        const double *const s = same + part * field, *const o = other + part * field;
        a = b = c = d = e = f = g = 0;
#pragma omp simd reduction(+ : a, b, c, d, e, f, g)
        for (std::size_t j = 0; j < pairs; ++j) {
          a += p[j] * s[j];
          b += p[j] * s[j + 2 * field];
          c += p[j] * s[j + 4 * field];
          d += p[j] * s[j + 6 * field];
          e += h[j] * o[j + 4 * field];
          f += h[j] * o[j + 6 * field];
          g += h[j] * o[j + 8 * field];
        }
        const double values[kSums] = {a, b, c, d, e, f, g};
        for (std::size_t x = 0; x < kSums; ++x) target[2 * x * levels] = values[x];
      }
    }
}

/// A semi-implicit leapfrog step of one number of each field, and the filter of the present number.
struct LeapfrogStep {
  double leap, half_mean, filter, stiffness, inverse;

  MM_INLINE void operator()(double* const (&now)[kFields], double* const (&before)[kFields], std::size_t at,
                            double vorticity, double divergence, double geopotential) const {
    const double z = before[kVorticity][at] + leap * vorticity;
    const double r = before[kDivergence][at] + leap * divergence + stiffness * before[kGeopotential][at];
    const double q = before[kGeopotential][at] + leap * geopotential - half_mean * before[kDivergence][at];
    const double d = (r + stiffness * q) * inverse;
    const double next[kFields] = {z, d, q - half_mean * d};
    for (std::size_t f = 0; f < kFields; ++f) {
      const double x = now[f][at];
      before[f][at] = x + filter * (before[f][at] - 2 * x + next[f]);
      now[f][at] = next[f];
    }
  }
};

/// Computes the tendencies of vorticity, divergence and geopotential from the sums, and the step.
template <class Levels>
MM_INLINE void step(Model& model, int m, Levels levels, const double* sums) {
  const std::size_t count = levels, first = static_cast<std::size_t>(model.sphere().first(m));
  const auto wave = static_cast<double>(m);
  for (int n = m; n <= model.truncation(); ++n, sums += 2 * kSums * count) {
    const std::size_t offset = 2 * (first + static_cast<std::size_t>(n - m)) * count;
    const auto degree = static_cast<std::size_t>(n);
    const LeapfrogStep step{model.t.leap, model.t.half_mean, model.t.filter, model.t.stiffness[degree],
                            model.t.inverse[degree]};
    const double laplace = model.t.laplace[degree];
    double* const now[kFields] = {model.t.now[0] + offset, model.t.now[1] + offset, model.t.now[2] + offset};
    double* const before[kFields] = {model.t.before[0] + offset, model.t.before[1] + offset,
                                     model.t.before[2] + offset};
    const double* const s = sums;
#pragma GCC ivdep
    for (std::size_t l = 0; l < count; ++l) {
      const double er = s[l], ei = s[count + l], ur = s[2 * count + l], ui = s[3 * count + l];
      const double ar = s[4 * count + l], ai = s[5 * count + l], br = s[6 * count + l], bi = s[7 * count + l];
      const double har = s[8 * count + l], hai = s[9 * count + l], hbr = s[10 * count + l], hbi = s[11 * count + l];
      const double hvr = s[12 * count + l], hvi = s[13 * count + l];
      step(now, before, l, hbr + wave * ai, har - wave * bi + laplace * er, hvr + wave * ui);
      step(now, before, count + l, hbi - wave * ar, hai + wave * br + laplace * ei, hvi - wave * ur);
    }
  }
}

template <class Kind>
MM_INLINE void advance(Model& model, int rank) {
  const Kind kind(model);
  double* const sums = model.t.thread_blocks[static_cast<std::size_t>(rank)];
  for (const int m : model.t.waves_of[static_cast<std::size_t>(rank)]) {
    if constexpr (Kind::kByLatitudes)
      sum_by_latitudes(model, m, kind.levels, sums);
    else
      sum_by_levels(model, m, kind.levels, sums);
    step(model, m, kind.levels, sums);
  }
}

/// The positions of the waves of some pairs, and the order of the loops over them.
template <class Inner>
struct WaveLayout {
  std::size_t outer, outer_step;  ///< the outer loop, and its step in the waves
  Inner inner;
  std::size_t field, part, imaginary;  ///< steps in the waves
};

/// Copies waves to rows of Fourier coefficients. The northern latitude is the real and the southern one the imaginary
/// part.
template <class Inner>
MM_INLINE void fetch(const Model& model, const WaveLayout<Inner>& a, std::size_t offset, Rows x) {
  const std::size_t inner = a.inner, rows = a.outer * inner, width = kToGrid * rows;
  const auto waves = static_cast<std::size_t>(model.truncation()) + 1;
  const auto longitudes = static_cast<std::size_t>(model.sphere().longitudes());
  std::fill(x.re + waves * width, x.re + (longitudes - waves + 1) * width, 0.0);
  std::fill(x.im + waves * width, x.im + (longitudes - waves + 1) * width, 0.0);
  for (std::size_t m = 0; m < waves; ++m) {
    const double* const wave = model.wave(static_cast<int>(m)) + offset;
    const std::size_t plus = m * width, minus = (m == 0 ? 0 : longitudes - m) * width;
    for (std::size_t f = 0; f < kToGrid; ++f)
      for (std::size_t o = 0; o < a.outer; ++o) {
        const double* const __restrict even = wave + f * a.field + o * a.outer_step;
        const std::size_t row = f * rows + o * inner;
        // For m = 0, whose imaginary parts are 0, both are the same place, which gets the same value twice.
        double *const pr = x.re + plus + row, *const pi = x.im + plus + row;
        double *const mr = x.re + minus + row, *const mi = x.im + minus + row;
#pragma omp simd
        for (std::size_t i = 0; i < inner; ++i) {
          const double er = even[i], ei = even[a.imaginary + i];
          const double odr = even[a.part + i], odi = even[a.part + a.imaginary + i];
          const double nr = er + odr, ni = ei + odi, sr = er - odr, si = ei - odi;
          pr[i] = nr - si;
          pi[i] = ni + sr;
          mr[i] = nr + si;
          mi[i] = sr - ni;
        }
      }
  }
}

/// Computes the products on the grid, from the fields before the products to the fields after them.
template <class Count>
MM_INLINE void multiply(const Rows& x, const Rows& y, std::size_t longitudes, Count rows) {
  const std::size_t n = rows;
  for (std::size_t i = 0; i < longitudes; ++i)
    for (const bool south : {false, true}) {
      const double* const __restrict in = (south ? x.im : x.re) + i * kToGrid * n;
      double* const __restrict out = (south ? y.im : y.re) + i * kWaves * n;
#pragma omp simd
      for (std::size_t l = 0; l < n; ++l) {
        const double vorticity = in[l], geopotential = in[n + l], u = in[2 * n + l], v = in[3 * n + l];
        out[l] = u * u + v * v;
        out[n + l] = u * geopotential;
        out[2 * n + l] = u * vorticity;
        out[3 * n + l] = v * vorticity;
        out[4 * n + l] = v * geopotential;
      }
    }
}

/// Copies rows of Fourier coefficients to waves, with the weights of the quadrature of pairs from `first` on.
template <bool OfPairs, class Inner>
MM_INLINE void store(const Model& model, const WaveLayout<Inner>& a, std::size_t offset, std::size_t first, Rows x) {
  const std::size_t inner = a.inner, rows = a.outer * inner, width = kWaves * rows;
  const auto waves = static_cast<std::size_t>(model.truncation()) + 1;
  const auto longitudes = static_cast<std::size_t>(model.sphere().longitudes());
  for (std::size_t m = 0; m < waves; ++m) {
    double* const wave = model.wave(static_cast<int>(m)) + offset;
    const std::size_t plus = m * width, minus = (m == 0 ? 0 : longitudes - m) * width;
    for (std::size_t f = 0; f < kWaves; ++f)
      for (std::size_t o = 0; o < a.outer; ++o) {
        double* const __restrict even = wave + f * a.field + o * a.outer_step;
        const double* const __restrict scale = (f == 0 ? model.t.energy_weight : model.t.weight).data() + first;
        const std::size_t row = f * rows + o * inner;
        const double *const pr = x.re + plus + row, *const pi = x.im + plus + row;
        const double *const mr = x.re + minus + row, *const mi = x.im + minus + row;
#pragma omp simd
        for (std::size_t i = 0; i < inner; ++i) {
          const double w = scale[OfPairs ? i : 0];
          const double nr = pr[i] + mr[i], ni = pi[i] - mi[i], sr = pi[i] + mi[i], si = mr[i] - pr[i];
          even[i] = w * (nr + sr);
          even[a.imaginary + i] = w * (ni + si);
          even[a.part + i] = w * (nr - sr);
          even[a.part + a.imaginary + i] = w * (ni - si);
        }
      }
  }
}

template <class Kind, class Layout, class Rows_of_a_field>
MM_INLINE void grid_of(const Model& model, const Layout& a, std::size_t offset, int first, Rows_of_a_field rows,
                       double* memory) {
  const auto longitudes = static_cast<std::size_t>(model.sphere().longitudes());
  const std::size_t size = longitudes * kWaves * rows;
  const Rows x{memory, memory + size}, y{memory + 2 * size, memory + 3 * size};
  const auto other = [&](const Rows& used) { return used.re == x.re ? y : x; };
  fetch(model, a, offset, x);
  const Rows fields = transform<Kind, 1>(model.t.turns, x, y, times<kToGrid>(rows));
  const Rows products = other(fields);
  multiply(fields, products, longitudes, rows);
  const Rows coefficients = transform<Kind, -1>(model.t.turns, products, fields, times<kWaves>(rows));
  store<Kind::kByLatitudes>(model, a, offset, static_cast<std::size_t>(first), coefficients);
}

template <class Kind>
MM_INLINE void grid(Model& model, int rank) {
  const Kind kind(model);
  const std::size_t levels = kind.levels;
  const int threads = model.problem().threads;
  const int begin = model.pairs() * rank / threads, end = model.pairs() * (rank + 1) / threads;
  double* const work = model.t.thread_blocks[static_cast<std::size_t>(rank)];
  for (int j = begin; j < end; j += model.block()) {
    const auto first = static_cast<std::size_t>(j);
    if constexpr (Kind::kByLatitudes) {
      const auto count = static_cast<std::size_t>(std::min(model.block(), end - j));
      const std::size_t step = static_cast<std::size_t>(model.pairs()), row = levels * step;
      const WaveLayout<std::size_t> a{levels, step, count, 2 * row, 2 * kWaves * row, row};
      grid_of<Kind>(model, a, first, j, levels * count, work);
    } else {
      using Levels = std::remove_cv_t<decltype(kind.levels)>;
      const WaveLayout<Levels> a{1, 0, kind.levels, 2 * levels, 2 * kWaves * levels, levels};
      grid_of<Kind>(model, a, first * 4 * kWaves * levels, j, kind.levels, work);
    }
  }
}

// Everything above is inlined into these functions, and is thus compiled for their instruction set.
#define MM_PHASES(NAME, TARGET)                                                                      \
  template <class Kind>                                                                              \
  struct NAME {                                                                                      \
    TARGET static void advance(Model& model, int rank) { pstswm::advance<Kind>(model, rank); }       \
    TARGET static void synthesise(Model& model, int rank) { pstswm::synthesise<Kind>(model, rank); } \
    TARGET static void grid(Model& model, int rank) { pstswm::grid<Kind>(model, rank); }             \
    static Phases all() { return {advance, synthesise, grid}; }                                      \
  };

MM_PHASES(Narrow, )
#if defined(__x86_64__)
MM_PHASES(Avx2, [[gnu::target("avx2,fma")]])
MM_PHASES(Avx512, [[gnu::target("avx512f,avx512dq,avx512vl,fma,prefer-vector-width=512")]])
#endif
#undef MM_PHASES

template <template <class> class Isa>
Phases choose(const ShallowWaterProblem& problem) {
  if (problem.variant == Variant::plain) return Isa<Plain>::all();
  if (problem.variant == Variant::vector) return Isa<Vector>::all();
  switch (problem.levels) {
    case 1:
      return Isa<Fixed<1>>::all();
    case 2:
      return Isa<Fixed<2>>::all();
    case 4:
      return Isa<Fixed<4>>::all();
    case 8:
      return Isa<Fixed<8>>::all();
    case 16:
      return Isa<Fixed<16>>::all();
    case 18:
      return Isa<Fixed<18>>::all();
    default:
      throw std::logic_error("levels of the variant fixed: " + std::to_string(problem.levels));
  }
}

}  // namespace

Phases phases_of(const ShallowWaterProblem& problem) {
#if defined(__x86_64__)
  if (problem.isa == "avx512") return choose<Avx512>(problem);
  if (problem.isa == "avx2") return choose<Avx2>(problem);
#endif
  return choose<Narrow>(problem);
}

}  // namespace mm::pstswm

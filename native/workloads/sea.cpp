#include "workloads/sea.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <utility>

#include "kernels/isa.hpp"

namespace mm::workloads {
namespace {

using std::numbers::pi;

constexpr double kCell_m = 1e5, kStep_s = 30;
constexpr double kLevel = 5e4;  // mean of p, the height times gravity, m^2/s^2
constexpr double kSpeed = 10;   // of the vortices, m/s
constexpr double kWave = 0.01;  // of p, share of the level
// Maximum relative drifts in a run. The limits apply from 256 cells; below, they grow with the third power.
constexpr Sea::Invariants kDrifts{1e-12, 1e-6, 1e-9};
constexpr int kResolved = 256;

// Fields start at different page offsets, to avoid 4 KiB aliasing.
constexpr std::size_t kSkew = 21 * 8;
// Columns that are stepped together: the rows of fluxes and fields that a row needs stay in a second-level cache.
constexpr std::ptrdiff_t kTile = 2048;
// Of these, columns between prefetches: all that they need stays in a first-level cache.
constexpr std::ptrdiff_t kBlock = 256;
// Fields of a thread that are larger are prefetched, B; smaller ones may be in a cache, where that costs a fifth.
constexpr std::ptrdiff_t kFar = 8 << 20;

/// A step of all rows: from `now` and the older level to the newer one, in place of the older.
struct Sweep {
  Sea::Row now, south, north;  // `now`: row 0, whose ghost cells are not read
  double *p, *u, *v;           // row 0 of the older level
  std::ptrdiff_t stride, cells;
  int rows;
  double dt;
  bool far;  // the fields are larger than a core's share of the caches

  Sea::Row row(int j, std::ptrdiff_t from) const {
    const std::ptrdiff_t at = j * stride + from;
    const Sea::Row r = j == 0 ? south : j > rows ? north : Sea::Row{now.p + at, now.u + at, now.v + at};
    return j == 0 || j > rows ? Sea::Row{r.p + from, r.u + from, r.v + from} : r;
  }
};

/// Rows of fluxes, of which the last two are kept: mass fluxes cu and cv, vorticity z, and h, the head.
struct Fluxes {
  double cu[2][kTile + 88], h[2][kTile + 88], cv[2][kTile + 88], z[2][kTile + 88];
};

#define MM_INLINE [[gnu::always_inline]] inline

/// cu on the western side of cells from + 1 … to + 1 of a row, and h in cells from … to.
MM_INLINE void centre_fluxes(const Sea::Row& at, const Sea::Row& above, std::ptrdiff_t from, std::ptrdiff_t to,
                             double* cu, double* h) {
  const double *const p = at.p, *const u = at.u, *const v = at.v, *const va = above.v;
#pragma omp simd
  for (std::ptrdiff_t i = from; i <= to; ++i) {
    cu[i + 1] = 0.5 * (p[i + 1] + p[i]) * u[i + 1];
    h[i] = p[i] + 0.25 * (u[i] * u[i] + u[i + 1] * u[i + 1] + v[i] * v[i] + va[i] * va[i]);
  }
}

/// cv on the southern side of cells from … to of a row, and z at the south-western corner of cells from + 1 … to + 1.
MM_INLINE void side_fluxes(const Sea::Row& at, const Sea::Row& below, std::ptrdiff_t from, std::ptrdiff_t to,
                           double* cv, double* z) {
  constexpr double over = 1 / kCell_m;
  const double *const p = at.p, *const u = at.u, *const v = at.v, *const pb = below.p, *const ub = below.u;
#pragma omp simd
  for (std::ptrdiff_t i = from; i <= to; ++i) {
    cv[i] = 0.5 * (p[i] + pb[i]) * v[i];
    z[i + 1] = 4 * over * (v[i + 1] - v[i] - u[i + 1] + ub[i + 1]) / (p[i + 1] + p[i] + pb[i + 1] + pb[i]);
  }
}

/// Has cells from … to - 1 of a row brought into the second-level cache. The hardware does not foresee where a row goes
/// on below: without this, memory and arithmetic take turns.
MM_INLINE void prefetch(const double* p, const double* u, const double* v, std::ptrdiff_t from, std::ptrdiff_t to) {
  for (std::ptrdiff_t i = from; i < to; i += 8)
    for (const double* const field : {p, u, v}) __builtin_prefetch(field + i, 0, 2);
}

/// Columns from + 1 … from + n of all rows.
MM_INLINE void step_tile(const Sweep& s, std::ptrdiff_t from, std::ptrdiff_t n) {
  alignas(64) Fluxes f;
  constexpr double over = 1 / kCell_m;
  const double dt = s.dt;
  Sea::Row at = s.row(0, from), above = s.row(1, from), next = s.row(2, from);
  centre_fluxes(at, above, 0, n, f.cu[0], f.h[0]);
  side_fluxes(above, at, 0, n, f.cv[1], f.z[1]);
  for (int j = 1; j <= s.rows; ++j) {
    const int k = j & 1, l = k ^ 1;
    at = above;
    above = next;
    next = s.row(std::min(j + 2, s.rows + 1), from);
    const double *const cu = f.cu[k], *const cub = f.cu[l], *const h = f.h[k], *const hb = f.h[l];
    const double *const cv = f.cv[k], *const cva = f.cv[l], *const z = f.z[k], *const za = f.z[l];
    const std::ptrdiff_t start = j * s.stride + from;
    double *const p = s.p + start, *const u = s.u + start, *const v = s.v + start;
    for (std::ptrdiff_t before = 0; before < n; before += kBlock) {
      const std::ptrdiff_t first = before == 0 ? 0 : before + 1, last = std::min(before + kBlock, n);
      if (s.far) prefetch(next.p, next.u, next.v, before, last);
      centre_fluxes(at, above, first, last, f.cu[k], f.h[k]);
      if (s.far) prefetch(p + s.stride, u + s.stride, v + s.stride, before, last);
      side_fluxes(above, at, first, last, f.cv[l], f.z[l]);
#pragma omp simd
      for (std::ptrdiff_t i = before + 1; i <= last; ++i) {
        u[i] += dt * (0.125 * (z[i] + za[i]) * (cv[i] + cv[i - 1] + cva[i] + cva[i - 1]) - over * (h[i] - h[i - 1]));
        v[i] -= dt * (0.125 * (z[i] + z[i + 1]) * (cu[i] + cu[i + 1] + cub[i] + cub[i + 1]) + over * (h[i] - hb[i]));
        p[i] -= dt * over * (cu[i + 1] - cu[i] + cva[i] - cv[i]);
      }
    }
    if (from + n == s.cells)
      for (double* const field : {s.p, s.u, s.v}) {
        double* const row = field + j * s.stride;
        row[0] = row[s.cells];
        row[s.cells + 1] = row[1];
      }
  }
}

MM_INLINE void step_all(const Sweep& s) {
  for (std::ptrdiff_t from = 0; from < s.cells; from += kTile) step_tile(s, from, std::min(kTile, s.cells - from));
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) void step_avx512(const Sweep& s) { step_all(s); }
__attribute__((target("avx2"))) void step_avx2(const Sweep& s) { step_all(s); }
#endif
void step_narrow(const Sweep& s) { step_all(s); }

}  // namespace

std::size_t Sea::stride() const { return (static_cast<std::size_t>(cells_) + 2 + 7) / 8 * 8; }

std::size_t Sea::words(int cells, int rows) {
  return 6 * ((static_cast<std::size_t>(cells) + 9) / 8 * 8 * (static_cast<std::size_t>(rows) + 2) + kSkew);
}

Sea::Sea(int cells, int first, int rows) : cells_(cells), first_(first), rows_(rows), own_(words(cells, rows)) {
  fields_in(own_.data());
}

Sea::Sea(int cells, int first, int rows, double* memory) : cells_(cells), first_(first), rows_(rows) {
  fields_in(memory);
}

void Sea::fields_in(double* memory) {
  for (double** field : {&now_.p, &now_.u, &now_.v, &old_.p, &old_.u, &old_.v}) {
    *field = memory;
    memory += at(0, rows_ + 2) + kSkew;
  }
}

void Sea::begin() {
  const double scale = 2 * pi / cells_;
  // Factors that depend on the column or on the row alone.
  const auto n = static_cast<std::size_t>(cells_);
  std::vector<double> stream(n + 1), twice(n), wave(n);
  for (int x = 0; x <= cells_; ++x)
    stream[static_cast<std::size_t>(x)] = kSpeed * kCell_m / scale * std::sin(scale * x);
  for (int x = 0; x < cells_; ++x) {
    twice[static_cast<std::size_t>(x)] = std::cos(2 * scale * (x + 0.5));
    wave[static_cast<std::size_t>(x)] = kWave * kLevel * std::cos(3 * scale * (x + 0.5));
  }
  for (int j = 1; j <= rows_; ++j) {
    const int y = first_ + j - 1;
    // The stream function at the south-west corner of a cell is a product of sines.
    const double here = std::sin(scale * y), above = std::sin(scale * (y + 1));
    const double around = std::cos(2 * scale * (y + 0.5));
    double *const p = now_.p + at(1, j), *const u = now_.u + at(1, j), *const v = now_.v + at(1, j);
    for (std::size_t x = 0; x < n; ++x) {
      u[x] = -(stream[x] * above - stream[x] * here) / kCell_m;
      v[x] = (stream[x + 1] * here - stream[x] * here) / kCell_m;
      p[x] = kLevel + kSpeed * kSpeed / 4 * (twice[x] + around) + wave[x] * around;
    }
    wrap(now_, j);
  }
  const std::size_t from = at(0, 1), to = at(0, rows_ + 1);
  std::copy(now_.p + from, now_.p + to, old_.p + from);
  std::copy(now_.u + from, now_.u + to, old_.u + from);
  std::copy(now_.v + from, now_.v + to, old_.v + from);
  started_ = false;
}

void Sea::step(Row south, Row north, [[maybe_unused]] std::string_view isa) {
  const Sweep sweep{.now = {now_.p, now_.u, now_.v},
                    .south = south,
                    .north = north,
                    .p = old_.p,
                    .u = old_.u,
                    .v = old_.v,
                    .stride = static_cast<std::ptrdiff_t>(stride()),
                    .cells = cells_,
                    .rows = rows_,
                    .dt = started_ ? 2 * kStep_s : kStep_s,
                    .far = static_cast<std::ptrdiff_t>(words(cells_, rows_) * sizeof(double)) > kFar};
#if defined(__x86_64__)
  if (isa == "avx512")
    step_avx512(sweep);
  else if (isa == "avx2")
    step_avx2(sweep);
  else
#endif
    step_narrow(sweep);
  std::swap(old_, now_);
  started_ = true;
}

Sea::Row Sea::row(int j, int later) const {
  const Fields& level = later % 2 == 0 ? now_ : old_;
  return {level.p + at(0, j), level.u + at(0, j), level.v + at(0, j)};
}

std::array<double*, 3> Sea::ghost(int j) { return {now_.p + at(1, j), now_.u + at(1, j), now_.v + at(1, j)}; }

void Sea::wrap(int j) { wrap(now_, j); }

void Sea::wrap(const Fields& level, int j) const {
  for (double* const field : {level.p, level.u, level.v}) {
    field[at(0, j)] = field[at(cells_, j)];
    field[at(cells_ + 1, j)] = field[at(1, j)];
  }
}

Sea::Invariants Sea::invariants(Row south, Row north) const {
  double mass = 0, energy = 0, enstrophy = 0;
  for (int j = 1; j <= rows_; ++j) {
    const Row here = row(j), below = j == 1 ? south : row(j - 1), above = j == rows_ ? north : row(j + 1);
    const double *const p = here.p, *const u = here.u, *const v = here.v;
    for (std::ptrdiff_t i = 1; i <= cells_; ++i) {
      const double around = 0.25 * (p[i] + p[i - 1] + below.p[i] + below.p[i - 1]);
      const double vorticity = (v[i] - v[i - 1] - u[i] + below.u[i]) / kCell_m;
      mass += p[i];
      energy += 0.25 * p[i] * (u[i] * u[i] + u[i + 1] * u[i + 1] + v[i] * v[i] + above.v[i] * above.v[i]) +
                0.5 * (p[i] - kLevel) * (p[i] - kLevel);
      enstrophy += vorticity * vorticity / around;
    }
  }
  return {mass, energy, enstrophy};
}

std::uint64_t Sea::digest() const {
  std::uint64_t sum = 0;
  for (const double* field : {now_.p, now_.u, now_.v})
    for (int j = 1; j <= rows_; ++j)
      for (int i = 1; i <= cells_; ++i) {
        const auto place = static_cast<std::uint64_t>(first_ + j) * static_cast<std::uint64_t>(cells_ + 1) +
                           static_cast<std::uint64_t>(i);
        sum += std::bit_cast<std::uint64_t>(field[at(i, j)]) * (2 * place + 1);
      }
  return sum;
}

std::uint64_t sea_digest(int cells, int steps) {
  Sea whole(cells, 0, cells);
  whole.begin();
  for (int n = 0; n < steps; ++n) whole.step(whole.row(cells), whole.row(1), best_isa());
  return whole.digest();
}

Sea::Invariants sea_drifts(const Sea::Invariants& before, const Sea::Invariants& after) {
  Sea::Invariants drifts;
  for (std::size_t i = 0; i < drifts.size(); ++i) drifts[i] = std::fabs(after[i] / before[i] - 1);
  return drifts;
}

std::string sea_violation(const Sea::Invariants& drifts, int cells, double runs) {
  constexpr const char* kNames[] = {"mass", "energy", "potential enstrophy"};
  const double coarser = std::pow(std::max(1.0, static_cast<double>(kResolved) / cells), 3);
  for (std::size_t i = 0; i < drifts.size(); ++i) {
    const double limit = kDrifts[i] * (i == 0 ? 1 : coarser) * runs;
    char text[160];
    std::snprintf(text, sizeof text, "relative change of %s is %.3g, maximum %.3g", kNames[i], drifts[i], limit);
    if (!(drifts[i] <= limit)) return text;
  }
  return {};
}

}  // namespace mm::workloads

#include "apps/models/sea.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <utility>

#include "kernels/isa.hpp"

namespace mm::workloads {
namespace {

using std::numbers::pi;

constexpr double kCell_m = 1e5, kStep_s = 30;
constexpr double kLevel = 5e4;  // mean of p, the height times gravity, m^2/s^2
constexpr double kSpeed = 10;   // speed of the vortices, m/s
constexpr double kWave = 0.01;  // wave of p, as a share of the level
// Maximum relative drifts in a run. The limits apply from 256 cells; below, they grow with the third power.
constexpr Sea::Invariants kDrifts{1e-12, 1e-6, 1e-9};
constexpr int kResolved = 256;

// Fields start at different page offsets, to avoid 4 KiB aliasing.
constexpr std::size_t kSkew = 21 * 8;
// Columns that are stepped together: the rows of fluxes and fields that a row needs stay in a second-level cache.
constexpr std::ptrdiff_t kTile = 2048;
// Fields of a thread are prefetched if they exceed this size in bytes. Smaller ones may be in a cache, where
// prefetching costs a fifth.
constexpr std::ptrdiff_t kFar = 8 << 20;

/// A step of all rows: from `now` and the older level to the newer level, which replaces the older one.
struct RowSweep {
  Sea::Row now, south, north;  // `now`: row 0, whose ghost cells are not read
  double *p, *u, *v;           // row 0 of the older level
  std::ptrdiff_t stride, cells;
  int rows;
  double dt;
  bool far;  // whether the fields are larger than a core's share of the caches

  Sea::Row row(int j) const {
    const std::ptrdiff_t offset = j * stride;
    return j == 0 ? south : j > rows ? north : Sea::Row{now.p + offset, now.u + offset, now.v + offset};
  }
};

#define MM_INLINE [[gnu::always_inline]] inline

/// Adjacent cells of a row, as many as a vector register has numbers.
template <std::ptrdiff_t W>
struct CellVector {
  typedef double V __attribute__((vector_size(W * sizeof(double))));
  typedef double Anywhere __attribute__((vector_size(W * sizeof(double)), aligned(sizeof(double)), may_alias));

  MM_INLINE static V load(const double* from) { return *reinterpret_cast<const Anywhere*>(from); }
  MM_INLINE static void store(double* to, const V& values) { *reinterpret_cast<Anywhere*>(to) = values; }
  /// Returns the western neighbours of the cells `here`. The first one is the last of the cells `before`, which `here`
  /// then replaces.
  MM_INLINE static V west(V& before, const V& here) {
    const V result = shifted(before, here, std::make_index_sequence<W>());
    before = here;
    return result;
  }

 private:
  template <std::size_t... I>
  MM_INLINE static V shifted(const V& before, const V& here, std::index_sequence<I...>) {
    return __builtin_shufflevector(before, here, (W - 1 + static_cast<std::ptrdiff_t>(I))...);
  }
};

/// The values that a row keeps for the next row: mass fluxes cu and cv, vorticity z, and the head h. cu is on the
/// eastern side of a cell, cv on its northern side, and z at the corner of both.
struct Fluxes {
  double cu[kTile + 16], h[kTile + 16], cv[kTile + 16], z[kTile + 16];
};

/// Goes along a row from west to east. The first cells change only what the next cells need of them.
template <std::ptrdiff_t W>
class RowWalk {
  using C = CellVector<W>;
  using V = typename C::V;

 public:
  MM_INLINE RowWalk(const RowSweep& s, int j)
      : at_(s.row(j)), above_(s.row(j + 1)), ahead_(s.row(std::min(j + 2, s.rows + 1))), dt_(s.dt), far_(s.far) {
    const std::ptrdiff_t start = j * s.stride;
    p_ = s.p + start, u_ = s.u + start, v_ = s.v + start;
    stride_ = j < s.rows ? s.stride : 0;
  }

  /// Computes the fluxes of cells i … i + W - 1, which replace the fluxes of the row below in `f`, and, if `Change` is
  /// set, the newer state of the cells.
  template <bool Change>
  MM_INLINE void cells(std::ptrdiff_t i, Fluxes& f, std::ptrdiff_t slot) {
    constexpr double over = 1 / kCell_m;
    if (far_) prefetch(i);
    const V p = C::load(at_.p + i), pe = C::load(at_.p + i + 1), u = C::load(at_.u + i), ue = C::load(at_.u + i + 1);
    const V v = C::load(at_.v + i), va = C::load(above_.v + i), vae = C::load(above_.v + i + 1);
    const V pa = C::load(above_.p + i), pae = C::load(above_.p + i + 1), uae = C::load(above_.u + i + 1);
    const V cu = 0.5 * (pe + p) * ue;
    const V h = p + 0.25 * (u * u + ue * ue + v * v + va * va);
    const V cv = 0.5 * (pa + p) * va;
    const V z = 4 * over * (vae - va - uae + ue) / (pae + pa + pe + p);
    const V cub = C::load(f.cu + slot), hb = C::load(f.h + slot), cvb = C::load(f.cv + slot), zb = C::load(f.z + slot);
    C::store(f.cu + slot, cu);
    C::store(f.h + slot, h);
    C::store(f.cv + slot, cv);
    C::store(f.z + slot, z);
    const V across = cvb + cv, along = cu + cub, corners = zb + z;
    const V across_w = C::west(across_, across), along_w = C::west(along_, along);
    const V corners_w = C::west(corners_, corners), zb_w = C::west(zb_, zb), h_w = C::west(h_, h);
    const V cu_w = C::west(cu_, cu);
    if (!Change) return;
    C::store(u_ + i, C::load(u_ + i) + dt_ * (0.125 * corners_w * (across + across_w) - over * (h - h_w)));
    C::store(v_ + i, C::load(v_ + i) - dt_ * (0.125 * (zb_w + zb) * (along_w + along) + over * (h - hb)));
    C::store(p_ + i, C::load(p_ + i) - dt_ * over * (cu - cu_w + cv - cvb));
  }

 private:
  /// Prefetches the cells above into the second-level cache. The hardware does not predict where a row continues below.
  /// Without this function, memory and arithmetic alternate.
  MM_INLINE void prefetch(std::ptrdiff_t i) const {
    if (i % 8 != 0) return;
    for (const double* const field : {ahead_.p, ahead_.u, ahead_.v}) __builtin_prefetch(field + i, 0, 2);
    for (const double* const field : {p_, u_, v_}) __builtin_prefetch(field + stride_ + i, 0, 2);
  }

  Sea::Row at_, above_, ahead_;
  double *p_, *u_, *v_, dt_;
  std::ptrdiff_t stride_;
  bool far_;
  V across_{}, along_{}, corners_{}, zb_{}, h_{}, cu_{};
};

/// Steps columns from … to - 1 of all rows. Both numbers are a multiple of the width.
template <std::ptrdiff_t W>
MM_INLINE void step_tile(const RowSweep& s, std::ptrdiff_t from, std::ptrdiff_t to) {
  alignas(64) Fluxes f;
  const std::ptrdiff_t first = from == 0 ? 0 : from - W;  // the previous cells, whose fluxes a tile needs
  for (int j = 0; j <= s.rows; ++j) {
    RowWalk<W> walk(s, j);
    if (j == 0) {
      for (std::ptrdiff_t i = first; i < to; i += W) walk.template cells<false>(i, f, i - first);
      continue;
    }
    if (first < from) walk.template cells<false>(first, f, 0);
    for (std::ptrdiff_t i = from; i < to; i += W) walk.template cells<true>(i, f, i - first);
    if (to > s.cells)
      for (double* const field : {s.p, s.u, s.v}) {
        double* const row = field + j * s.stride;
        row[0] = row[s.cells];
        row[s.cells + 1] = row[1];
      }
  }
}

/// Steps all columns. Vectors are aligned: they begin with the western ghost cell, which is set when its row is
/// complete.
template <std::ptrdiff_t W>
MM_INLINE void step_all(const RowSweep& s) {
  const std::ptrdiff_t end = (s.cells / W + 1) * W;
  for (std::ptrdiff_t from = 0; from < end; from += kTile) step_tile<W>(s, from, std::min(from + kTile, end));
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) void step_avx512(const RowSweep& s) { step_all<8>(s); }
__attribute__((target("avx2"))) void step_avx2(const RowSweep& s) { step_all<4>(s); }
#endif
void step_narrow(const RowSweep& s) { step_all<2>(s); }

}  // namespace

std::size_t Sea::stride() const { return (static_cast<std::size_t>(cells_) + 2 + 7) / 8 * 8; }

std::size_t Sea::words(int cells, int rows) {
  return 6 * ((static_cast<std::size_t>(cells) + 9) / 8 * 8 * (static_cast<std::size_t>(rows) + 2) + kSkew);
}

Sea::Sea(int cells, int first, int rows) : cells_(cells), first_(first), rows_(rows), own_(words(cells, rows) + 8) {
  void* memory = own_.data();
  std::size_t bytes = own_.size() * sizeof(double);
  fields_in(static_cast<double*>(std::align(64, words(cells, rows) * sizeof(double), memory, bytes)));
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
  // Factors that depend only on the column or only on the row.
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
    const double south_sine = std::sin(scale * y), north_sine = std::sin(scale * (y + 1));
    const double cosine = std::cos(2 * scale * (y + 0.5));
    double *const p = now_.p + at(1, j), *const u = now_.u + at(1, j), *const v = now_.v + at(1, j);
    for (std::size_t x = 0; x < n; ++x) {
      u[x] = -(stream[x] * north_sine - stream[x] * south_sine) / kCell_m;
      v[x] = (stream[x + 1] * south_sine - stream[x] * south_sine) / kCell_m;
      p[x] = kLevel + kSpeed * kSpeed / 4 * (twice[x] + cosine) + wave[x] * cosine;
    }
    wrap(now_, j);
  }
  const std::size_t first = at(0, 1), last = at(0, rows_ + 1);
  std::copy(now_.p + first, now_.p + last, old_.p + first);
  std::copy(now_.u + first, now_.u + last, old_.u + first);
  std::copy(now_.v + first, now_.v + last, old_.v + first);
  started_ = false;
}

void Sea::step(Row south, Row north, [[maybe_unused]] std::string_view isa) {
  const RowSweep sweep{.now = {now_.p, now_.u, now_.v},
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
    const Row current = row(j), below = j == 1 ? south : row(j - 1), above = j == rows_ ? north : row(j + 1);
    const double *const p = current.p, *const u = current.u, *const v = current.v;
    for (std::ptrdiff_t i = 1; i <= cells_; ++i) {
      const double mean_p = 0.25 * (p[i] + p[i - 1] + below.p[i] + below.p[i - 1]);
      const double vorticity = (v[i] - v[i - 1] - u[i] + below.u[i]) / kCell_m;
      mass += p[i];
      energy += 0.25 * p[i] * (u[i] * u[i] + u[i + 1] * u[i + 1] + v[i] * v[i] + above.v[i] * above.v[i]) +
                0.5 * (p[i] - kLevel) * (p[i] - kLevel);
      enstrophy += vorticity * vorticity / mean_p;
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

#include "apps/npb/flow/flow.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace mm::mpi::npb {
namespace {

// The report's steady state. Each unknown has a constant, then coefficients of the first to fourth powers of x, y, z.
constexpr double kExact[kUnknowns][13] = {
    {2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

constexpr const char* kNames[kUnknowns] = {"density", "momentum_x", "momentum_y", "momentum_z", "energy"};

}  // namespace

Flow::Fields::Fields(std::size_t points) : all(kUnknowns * points) {
  for (std::size_t m = 0; m < kUnknowns; ++m) at[m] = all.data() + m * points;
  in_parts(points, [&](std::size_t first, std::size_t last) {
    for (double* const field : at) std::fill(field + first, field + last, 0.0);
  });
}

Flow::Flow(const FlowClass& problem)
    : problem_(problem),
      n_(problem.points),
      first_(part(n_, static_cast<std::size_t>(ranks_), static_cast<std::size_t>(rank_))),
      planes_(part(n_, static_cast<std::size_t>(ranks_), static_cast<std::size_t>(rank_) + 1) - first_),
      per_length_(static_cast<double>(n_ - 1)),
      u_(points()),
      rhs_(points()),
      forcing_(points()),
      inverse_(zeros<double>(points())),
      kinetic_(zeros<double>(points())) {}

Flow::~Flow() {
  if (halo_ != MPI_DATATYPE_NULL) MPI_Type_free(&halo_);
}

void Flow::exact(std::ptrdiff_t z, std::size_t y, std::size_t x, double* values) const {
  const double place[] = {static_cast<double>(x) / per_length_, static_cast<double>(y) / per_length_,
                          static_cast<double>(z + static_cast<std::ptrdiff_t>(first_)) / per_length_};
  for (std::size_t m = 0; m < kUnknowns; ++m) {
    const double* const c = kExact[m];
    values[m] = c[0];
    for (std::size_t d = 0; d < 3; ++d)
      values[m] += place[d] * (c[1 + d] + place[d] * (c[4 + d] + place[d] * (c[7 + d] + place[d] * c[10 + d])));
  }
}

void Flow::prepare() {
  if (ranks_ > 1) {
    check(MPI_Type_vector(kUnknowns, static_cast<int>(2 * n_ * n_), static_cast<int>(points()), MPI_DOUBLE, &halo_),
          "MPI_Type_vector");
    check(MPI_Type_commit(&halo_), "MPI_Type_commit");
  }
  in_parts(planes_ * n_, [&](std::size_t first, std::size_t last) {
    double state[kUnknowns];
    for (std::size_t i = first; i < last; ++i)
      for (std::size_t x = 0; x < n_; ++x) {
        const auto z = static_cast<std::ptrdiff_t>(i / n_);
        exact(z, i % n_, x, state);
        for (std::size_t m = 0; m < kUnknowns; ++m) u_.at[m][at(z, i % n_, x)] = state[m];
      }
  });
  fill(forcing_.all, 0.0);
  compute_rhs(-1);
  each_row([&](std::ptrdiff_t z, std::size_t y) {
    for (std::size_t m = 0; m < kUnknowns; ++m)
      std::copy_n(rhs_.at[m] + at(z, y, 1), n_ - 2, forcing_.at[m] + at(z, y, 1));
  });
}

/// Sets the exact state on the surface, and its transfinite interpolation inside.
void Flow::reset() {
  fill(rhs_.all, 0.0);
  in_parts(planes_, [&](std::size_t first, std::size_t last) {
    for (std::size_t z = first; z < last; ++z) reset_plane(static_cast<std::ptrdiff_t>(z));
  });
}

void Flow::reset_plane(std::ptrdiff_t z) {
  const std::ptrdiff_t bottom = -static_cast<std::ptrdiff_t>(first_),
                       top = bottom + static_cast<std::ptrdiff_t>(n_) - 1;
  const std::size_t last = n_ - 1;
  for (std::size_t y = 0; y < n_; ++y)
    for (std::size_t x = 0; x < n_; ++x) {
      double state[kUnknowns];
      exact(z, y, x, state);
      if (x > 0 && x < last && y > 0 && y < last && z > bottom && z < top) {
        double sides[6][kUnknowns];
        exact(z, y, 0, sides[0]), exact(z, y, last, sides[1]);
        exact(z, 0, x, sides[2]), exact(z, last, x, sides[3]);
        exact(bottom, y, x, sides[4]), exact(top, y, x, sides[5]);
        const double px = static_cast<double>(x) / per_length_, py = static_cast<double>(y) / per_length_,
                     pz = static_cast<double>(z - bottom) / per_length_;
        for (std::size_t m = 0; m < kUnknowns; ++m) {
          const double a = (1 - px) * sides[0][m] + px * sides[1][m], b = (1 - py) * sides[2][m] + py * sides[3][m],
                       c = (1 - pz) * sides[4][m] + pz * sides[5][m];
          state[m] = a + b + c - a * b - b * c - c * a + a * b * c;
        }
      }
      for (std::size_t m = 0; m < kUnknowns; ++m) u_.at[m][at(z, y, x)] = state[m];
    }
}

/// Exchanges the ghost planes of u with the slabs below and above.
void Flow::exchange() {
  if (ranks_ == 1) return;
  const int below = rank_ > 0 ? rank_ - 1 : MPI_PROC_NULL, above = rank_ + 1 < ranks_ ? rank_ + 1 : MPI_PROC_NULL;
  const auto planes = static_cast<std::ptrdiff_t>(planes_);
  double* const u = u_.at[0];
  library([&] {
    check(MPI_Sendrecv(u + at(planes - 2, 0, 0), 1, halo_, above, 0, u + at(-2, 0, 0), 1, halo_, below, 0, all_,
                       MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
    check(MPI_Sendrecv(u + at(0, 0, 0), 1, halo_, below, 1, u + at(planes, 0, 0), 1, halo_, above, 1, all_,
                       MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
  });
}

void Flow::find_inverse() {
  const std::size_t first = at(first_ == 0 ? 0 : -1, 0, 0),
                    last = at(static_cast<std::ptrdiff_t>(planes_) + (first_ + planes_ == n_ ? 0 : 1), 0, 0);
  const double *const r = u_.at[0], *const x = u_.at[1], *const y = u_.at[2], *const z = u_.at[3];
  double *const inverse = inverse_.data(), *const kinetic = kinetic_.data();
  in_parts(last - first, [=](std::size_t from, std::size_t to) {
#pragma omp simd
    for (std::size_t i = first + from; i < first + to; ++i) {
      inverse[i] = 1 / r[i];
      kinetic[i] = 0.5 * (x[i] * x[i] + y[i] * y[i] + z[i] * z[i]) * inverse[i];
    }
  });
}

/// Adds the flux along D to the points first … last - 1 of a row. Neighbours are `stride` apart.
template <int D>
[[gnu::always_inline]] inline void Flow::add_flux_range(std::size_t first, std::size_t last, std::size_t stride,
                                                        const double* weights) {
  const double second = per_length_ * per_length_, half = per_length_ / 2, viscous = kViscosity * second,
               diffusion = kDiffusion[D] * second;
  const double conducted = viscous * (1 - kHeatRatio), along = viscous / 6, heat = viscous * kHeatRatio;
  const double w0 = kDissipation * weights[0], w1 = kDissipation * weights[1], w2 = kDissipation * weights[2],
               w3 = kDissipation * weights[3], w4 = kDissipation * weights[4];
  const double* const* const u = u_.at;
  const double *const inverse = inverse_.data(), *const kinetic = kinetic_.data();
  double* const* const rhs = rhs_.at;
  const double *const u0 = u[0], *const u1 = u[1], *const u2 = u[2], *const u3 = u[3], *const u4 = u[4];
  double *const r0 = rhs[0], *const r1 = rhs[1], *const r2 = rhs[2], *const r3 = rhs[3], *const r4 = rhs[4];
#pragma omp simd
  for (std::size_t i = first; i < last; ++i) {
    const std::size_t b = i - stride, a = i + stride, bb = b - stride, aa = a + stride;  // below and above
    const double ib = inverse[b], ii = inverse[i], ia = inverse[a];
    const double vb[] = {u1[b] * ib, u2[b] * ib, u3[b] * ib}, v[] = {u1[i] * ii, u2[i] * ii, u3[i] * ii},
                 va[] = {u1[a] * ia, u2[a] * ia, u3[a] * ia};
    const double wb = vb[D], w = v[D], wa = va[D];
    const double pressure = kC2 * (u4[a] - kinetic[a] - u4[b] + kinetic[b]);
    const auto curve = [&](const double* f) {
      return diffusion * (f[a] - 2 * f[i] + f[b]) - (w0 * f[bb] + w1 * f[b] + w2 * f[i] + w3 * f[a] + w4 * f[aa]);
    };
    const auto momentum = [&](const double* f, int j) {
      return curve(f) + (j == D ? 4.0 / 3 : 1.0) * viscous * (va[j] - 2 * v[j] + vb[j]) -
             half * (f[a] * wa - f[b] * wb + (j == D ? pressure : 0.0));
    };
    const double* const m = D == 0 ? u1 : D == 1 ? u2 : u3;
    r0[i] += curve(u0) - half * (m[a] - m[b]);
    r1[i] += momentum(u1, 0);
    r2[i] += momentum(u2, 1);
    r3[i] += momentum(u3, 2);
    r4[i] += curve(u4) + conducted * (kinetic[a] * ia - 2 * kinetic[i] * ii + kinetic[b] * ib) +
             along * (wa * wa - 2 * w * w + wb * wb) + heat * (u4[a] * ia - 2 * u4[i] * ii + u4[b] * ib) -
             half * ((kC1 * u4[a] - kC2 * kinetic[a]) * wa - (kC1 * u4[b] - kC2 * kinetic[b]) * wb);
  }
}

/// Adds the flux along D to a row. Its place along D is `place`, unless D is the row's own direction.
template <int D>
void Flow::add_fluxes(std::size_t row, std::size_t place, std::size_t stride) {
  double weights[5];
  if (D != 0) {
    dissipation(place, n_, weights);
    add_flux_range<D>(row + 1, row + n_ - 1, stride, weights);
    return;
  }
  dissipation(3, n_, weights);
  add_flux_range<D>(row + 3, row + n_ - 3, stride, weights);
  for (const std::size_t x : {std::size_t{1}, std::size_t{2}, n_ - 3, n_ - 2}) {
    dissipation(x, n_, weights);
    add_flux_range<D>(row + x, row + x + 1, stride, weights);
  }
}

void Flow::compute_rhs(double scale) {
  exchange();
  find_inverse();
  each_row([&](std::ptrdiff_t z, std::size_t y) {
    const std::size_t row = at(z, y, 0);
    for (std::size_t m = 0; m < kUnknowns; ++m) std::copy_n(forcing_.at[m] + row, n_, rhs_.at[m] + row);
    add_fluxes<0>(row, 0, 1);
    add_fluxes<1>(row, y, n_);
    add_fluxes<2>(row, static_cast<std::size_t>(z) + first_, n_ * n_);
    for (std::size_t m = 0; m < kUnknowns; ++m)
      for (std::size_t x = 0; x < n_; ++x) rhs_.at[m][row + x] *= scale;
  });
}

void Flow::add_rhs(double factor) {
  each_row([&](std::ptrdiff_t z, std::size_t y) {
    for (std::size_t m = 0; m < kUnknowns; ++m) {
      double* __restrict const u = u_.at[m] + at(z, y, 1);
      const double* const rhs = rhs_.at[m] + at(z, y, 1);
      for (std::size_t x = 0; x < n_ - 2; ++x) u[x] += factor * rhs[x];
    }
  });
}

void Flow::norms(const double* const* fields, double* results) {
  for (std::size_t m = 0; m < kUnknowns; ++m)
    results[m] = sum_in_parts(static_cast<std::size_t>(end() - begin()), [&](std::size_t first, std::size_t last) {
      double total = 0;
      for (std::size_t z = first; z < last; ++z)
        for (std::size_t y = 1; y + 1 < n_; ++y) {
          const double* const row = fields[m] + at(begin() + static_cast<std::ptrdiff_t>(z), y, 1);
          total += in_fours(n_ - 2, [row](std::size_t x) { return row[x] * row[x]; });
        }
      return total;
    });
  sum(results, kUnknowns, all_);
  const double inner = static_cast<double>(n_ - 2);
  for (std::size_t m = 0; m < kUnknowns; ++m) results[m] = std::sqrt(results[m] / (inner * inner * inner));
}

std::string Flow::verify() {
  find_residual();
  double expected[kUnknowns];
  for (std::ptrdiff_t z = begin(); z < end(); ++z)
    for (std::size_t y = 1; y + 1 < n_; ++y)
      for (std::size_t x = 1; x + 1 < n_; ++x) {
        exact(z, y, x, expected);
        for (std::size_t m = 0; m < kUnknowns; ++m) rhs_.at[m][at(z, y, x)] = u_.at[m][at(z, y, x)] - expected[m];
      }
  norms(rhs_.at, error_);
  std::string violation = verify_more();
  for (std::size_t m = 0; m < kUnknowns; ++m)
    for (const auto& [prefix, target, actual] : {std::tuple{"residual of ", problem_.residual[m], residual_[m]},
                                                 std::tuple{"error of ", problem_.error[m], error_[m]}})
      if (std::string wrong = differs(std::string(prefix) + kNames[m], target, actual, kFlowTolerance); !wrong.empty())
        return wrong;
  return violation;
}

json Flow::observed() const {
  json conditions;  // each number is a condition of its own
  for (std::size_t m = 0; m < kUnknowns; ++m) {
    conditions[std::string("residual_") + kNames[m]] = residual_[m];
    conditions[std::string("error_") + kNames[m]] = error_[m];
  }
  return conditions;
}

}  // namespace mm::mpi::npb

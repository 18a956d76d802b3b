/// The sea of swim and swim_threads: the scheme written out plainly, on any number of threads and vector width.
#include "apps/models/sea.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/threads/sea_team.hpp"
#include "kernels/isa.hpp"

namespace {

using mm::SeaTeam;
using mm::workloads::Sea;
using mm::workloads::sea_drifts;
using mm::workloads::sea_violation;

/// Sadourny's scheme cell by cell with periodic indices, all fluxes kept: slow, and easy to compare with the paper.
class PlainSea {
 public:
  using Field = std::vector<double>;

  explicit PlainSea(const Sea& like) : n_(static_cast<std::size_t>(like.cells())) {
    for (Field* f : {&p, &u, &v}) f->resize(n_ * n_);
    for (std::size_t y = 0; y < n_; ++y)
      for (std::size_t x = 0; x < n_; ++x) {
        const Sea::Row row = like.row(static_cast<int>(y) + 1);
        p[at(x, y)] = row.p[x + 1];
        u[at(x, y)] = row.u[x + 1];
        v[at(x, y)] = row.v[x + 1];
      }
    old_p_ = p, old_u_ = u, old_v_ = v;
  }

  void step(double dt) {
    constexpr double over = 1 / 1e5;
    const Field& a = p;
    Field cu(p.size()), cv(p.size()), z(p.size()), h(p.size());
    for (std::size_t y = n_; y < 2 * n_; ++y)
      for (std::size_t x = n_; x < 2 * n_; ++x) {
        const std::size_t c = at(x, y), w = at(x - 1, y), s = at(x, y - 1), e = at(x + 1, y), north = at(x, y + 1);
        cu[c] = 0.5 * (a[c] + a[w]) * u[c];
        cv[c] = 0.5 * (a[c] + a[s]) * v[c];
        z[c] = 4 * over * (v[c] - v[w] - u[c] + u[s]) / (a[c] + a[w] + a[s] + a[at(x - 1, y - 1)]);
        h[c] = a[c] + 0.25 * (u[c] * u[c] + u[e] * u[e] + v[c] * v[c] + v[north] * v[north]);
      }
    Field p2(p.size()), u2(p.size()), v2(p.size());
    for (std::size_t y = n_; y < 2 * n_; ++y)
      for (std::size_t x = n_; x < 2 * n_; ++x) {
        const std::size_t c = at(x, y), w = at(x - 1, y), s = at(x, y - 1), e = at(x + 1, y), north = at(x, y + 1);
        u2[c] = old_u_[c] + dt * (0.125 * (z[c] + z[north]) * (cv[c] + cv[north] + (cv[w] + cv[at(x - 1, y + 1)])) -
                                  over * (h[c] - h[w]));
        v2[c] = old_v_[c] -
                dt * (0.125 * (z[c] + z[e]) * (cu[c] + cu[s] + (cu[e] + cu[at(x + 1, y - 1)])) + over * (h[c] - h[s]));
        p2[c] = old_p_[c] - dt * over * (cu[e] - cu[c] + cv[north] - cv[c]);
      }
    old_p_ = std::exchange(p, p2);
    old_u_ = std::exchange(u, u2);
    old_v_ = std::exchange(v, v2);
  }

  /// Cells whose bits differ.
  std::size_t differing(const Sea& sea) const {
    std::size_t count = 0;
    for (std::size_t y = 0; y < n_; ++y)
      for (std::size_t x = 0; x < n_; ++x) {
        const Sea::Row row = sea.row(static_cast<int>(y) + 1);
        count += p[at(x, y)] != row.p[x + 1] || u[at(x, y)] != row.u[x + 1] || v[at(x, y)] != row.v[x + 1];
      }
    return count;
  }

  Field p, u, v;

 private:
  std::size_t at(std::size_t x, std::size_t y) const { return y % n_ * n_ + x % n_; }
  std::size_t n_;
  Field old_p_, old_u_, old_v_;
};

void step(Sea& whole, std::string_view isa = "") { whole.step(whole.row(whole.rows()), whole.row(1), isa); }
Sea::Invariants invariants(const Sea& whole) { return whole.invariants(whole.row(whole.rows()), whole.row(1)); }

TEST(Sea, IsTheSchemeForEveryVectorWidth) {
  for (const std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa)) continue;
    for (const int cells : {16, 37}) {
      Sea sea(cells, 0, cells);
      sea.begin();
      PlainSea plain(sea);
      for (int n = 0; n < 30; ++n) {
        step(sea, isa);
        plain.step(n == 0 ? 30 : 60);
        ASSERT_EQ(plain.differing(sea), 0U) << isa << ' ' << cells << " cells, step " << n;
      }
    }
  }
}

TEST(Sea, OfSeveralTilesOfColumnsIsTheScheme) {
  constexpr int kCells = 2055;  // a tile has 2048 columns, with the western ghost cell
  Sea sea(kCells, 0, kCells);
  sea.begin();
  PlainSea plain(sea);
  for (int n = 0; n < 3; ++n) {
    step(sea, mm::best_isa());
    plain.step(n == 0 ? 30 : 60);
  }
  EXPECT_EQ(plain.differing(sea), 0U);
}

// A gravity wave moves at the square root of p. Its part with wave numbers 3 and 2, which the vortices do not have,
// changes its sign in half a period.
TEST(Sea, AGravityWaveHasItsSpeed) {
  constexpr int kCells = 64;
  constexpr double kMean = 5e4, kSpan_m = kCells * 1e5;
  Sea sea(kCells, 0, kCells);
  sea.begin();
  const auto amplitude = [&] {
    double sum = 0;
    for (int y = 0; y < kCells; ++y)
      for (int x = 0; x < kCells; ++x)
        sum +=
            sea.row(y + 1).p[x + 1] * std::cos(6 * M_PI * (x + 0.5) / kCells) * std::cos(4 * M_PI * (y + 0.5) / kCells);
    return sum;
  };
  const double first = amplitude(), half_s = kSpan_m / std::sqrt(13.0) / std::sqrt(kMean) / 2;
  for (int n = 0; n < static_cast<int>(half_s / 30); ++n) step(sea);
  EXPECT_NEAR(amplitude() / first, -1, 0.05);
}

TEST(Sea, ConservesWhatItMust) {
  Sea sea(64, 0, 64);
  sea.begin();
  const Sea::Invariants before = invariants(sea);
  for (int n = 0; n < 50; ++n) step(sea);
  const Sea::Invariants drifts = sea_drifts(before, invariants(sea));
  EXPECT_EQ(sea_violation(drifts, 64, 1), "");
  EXPECT_GT(drifts[1], 0) << "the leap is not exact";
  EXPECT_NE(sea_violation({1e-11, 0, 0}, 256, 1).find("mass"), std::string::npos);
  EXPECT_NE(sea_violation({0, 1e-5, 0}, 256, 1).find("energy"), std::string::npos);
  EXPECT_NE(sea_violation({0, 0, NAN}, 256, 1).find("enstrophy"), std::string::npos);
}

/// A sea on threads, each with memory of its own.
struct Threads {
  std::vector<std::vector<double>> memory;
  SeaTeam team;

  Threads(int cells, std::size_t threads, std::string_view isa)
      : memory(own(cells, threads)), team(cells, pointers(), isa) {}

  static std::vector<std::vector<double>> own(int cells, std::size_t threads) {
    std::vector<std::vector<double>> all;
    for (std::size_t t = 0; t < threads; ++t) all.emplace_back(SeaTeam::words(cells, threads, t), NAN);
    return all;
  }
  std::vector<double*> pointers() {
    std::vector<double*> all;
    for (auto& one : memory) all.push_back(one.data());
    return all;
  }
  void run(int steps) {
    std::vector<std::jthread> all;
    for (std::size_t t = 0; t < team.threads(); ++t) all.emplace_back([this, t, steps] { team.run(t, steps); });
  }
  void begin() {
    for (std::size_t t = 0; t < team.threads(); ++t) team.part(t).begin();
  }
  std::uint64_t digest() {
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < team.threads(); ++t) sum += team.part(t).digest();
    return sum;
  }
};

TEST(SeaTeam, HasTheBitsOfOneThreadWhateverWasInMemory) {
  for (const int steps : {1, 2, 21}) {
    const std::uint64_t digest = mm::workloads::sea_digest(12, steps);
    for (const std::size_t threads : {1, 2, 5, 12}) {
      Threads some(12, threads, mm::best_isa());
      for (int again = 0; again < 2; ++again) {  // after an odd number of steps the levels have changed places
        some.begin();
        some.run(steps);
        EXPECT_EQ(some.digest(), digest) << threads << " threads, " << steps << " steps";
      }
    }
  }
}

TEST(SeaTeam, ContinuesWhereItStopped) {
  Threads some(20, 3, "");
  some.begin();
  for (const int steps : {1, 3, 2, 5}) some.run(steps);
  EXPECT_EQ(some.digest(), mm::workloads::sea_digest(20, 11));
}

TEST(SeaTeam, InvariantsAreThoseOfTheWholeSea) {
  Sea whole(24, 0, 24);
  whole.begin();
  Threads some(24, 5, "");
  some.begin();
  Sea::Invariants sum{};
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += some.team.invariants(t)[i];
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i] / invariants(whole)[i], 1, 1e-13);
}

TEST(SeaTeam, AWrongBitChangesTheDigest) {
  Threads some(16, 2, "");
  some.begin();
  some.run(4);
  const std::uint64_t right = some.digest();
  double& u = const_cast<double&>(some.team.part(1).row(3).u[5]);
  u = std::nextafter(u, 1e9);
  EXPECT_NE(some.digest(), right);
}

}  // namespace

/// mg: Poisson's equation in a periodic box, by V-cycles over successively coarser grids, with halo exchanges among
/// ranks.
///
/// Ranks form a grid of powers of two. Every rank holds all of the coarsest grids, because a message takes longer than
/// their work.
#include <algorithm>
#include <cmath>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {
namespace {

struct MultigridClass {
  const char* name;
  int log_points, cycles;  ///< along each edge
  const double* smoother;  ///< by distance, like kOperator; the last coefficient is zero
  double norm;             ///< from the report
};
constexpr double kSmoother[] = {-3.0 / 8, 1.0 / 32, -1.0 / 64}, kSmootherOfLarge[] = {-3.0 / 17, 1.0 / 33, -1.0 / 61};
constexpr MultigridClass kClasses[] = {{"S", 5, 4, kSmoother, 0.5307707005734e-4},
                                       {"W", 7, 4, kSmoother, 0.6467329375339e-5},
                                       {"A", 8, 4, kSmoother, 0.2433365309069e-5},
                                       {"B", 8, 20, kSmootherOfLarge, 0.1800564401355e-5},
                                       {"C", 9, 20, kSmootherOfLarge, 0.5706732285740e-6}};
constexpr double kTolerance = 1e-8;
constexpr std::size_t kCharges = 10;  // of each sign
constexpr std::size_t kWhole = 8;     // points along an edge of a grid that every rank holds whole
// The coefficients by distance: the point itself, its neighbours across faces, edges and corners. The second one is
// zero.
constexpr double kOperator[] = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};

/// This rank's part of a grid of `points` along each edge, with a layer of ghost points.
struct Level {
  std::size_t points = 0;
  std::size_t extent[3] = {};  ///< x, y, z of the part
  bool whole = false;          ///< whether every rank holds the whole grid
  Array<double> u, r;

  std::size_t step_y() const { return extent[0] + 2; }
  std::size_t step_z() const { return step_y() * (extent[1] + 2); }
  std::size_t size() const { return step_z() * (extent[2] + 2); }
  std::size_t at(std::size_t x, std::size_t y, std::size_t z) const { return z * step_z() + y * step_y() + x; }
};

/// Computes the sums of the four rows adjacent to a row, and of the four diagonally adjacent rows.
void add_rows(const Level& level, const double* row, double* __restrict near, double* __restrict far, std::size_t n) {
  const auto y = static_cast<std::ptrdiff_t>(level.step_y()), z = static_cast<std::ptrdiff_t>(level.step_z());
  const double *const a = row - y, *const b = row + y, *const c = row - z, *const d = row + z;
  const double *const e = c - y, *const f = c + y, *const g = d - y, *const h = d + y;
  for (std::size_t x = 0; x < n; ++x) near[x] = (a[x] + b[x]) + (c[x] + d[x]);
  for (std::size_t x = 0; x < n; ++x) far[x] = (e[x] + f[x]) + (g[x] + h[x]);
}

/// The sums of adjacent rows, for one thread.
struct Sums {
  explicit Sums(const Level& level) : near(level.step_y()), far(near.size()) {}
  std::vector<double> near, far;
};
/// Calls work(y, z, sums) for the rows of a grid on all threads: for `count` rows along y and z, from `first` on.
template <class Work>
void each_row(const Level& level, std::size_t first, const std::size_t* count, const Work& work) {
  in_parts(count[2], [&](std::size_t from, std::size_t to) {
    Sums sums(level);
    for (std::size_t z = first + from; z < first + to; ++z)
      for (std::size_t y = first; y < first + count[1]; ++y) work(y, z, sums);
  });
}

/// Fills the ghost points of a dimension that is not divided.
void wrap(const Level& level, std::size_t d, std::size_t step, Array<double>& values) {
  const std::size_t last = level.extent[d] * step;
  const auto copy = [&](std::size_t index, std::size_t run) {
    std::copy_n(&values[index + last], run, &values[index]);
    std::copy_n(&values[index + step], run, &values[index + last + step]);
  };
  if (d == 2) return in_parts(level.step_z(), [&](std::size_t first, std::size_t end) { copy(first, end - first); });
  in_parts(level.extent[2] + 2, [&](std::size_t first, std::size_t end) {
    for (std::size_t z = first; z < end; ++z)
      if (d == 1)
        copy(level.at(0, 0, z), level.step_y());
      else
        for (std::size_t y = 0; y < level.extent[1] + 2; ++y) copy(level.at(0, y, z), 1);
  });
}

class Multigrid final : public NpbKernel {
 public:
  explicit Multigrid(const MultigridClass& problem) : problem_(problem) {
    for (int remaining = ranks_, d = 2; remaining > 1; remaining /= 2, d = (d + 2) % 3) grid_[d] *= 2;
    place_[0] = n(rank_) % grid_[0];
    place_[1] = n(rank_) / grid_[0] % grid_[1];
    place_[2] = n(rank_) / grid_[0] / grid_[1];
    levels_.resize(n(problem.log_points));
    for (std::size_t l = 0; l < levels_.size(); ++l) {
      Level& level = levels_[l];
      level.points = std::size_t{2} << l;
      level.whole = ranks_ == 1 || level.points <= kWhole;
      for (int d = 0; d < 3; ++d) level.extent[d] = level.whole ? level.points : level.points / grid_[d];
      level.u = zeros<double>(level.size());
      level.r = zeros<double>(level.size());
    }
    charges_ = zeros<double>(top().size());
    const std::size_t* const e = top().extent;
    const std::size_t face = std::max({(e[1] + 2) * (e[2] + 2), (e[0] + 2) * (e[2] + 2), (e[0] + 2) * (e[1] + 2)});
    for (auto& side : faces_) side.resize(face);
    whole_.resize(kWhole * kWhole * kWhole);
    mine_.resize(whole_.size() / n(ranks_));
  }

  void prepare() override { place_charges(); }
  void reset() override { fill(top().u, 0.0); }

  void solve() override {
    residual(top(), charges_);
    first_norm_ = norm();
    for (int i = 0; i < problem_.cycles; ++i) {
      cycle();
      residual(top(), charges_);
    }
    norm_ = norm();
  }

  std::string verify() override { return differs("norm of the residual", problem_.norm, norm_, kTolerance); }
  json observed() const override { return {{"residual_norm", norm_}, {"first_norm", first_norm_}}; }

 private:
  static std::size_t n(int i) { return static_cast<std::size_t>(i); }
  Level& top() { return levels_.back(); }

  /// Sets the charges: +1 at the ten largest of the random numbers in the box, -1 at the ten smallest.
  void place_charges() {
    const Level& level = top();
    struct ChargeSite {
      double value, index;
    };
    std::vector<ChargeSite> low, high;
    const auto insert = [](std::vector<ChargeSite>& points, const ChargeSite& p, const auto& precedes) {
      if (points.size() == kCharges && !precedes(p, points.back())) return;
      points.insert(std::upper_bound(points.begin(), points.end(), p, precedes), p);
      if (points.size() > kCharges) points.pop_back();
    };
    const auto less = [](const ChargeSite& a, const ChargeSite& b) { return a.value < b.value; };
    const auto greater = [](const ChargeSite& a, const ChargeSite& b) { return a.value > b.value; };
    std::size_t origin[3];
    for (std::size_t d = 0; d < 3; ++d) origin[d] = place_[d] * level.extent[d];
    for (std::size_t z = 0; z < level.extent[2]; ++z)
      for (std::size_t y = 0; y < level.extent[1]; ++y) {
        std::size_t index = ((origin[2] + z) * level.points + origin[1] + y) * level.points + origin[0];
        Random random(kSeed, index);
        for (std::size_t x = 0; x < level.extent[0]; ++x, ++index) {
          const ChargeSite p{random.next(), static_cast<double>(index)};
          insert(low, p, less);
          insert(high, p, greater);
        }
      }
    // A part has at least 4 x 4 x 4 points, so each rank contributes ten of both.
    std::vector<ChargeSite> candidates(2 * kCharges * n(ranks_));
    low.insert(low.end(), high.begin(), high.end());
    constexpr int kCount = 2 * 2 * static_cast<int>(kCharges);
    check(MPI_Allgather(low.data(), kCount, MPI_DOUBLE, candidates.data(), kCount, MPI_DOUBLE, all_), "MPI_Allgather");
    low.clear();
    high.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (i / kCharges % 2 == 0)
        insert(low, candidates[i], less);
      else
        insert(high, candidates[i], greater);
    const auto put = [&](const std::vector<ChargeSite>& points, double charge) {
      for (const ChargeSite& p : points) {
        const auto index = static_cast<std::size_t>(p.index);
        const std::size_t global[] = {index % level.points, index / level.points % level.points,
                                      index / level.points / level.points};
        std::size_t local[3];
        bool is_local = true;
        for (std::size_t d = 0; d < 3; ++d) {
          local[d] = global[d] - origin[d] + 1;
          is_local = is_local && global[d] >= origin[d] && global[d] < origin[d] + level.extent[d];
        }
        if (is_local) charges_[level.at(local[0], local[1], local[2])] = charge;
      }
    };
    put(low, -1);
    put(high, 1);
  }

  /// Computes one V-cycle: down to the coarsest grid, and up again.
  void cycle() {
    for (std::size_t l = levels_.size() - 1; l > 0; --l) restrict_to(levels_[l], levels_[l - 1]);
    std::fill(levels_[0].u.begin(), levels_[0].u.end(), 0.0);
    smooth(levels_[0]);
    for (std::size_t l = 1; l < levels_.size(); ++l) {
      const bool last = l + 1 == levels_.size();
      interpolate(levels_[l - 1], levels_[l], last);
      residual(levels_[l], last ? charges_ : levels_[l].r);
      smooth(levels_[l]);
    }
  }

  /// Computes r = v - A u, including ghost points. v may be r.
  void residual(Level& level, const Array<double>& v) {
    const std::size_t nx = level.extent[0];
    each_row(level, 1, level.extent, [&](std::size_t y, std::size_t z, Sums& sums) {
      const std::size_t row = level.at(0, y, z);
      const double *const u = level.u.data() + row, *const source = v.data() + row;
      double* const r = level.r.data() + row;
      const double *const near = sums.near.data(), *const far = sums.far.data();
      add_rows(level, u, sums.near.data(), sums.far.data(), nx + 2);
#pragma GCC ivdep
      for (std::size_t x = 1; x <= nx; ++x)
        r[x] = source[x] - kOperator[0] * u[x] - kOperator[2] * (far[x] + near[x - 1] + near[x + 1]) -
               kOperator[3] * (far[x - 1] + far[x + 1]);
    });
    swap_faces(level, level.r);
  }

  /// Computes u += S r, including ghost points.
  void smooth(Level& level) {
    const std::size_t nx = level.extent[0];
    const double centre = problem_.smoother[0], across = problem_.smoother[1], edge = problem_.smoother[2];
    each_row(level, 1, level.extent, [&](std::size_t y, std::size_t z, Sums& sums) {
      const std::size_t row = level.at(0, y, z);
      const double* const r = level.r.data() + row;
      double* const u = level.u.data() + row;
      const double *const near = sums.near.data(), *const far = sums.far.data();
      add_rows(level, r, sums.near.data(), sums.far.data(), nx + 2);
#pragma GCC ivdep
      for (std::size_t x = 1; x <= nx; ++x)
        u[x] += centre * r[x] + across * (r[x - 1] + r[x + 1] + near[x]) + edge * (far[x] + near[x - 1] + near[x + 1]);
    });
    swap_faces(level, level.u);
  }

  /// Returns the index of this rank's part of the finer grid in the coarser grid, if the coarser grid is whole, and
  /// else 0.
  std::size_t corner(const Level& fine, const Level& coarse) const {
    if (!coarse.whole || fine.whole) return 0;
    return coarse.at(place_[0] * fine.extent[0] / 2, place_[1] * fine.extent[1] / 2, place_[2] * fine.extent[2] / 2);
  }

  /// Restricts the residual to the coarser grid: a weighted mean around every second point.
  void restrict_to(const Level& fine, Level& coarse) {
    const std::size_t origin = corner(fine, coarse), nx = fine.extent[0] / 2;
    const std::size_t count[] = {nx, fine.extent[1] / 2, fine.extent[2] / 2};
    each_row(fine, 1, count, [&](std::size_t y, std::size_t z, Sums& sums) {
      const double *const near = sums.near.data(), *const far = sums.far.data();
      const double* const r = fine.r.data() + fine.at(0, 2 * y, 2 * z);
      double* const target = coarse.r.data() + origin + coarse.at(0, y, z);
      add_rows(fine, r, sums.near.data(), sums.far.data(), fine.extent[0] + 2);
      for (std::size_t x = 1; x <= nx; ++x) {
        const std::size_t i = 2 * x;
        target[x] = 0.5 * r[i] + 0.25 * (r[i - 1] + r[i + 1] + near[i]) + 0.125 * (near[i - 1] + near[i + 1] + far[i]) +
                    0.0625 * (far[i - 1] + far[i + 1]);
      }
    });
    if (coarse.whole && !fine.whole) gather(fine, coarse, origin);
    swap_faces(coarse, coarse.r);
  }

  /// Gathers the parts of the coarser grid on all ranks.
  void gather(const Level& fine, Level& coarse, std::size_t origin) {
    const std::size_t e[3] = {fine.extent[0] / 2, fine.extent[1] / 2, fine.extent[2] / 2};
    const auto rows = [&](double* parts, std::size_t begin, const auto& copy) {
      for (std::size_t z = 1; z <= e[2]; ++z)
        for (std::size_t y = 1; y <= e[1]; ++y, parts += e[0])
          copy(parts, coarse.r.data() + begin + coarse.at(1, y, z));
    };
    rows(mine_.data(), origin, [&](double* part, const double* row) { std::copy_n(row, e[0], part); });
    library([&] {
      const int count = static_cast<int>(e[0] * e[1] * e[2]);
      check(MPI_Allgather(mine_.data(), count, MPI_DOUBLE, whole_.data(), count, MPI_DOUBLE, all_), "MPI_Allgather");
    });
    for (std::size_t r = 0; r < n(ranks_); ++r) {
      const std::size_t begin =
          coarse.at(r % grid_[0] * e[0], r / grid_[0] % grid_[1] * e[1], r / grid_[0] / grid_[1] * e[2]);
      rows(whole_.data() + r * e[0] * e[1] * e[2], begin,
           [&](const double* part, double* row) { std::copy_n(part, e[0], row); });
    }
  }

  /// Interpolates trilinearly to the finer grid, including ghost points. If `add`, adds to it instead of replacing it.
  void interpolate(const Level& coarse, Level& fine, bool add) {
    const std::size_t origin = corner(fine, coarse), nx = fine.extent[0];
    const std::size_t count[] = {nx + 2, fine.extent[1] + 2, fine.extent[2] + 2};
    each_row(fine, 0, count, [&](std::size_t y, std::size_t z, Sums& sums) {
      double* __restrict const row = sums.near.data();
      // An odd index lies between two coarse points.
      const double* const a = coarse.u.data() + origin + coarse.at(0, y / 2, z / 2);
      const double* const b = y % 2 == 0 ? a : a + coarse.step_y();
      const double* const c = z % 2 == 0 ? a : a + coarse.step_z();
      const double* const d = b + (c - a);
      for (std::size_t x = 0; x < nx / 2 + 2; ++x) row[x] = 0.25 * ((a[x] + b[x]) + (c[x] + d[x]));
      double* const u = fine.u.data() + fine.at(0, y, z);
      for (std::size_t x = 0; x < nx / 2 + 1; ++x) {
        const double midpoint = 0.5 * (row[x] + row[x + 1]);
        u[2 * x] = add ? u[2 * x] + row[x] : row[x];
        u[2 * x + 1] = add ? u[2 * x + 1] + midpoint : midpoint;
      }
    });
  }

  /// Visits runs of consecutive points (index and length) of the face at `i` along a dimension, including ghost points.
  template <class Visit>
  static void on_face(const Level& level, std::size_t d, std::size_t i, const Visit& visit) {
    if (d == 2) return visit(level.at(0, 0, i), level.step_z());
    for (std::size_t z = 0; z < level.extent[2] + 2; ++z)
      if (d == 1)
        visit(level.at(0, i, z), level.step_y());
      else
        for (std::size_t y = 0; y < level.extent[1] + 2; ++y) visit(level.at(i, y, z), std::size_t{1});
  }

  /// Fills the ghost points from the neighbours' faces: along x, then y, then z, so that edges and corners are
  /// included.
  void swap_faces(const Level& level, Array<double>& values) {
    const std::size_t steps[] = {1, level.step_y(), level.step_z()};
    for (std::size_t d = 0; d < 3; ++d) {
      const std::size_t last = level.extent[d];
      if (level.whole || grid_[d] == 1) {
        wrap(level, d, steps[d], values);
        continue;
      }
      const auto pack = [&](std::size_t i, std::vector<double>& face) {
        double* out = face.data();
        on_face(level, d, i, [&](std::size_t index, std::size_t run) { out = std::copy_n(&values[index], run, out); });
        return static_cast<int>(out - face.data());
      };
      const auto unpack = [&](const std::vector<double>& face, std::size_t i) {
        const double* in = face.data();
        on_face(level, d, i,
                [&](std::size_t index, std::size_t run) { std::copy_n(in, run, &values[index]), in += run; });
      };
      const int count = pack(1, faces_[0]);
      pack(last, faces_[1]);
      library([&] { exchange(d, count); });
      unpack(faces_[2], 0);
      unpack(faces_[3], last + 1);
    }
  }

  /// Sends the first two faces below and above, and receives the other two from there.
  void exchange(std::size_t d, int count) {
    const int below = neighbour(d, grid_[d] - 1), above = neighbour(d, 1);
    MPI_Request requests[4];
    check(MPI_Irecv(faces_[2].data(), count, MPI_DOUBLE, below, 1, all_, requests), "MPI_Irecv");
    check(MPI_Irecv(faces_[3].data(), count, MPI_DOUBLE, above, 0, all_, requests + 1), "MPI_Irecv");
    check(MPI_Isend(faces_[0].data(), count, MPI_DOUBLE, below, 0, all_, requests + 2), "MPI_Isend");
    check(MPI_Isend(faces_[1].data(), count, MPI_DOUBLE, above, 1, all_, requests + 3), "MPI_Isend");
    check(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
  }
  int neighbour(std::size_t d, std::size_t step) const {
    std::size_t coordinates[3] = {place_[0], place_[1], place_[2]};
    coordinates[d] = (coordinates[d] + step) % grid_[d];
    return static_cast<int>((coordinates[2] * grid_[1] + coordinates[1]) * grid_[0] + coordinates[0]);
  }

  double norm() {
    const Level& level = top();
    double squares = sum_in_parts(level.extent[2], [&](std::size_t first, std::size_t last) {
      double total = 0;
      for (std::size_t z = 1 + first; z < 1 + last; ++z)
        for (std::size_t y = 1; y <= level.extent[1]; ++y) {
          const double* const r = level.r.data() + level.at(1, y, z);
          total += in_fours(level.extent[0], [=](std::size_t x) { return r[x] * r[x]; });
        }
      return total;
    });
    sum(&squares, 1, all_);
    return std::sqrt(squares / std::pow(static_cast<double>(level.points), 3));
  }

  const MultigridClass& problem_;
  std::size_t grid_[3] = {1, 1, 1}, place_[3] = {};  // ranks along x, y, z; coordinates of this rank
  std::vector<Level> levels_;                        // the coarsest first
  Array<double> charges_;
  std::vector<double> faces_[4], whole_, mine_;
  double norm_ = 0, first_norm_ = 0;
};

}  // namespace

std::vector<Problem> mg_problems() {
  std::vector<Problem> problems;
  for (const MultigridClass& c : kClasses) {
    const int points = 1 << c.log_points;
    const std::string edge = std::to_string(points);
    problems.push_back(
        {.kernel = "mg",
         .class_name = c.name,
         .size = edge + "x" + edge + "x" + edge,
         .operations = 58.0 * c.cycles * std::pow(points, 3),
         .bytes = 8 * 3.5 * std::pow(points, 3),
         .max_ranks = 512,  // 8 along each edge: 2 points per rank along an edge of the coarsest divided grid
         .power_of_two = true,
         .make = [&c](bool) { return std::make_shared<Multigrid>(c); }});
  }
  return problems;
}

}  // namespace mm::mpi::npb

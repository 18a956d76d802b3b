/// Sweeps over grids with a boundary: 5 and 9 points in 2-D, 7 and 27 in 3-D, and the first loop of a shallow-water
/// model.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

constexpr double kUndone = -1e300;  // an element that no unit has written yet
constexpr std::size_t kMargin = 8;  // elements on both sides of a row, so that the inner ones start at a line

/// A grid of nz planes of ny rows of nx elements, and its result. The grid has a margin of one row and plane (none if
/// flat). A unit is `rows` adjacent rows, or a part of one row.
template <class A, bool flat>
class Grid : public Kernel {
 protected:
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  struct Size {
    std::size_t nx, ny, rows, length;
  };
  using Neighbour = std::pair<std::ptrdiff_t, double>;  // offset, weight

 public:
  Grid(const Shape& shape, Memory& memory)
      : size_(size_for(shape.volume_bytes)),
        pitch_(size_.nx + 2 * kMargin),
        plane_(flat ? pitch_ : pitch_ * (size_.ny + 2)) {
    const std::size_t inner = size_.nx * size_.ny;
    Shape single = shape;
    single.threads = 1;
    nz_ = units_in(single, (plane_ + inner) * 8, 2 * plane_ * 8);
    if (Grid::units() < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer units than threads");
    in_ = {memory.take<double>((nz_ + 2) * plane_)};
    out_ = {memory.take<double>(nz_ * inner)};
    for (std::size_t i = 0; i < (nz_ + 2) * plane_; ++i) in_.p[i] = exact(i);
    std::fill_n(out_.p, nz_ * inner, kUndone);
  }
  std::size_t units() const override { return nz_ * size_.nx * size_.ny / (size_.rows * size_.length); }
  std::span<std::byte> result() override {
    return std::as_writable_bytes(std::span(out_.p, nz_ * size_.nx * size_.ny));
  }

 protected:
  static Size size_for(std::size_t volume) {
    if (flat)
      return volume < 64 << 10 ? Size{64, 1, 1, 64} : volume < 1 << 20 ? Size{256, 1, 1, 256} : Size{1024, 1, 1, 256};
    return volume < 256 << 10  ? Size{32, 4, 4, 32}
           : volume < 2 << 20  ? Size{64, 16, 4, 64}
           : volume < 16 << 20 ? Size{128, 64, 2, 128}
                               : Size{256, 256, 1, 256};
  }
  /// Returns the counts of a unit from the flops and loads per point, and the lines of the grid that a unit touches.
  Counts each(double flops, double loads, std::size_t lines) const {
    const double n = static_cast<double>(size_.rows * size_.length);
    return {.flops = flops * n,
            .load_bytes = loads * n * 8,
            .store_bytes = n * 8,
            .line_read_bytes = static_cast<double>(lines * kLine) + n * 8,
            .line_write_bytes = n * 8};
  }
  /// Calls body(in, out, length) for every row of these units. `in` starts one step before the first point along every
  /// axis, so that all neighbours are at positive offsets.
  template <class Body>
  void over(std::size_t first, std::size_t last, const Body& body) const {
    const Reals in = in_, out = out_;
    const Size size = size_;
    const std::size_t pitch = pitch_, plane = plane_, parts = size.nx / size.length,
                      per_plane = size.ny / size.rows * parts;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t z = u / per_plane, y = u % per_plane / parts * size.rows, x = u % parts * size.length;
      for (std::size_t r = 0; r < size.rows; ++r) {
        const std::size_t row = flat ? z : z * (plane / pitch) + y + r;
        body(in.from(row * pitch + kMargin - 1 + x), out.from((z * size.ny + y + r) * size.nx + x), size.length);
      }
      A::end_unit();
    }
  }
  template <std::size_t n>
  std::string compare(const std::array<Neighbour, n>& neighbours) const {
    for (std::size_t i = 0; i < (nz_ + 2) * plane_; ++i)
      if (in_.p[i] != exact(i)) return "element " + std::to_string(i) + " of the grid has changed";
    for (std::size_t z = 0; z < nz_; ++z)
      for (std::size_t y = 0; y < size_.ny; ++y)
        for (std::size_t x = 0; x < size_.nx; ++x) {
          const double actual = out_.p[(z * size_.ny + y) * size_.nx + x];
          if (actual == kUndone) continue;
          const double* const centre = in_.p + (z + 1) * plane_ + (flat ? 0 : (y + 1) * pitch_) + kMargin + x;
          double expected = 0;
          for (const auto& [offset, weight] : neighbours) expected += weight * centre[offset];
          if (actual != expected)
            return "point " + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + " is " +
                   std::to_string(actual) + ", not " + std::to_string(expected);
        }
    return "";
  }
  /// Returns the `points` neighbours within a step of the centre; weights[k] is the weight of the points that are k
  /// steps away along the axes.
  template <std::size_t points, std::size_t n>
  std::array<Neighbour, points> around(const std::array<double, n>& weights) const {
    std::array<Neighbour, points> neighbours{};
    std::size_t count = 0;
    const auto pitch = static_cast<std::ptrdiff_t>(pitch_), plane = static_cast<std::ptrdiff_t>(plane_);
    for (std::ptrdiff_t z = -1; z <= 1; ++z)
      for (std::ptrdiff_t y = flat ? 0 : -1; y <= (flat ? 0 : 1); ++y)
        for (std::ptrdiff_t x = -1; x <= 1; ++x)
          if (const auto steps = static_cast<std::size_t>(x * x + y * y + z * z); steps < n)
            neighbours[count++] = {z * plane + y * pitch + x, weights[steps]};
    return neighbours;
  }
  Size size_;
  std::size_t pitch_, plane_, nz_ = 0;
  Reals in_, out_;
};

template <class A>
struct Flat5 final : Grid<A, true> {
  using Grid<A, true>::Grid;
  Counts counts() const override { return this->each(6, 5, 3 * this->size_.length / 8 + 2); }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t pitch = this->pitch_;
    this->over(first, last, [=](auto in, auto out, std::size_t n) {
      const auto a = in, b = in.from(pitch), c = in.from(2 * pitch);
      for (std::size_t i = 0; i < n; ++i) out[i] = 0.5 * b[i + 1] + 0.125 * ((b[i] + b[i + 2]) + (a[i + 1] + c[i + 1]));
    });
  }
  std::string verify() const override { return this->compare(this->template around<5>(std::array{0.5, 0.125})); }
};

template <class A>
struct Flat9 final : Grid<A, true> {
  using Grid<A, true>::Grid;
  Counts counts() const override { return this->each(11, 9, 3 * (this->size_.length / 8 + 2)); }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t pitch = this->pitch_;
    this->over(first, last, [=](auto in, auto out, std::size_t n) {
      const auto a = in, b = in.from(pitch), c = in.from(2 * pitch);
      for (std::size_t i = 0; i < n; ++i)
        out[i] = 0.25 * b[i + 1] + 0.125 * ((b[i] + b[i + 2]) + (a[i + 1] + c[i + 1])) +
                 0.0625 * ((a[i] + a[i + 2]) + (c[i] + c[i + 2]));
    });
  }
  std::string verify() const override {
    return this->compare(this->template around<9>(std::array{0.25, 0.125, 0.0625}));
  }
};

template <class A>
struct Space7 final : Grid<A, false> {
  using Grid<A, false>::Grid;
  Counts counts() const override {
    const std::size_t lines = this->size_.length / 8, rows = this->size_.rows;
    return this->each(8, 7, rows * (lines + 2) + 2 * lines + 2 * rows * lines);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t pitch = this->pitch_, plane = this->plane_;
    this->over(first, last, [=](auto in, auto out, std::size_t n) {
      const auto b = in.from(pitch), e = b.from(plane), h = e.from(plane);  // the middle rows of three planes
      const auto d = in.from(plane), f = e.from(pitch);                     // the adjacent rows of the second plane
      for (std::size_t i = 0; i < n; ++i)
        out[i] = 0.25 * e[i + 1] + 0.125 * ((e[i] + e[i + 2]) + (d[i + 1] + f[i + 1]) + (b[i + 1] + h[i + 1]));
    });
  }
  std::string verify() const override { return this->compare(this->template around<7>(std::array{0.25, 0.125})); }
};

template <class A>
struct Space27 final : Grid<A, false> {
  using Grid<A, false>::Grid;
  Counts counts() const override {
    return this->each(30, 27, 3 * (this->size_.rows + 2) * (this->size_.length / 8 + 2));
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t pitch = this->pitch_, plane = this->plane_;
    this->over(first, last, [=](auto in, auto out, std::size_t n) {
      const auto a = in, b = a.from(pitch), c = b.from(pitch);  // rows of the previous plane
      const auto d = a.from(plane), e = d.from(pitch), f = e.from(pitch);
      const auto g = d.from(plane), h = g.from(pitch), k = h.from(pitch);
      for (std::size_t i = 0; i < n; ++i)
        out[i] = 0.25 * e[i + 1] + 0.0625 * ((e[i] + e[i + 2]) + (d[i + 1] + f[i + 1]) + (b[i + 1] + h[i + 1])) +
                 0.03125 * ((d[i] + d[i + 2]) + (f[i] + f[i + 2]) + (b[i] + b[i + 2]) + (h[i] + h[i + 2]) +
                            (a[i + 1] + c[i + 1]) + (g[i + 1] + k[i + 1])) +
                 0.015625 * ((a[i] + a[i + 2]) + (c[i] + c[i + 2]) + (g[i] + g[i + 2]) + (k[i] + k[i + 2]));
    });
  }
  std::string verify() const override {
    return this->compare(this->template around<27>(std::array{0.25, 0.0625, 0.03125, 0.015625}));
  }
};

/// Mass fluxes, vorticity and height from velocities and pressure on a staggered grid: three input and four output
/// arrays.
template <class A>
class ShallowWater final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  static constexpr double kAcross = 0.25, kAlong = 0.5;

 public:
  ShallowWater(const Shape& shape, Memory& memory)
      : nx_(shape.volume_bytes < 32 << 10  ? 32
            : shape.volume_bytes < 1 << 20 ? 128
                                           : 1024),
        pitch_(nx_ + kMargin),
        length_(std::min<std::size_t>(nx_, 128)) {
    Shape single = shape;
    single.threads = 1;
    ny_ = units_in(single, (3 * pitch_ + 4 * nx_) * 8, 3 * pitch_ * 8);
    if (units() < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer units than threads");
    for (std::size_t k = 0; k < 3; ++k) {
      in_[k] = {memory.take<double>((ny_ + 1) * pitch_)};
      for (std::size_t i = 0; i < (ny_ + 1) * pitch_; ++i) in_[k].p[i] = exact(3 * i + k);
    }
    out_ = {memory.take<double>(4 * ny_ * nx_)};
    std::fill_n(out_.p, 4 * ny_ * nx_, kUndone);
  }
  std::size_t units() const override { return ny_ * nx_ / length_; }
  Counts counts() const override {
    const double n = static_cast<double>(length_), lines = n / 8;
    return {.flops = 24 * n,
            .load_bytes = 10 * n * 8,
            .store_bytes = 4 * n * 8,
            .line_read_bytes = (6 * lines + 5 + 4 * lines) * kLine,
            .line_write_bytes = 4 * n * 8};
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t parts = nx_ / length_, n = length_, points = ny_ * nx_, pitch = pitch_;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t i = u / parts * pitch + u % parts * n;
      const auto cu = out_.from(u * n), cv = cu.from(points), z = cv.from(points), h = z.from(points);
      row(in_[0].from(i), in_[0].from(i + pitch), in_[1].from(i), in_[1].from(i + pitch), in_[2].from(i),
          in_[2].from(i + pitch), cu, cv, z, h, n);
      A::end_unit();
    }
  }
  std::string verify() const override {
    const double *const u = in_[0].p, *const v = in_[1].p, *const p = in_[2].p;
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < (ny_ + 1) * pitch_; ++i)
        if (in_[k].p[i] != exact(3 * i + k)) return "element " + std::to_string(i) + " of an input has changed";
    const std::size_t points = ny_ * nx_;
    for (std::size_t o = 0; o < points; ++o) {
      const std::size_t sw = o / nx_ * pitch_ + o % nx_, se = sw + 1, nw = sw + pitch_, ne = nw + 1;
      const double turn = (v[ne] - v[nw]) * kAcross - (u[ne] - u[se]) * kAlong;
      const double square = u[se] * u[se] + u[sw] * u[sw] + v[nw] * v[nw] + v[sw] * v[sw];
      const std::array expected{u[se] * (p[sw] + p[se]) / 2, v[nw] * (p[sw] + p[nw]) / 2,
                                turn / (p[sw] + p[se] + p[nw] + p[ne]), square / 4 + p[sw]};
      for (std::size_t k = 0; k < 4; ++k)
        if (const double actual = out_.p[k * points + o]; actual != kUndone && actual != expected[k])
          return "element " + std::to_string(o) + " of result " + std::to_string(k) + " is " + std::to_string(actual) +
                 ", not " + std::to_string(expected[k]);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(out_.p, 4 * ny_ * nx_)); }

 private:
  static void row(Reals u, Reals u_up, Reals v, Reals v_up, Reals p, Reals p_up, Reals cu, Reals cv, Reals z, Reals h,
                  std::size_t n) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const Real sw = p[i], se = p[i + 1], nw = p_up[i], ne = p_up[i + 1];
      const Real west = u[i], east = u[i + 1], south = v[i], north = v_up[i];
      cu[i] = 0.5 * (se + sw) * east;
      cv[i] = 0.5 * (nw + sw) * north;
      z[i] = (kAcross * (v_up[i + 1] - north) - kAlong * (u_up[i + 1] - east)) / ((sw + se) + (nw + ne));
      h[i] = sw + 0.25 * ((east * east + west * west) + (north * north + south * south));
    }
  }
  std::size_t nx_, pitch_, length_, ny_ = 0;
  std::array<Reals, 3> in_;
  Reals out_;
};

const Register<Flat5> stencil_2d_5pt{{.name = "stencil_2d_5pt",
                                      .kind = "stencil",
                                      .summary = "a Jacobi sweep in 2-D, five points",
                                      .source = "PolyBench jacobi-2d",
                                      .parity = true,
                                      .min_bytes = 4736}};
const Register<Flat9> stencil_2d_9pt{{.name = "stencil_2d_9pt",
                                      .kind = "stencil",
                                      .summary = "a Jacobi sweep in 2-D, nine points",
                                      .source = "PRK Stencil",
                                      .min_bytes = 4736}};
const Register<Space7> stencil_3d_7pt{{.name = "stencil_3d_7pt",
                                       .kind = "stencil",
                                       .summary = "a Jacobi sweep in 3-D, seven points",
                                       .source = "PolyBench heat-3d",
                                       .parity = true,
                                       .min_bytes = 14592}};
const Register<Space27> stencil_3d_27pt{{.name = "stencil_3d_27pt",
                                         .kind = "stencil",
                                         .summary = "a Jacobi sweep in 3-D, twenty-seven points",
                                         .source = "HPGMG; NPB MG",
                                         .min_bytes = 14592}};
const Register<ShallowWater> shallow_water{{.name = "shallow_water",
                                            .kind = "stencil",
                                            .summary = "fluxes, vorticity and height on a staggered grid: seven arrays",
                                            .source = "after the loop CALC1 of SPEC swim; Sadourny's scheme",
                                            .min_bytes = 8896}};

}  // namespace
}  // namespace mm::workloads

/// Transposes, and passes across the storage order.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

/// Rows and columns of a nearly square matrix with the given number of elements. Rows are a multiple of `step`. Columns
/// are odd if there are many, because rows a power of two apart would compete for few cache sets.
struct Sides {
  std::size_t rows, columns;
  Sides(std::size_t elements, std::size_t step) {
    const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(elements)));
    rows = std::max(side / step * step, step);
    columns = elements / rows;
    if (columns >= 32) columns = (columns - 1) | 1;
  }
};

/// b = a transposed. A unit is a piece of a row of b, which comes from a column of a.
template <class A>
class TransposeNaive final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  TransposeNaive(const Shape& shape, Memory& memory)
      : sides_(shape.volume_bytes / (2 * sizeof(double)), kPiece),
        a_{memory.take<double>(size())},
        b_{memory.take<double>(size())} {
    if (units() < static_cast<std::size_t>(shape.threads)) throw Absent("the volume has fewer units than threads");
    for (std::size_t i = 0; i < size(); ++i) a_.p[i] = static_cast<double>(i);
    std::fill_n(b_.p, size(), kUnset);
  }
  std::size_t units() const override { return size() / kPiece; }
  Counts counts() const override {
    return counted(0, 0, kPiece * 8, kPiece * 8, kPiece + kPiece / kPerLine, kPiece / kPerLine);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const std::size_t columns = sides_.columns, pieces = sides_.rows / kPiece;
    const auto all_a = a_, all_b = b_;
    for (std::size_t u = first; u < last; ++u) {
      const auto a = all_a.from(u % pieces * kPiece * columns + u / pieces), b = all_b.from(u * kPiece);
      for (std::size_t j = 0; j < kPiece; ++j) b[j] = Real(a[j * columns]);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t row = 0; row < sides_.columns; ++row)
      for (std::size_t column = 0; column < sides_.rows; ++column) {
        const double actual = b_.p[row * sides_.rows + column];
        const auto expected = static_cast<double>(column * sides_.columns + row);
        if (actual != kUnset && actual != expected)
          return wrong("element", row * sides_.rows + column, actual, expected);
      }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(b_.p, size())); }

 private:
  static constexpr std::size_t kPiece = kPlaces;
  std::size_t size() const { return sides_.rows * sides_.columns; }
  Sides sides_;
  Reals a_, b_;
};

/// b = a transposed. A unit is a square tile, which uses its lines completely.
template <class A>
class TransposeBlocked final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  TransposeBlocked(const Shape& shape, Memory& memory) {
    const std::size_t tiles = units_in(shape, 2 * kTile * kTile * sizeof(double));
    // The matrix is nearly square, uses most of the volume, and has an odd number of tiles on each side: see Sides.
    const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(tiles)));
    double best = 0;
    for (std::size_t down = std::max<std::size_t>(side / 2, 1); down <= side; ++down)
      for (const std::size_t across : {tiles / down, tiles / down - 1}) {
        const double score = static_cast<double>(down * across) * (down % 2 ? 1 : 0.9) * (across % 2 ? 1 : 0.9);
        if (score > best) best = score, down_ = down, across_ = across;
      }
    if (units() < static_cast<std::size_t>(shape.threads)) throw Absent("the volume has fewer units than threads");
    a_ = {memory.take<double>(size())};
    b_ = {memory.take<double>(size())};
    for (std::size_t i = 0; i < size(); ++i) a_.p[i] = static_cast<double>(i);
    std::fill_n(b_.p, size(), kUnset);
  }
  std::size_t units() const override { return down_ * across_; }
  Counts counts() const override {
    const std::size_t n = kTile * kTile, lines = n / kPerLine;
    return counted(0, 0, 8.0 * n, 8.0 * n, 2 * lines, lines);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto all_a = a_, all_b = b_;
    const std::size_t down = down_, across = across_, rows = rows_of(down), columns = rows_of(across);
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t i = u / across * kTile, j = u % across * kTile;
      const auto a = all_a.from(i * columns + j), b = all_b.from(j * rows + i);
      for (std::size_t y = 0; y < kTile; ++y)
        for (std::size_t x = 0; x < kTile; ++x) b[y * rows + x] = Real(a[x * columns + y]);
      A::end_unit();
    }
  }
  std::string verify() const override {
    const std::size_t rows = rows_of(down_), columns = rows_of(across_);
    for (std::size_t row = 0; row < columns; ++row)
      for (std::size_t column = 0; column < rows; ++column) {
        const double actual = b_.p[row * rows + column];
        const auto expected = static_cast<double>(column * columns + row);
        if (actual != kUnset && actual != expected) return wrong("element", row * rows + column, actual, expected);
      }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(b_.p, size())); }

 private:
  static constexpr std::size_t kTile = 16;
  static std::size_t rows_of(std::size_t tiles) { return tiles * kTile; }
  std::size_t size() const { return down_ * across_ * kTile * kTile; }
  std::size_t down_ = 0, across_ = 0;
  Reals a_, b_;
};

/// a = 4 - a down the columns of a matrix stored by rows. Threads take every T-th column, so that writes of one thread
/// invalidate lines in the caches of the others. Two passes restore a.
template <class A>
class WrongDirectionWalk final : public Kernel {
  using Real = typename A::template Value<double>;

 public:
  WrongDirectionWalk(const Shape& shape, Memory& memory)
      : threads_(static_cast<std::size_t>(shape.threads)),
        sides_(shape.volume_bytes / sizeof(double), kPlaces),
        a_{memory.take<double>(size())} {
    if (units() < threads_) throw Absent("the volume has fewer units than threads");
    for (std::size_t i = 0; i < size(); ++i) a_.p[i] = at(i);
  }
  std::size_t units() const override { return size() / kPlaces; }
  Counts counts() const override { return counted(kPlaces, 0, kPlaces * 8, kPlaces * 8, kPlaces, kPlaces); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto matrix = a_;
    const std::size_t columns = sides_.columns, pieces = sides_.rows / kPlaces;
    for (std::size_t u = first; u < last; ++u) {
      const auto a = matrix.from(u % pieces * kPlaces * columns + column(u / pieces));
      for (std::size_t j = 0; j < kPlaces; ++j) a[j * columns] = Real(4) - a[j * columns];
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < size(); ++i)
      if (a_.p[i] != at(i) && a_.p[i] != 4 - at(i)) return wrong("element", i, a_.p[i], at(i));
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(a_.p, size())); }

 private:
  static double at(std::size_t i) { return 1 + static_cast<double>(i % 4096) * 0x1p-20; }
  std::size_t size() const { return sides_.rows * sides_.columns; }
  /// Returns column p in the order 0, T, 2T, ..., 1, T + 1, ...: a thread's share of the units is every T-th column.
  std::size_t column(std::size_t p) const {
    const std::size_t per_thread = sides_.columns / threads_, extra = sides_.columns % threads_;
    if (p < extra * (per_thread + 1)) return p % (per_thread + 1) * threads_ + p / (per_thread + 1);
    p -= extra * (per_thread + 1);
    return p % per_thread * threads_ + extra + p / per_thread;
  }
  std::size_t threads_;
  Sides sides_;
  typename A::template Array<double> a_;
};

const Register<TransposeNaive> transpose_naive{{.name = "transpose_naive",
                                                .kind = "irregular",
                                                .summary = "matrix transpose, row by row of the result",
                                                .source = "PRK Transpose; HPCC PTRANS",
                                                .parity = true,
                                                .min_bytes = 8192}};
const Register<TransposeBlocked> transpose_blocked{{.name = "transpose_blocked",
                                                    .kind = "irregular",
                                                    .summary = "matrix transpose, in tiles of 16 x 16",
                                                    .source = "PRK Transpose, tiled",
                                                    .min_bytes = 8192}};

const Register<WrongDirectionWalk> wrong_direction_walk{
    {.name = "wrong_direction_walk",
     .kind = "irregular",
     .summary = "a = 4 - a down the columns of a matrix stored by rows; threads write to the same lines",
     .source = "PARbench's unfavourable direction",
     .parity = true}};

}  // namespace
}  // namespace mm::workloads

/// Fourier transforms of complex blocks, along rows and along columns.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

constexpr double kUndone = -1e300;  // the first element of a result that no unit has written yet

/// Returns the stride between the elements of a transform of n: the number of columns of matrices of n rows.
constexpr std::size_t columns_of(std::size_t n) { return n < 256 ? 8 : 64; }

/// Radix 4, decimation in time. The first stage gathers the input in digit-reversed order, and the other stages work in
/// place on the output. Real and imaginary parts are separate, so that adjacent butterflies form a vector.
template <class A, bool strided>
class Fft : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  using Indices = typename A::template Array<std::uint32_t>;

  static constexpr std::size_t stride(std::size_t n) { return strided ? columns_of(n) : 1; }
  /// Returns the size of the twiddle factors: three for each butterfly of a block, for each stage except the first.
  static std::size_t twiddles_of(std::size_t n) {
    std::size_t total = 0;
    for (std::size_t quarter = 4; quarter < n; quarter *= 4) total += 6 * quarter;
    return total;
  }
  static std::size_t starts_of(std::size_t n) { return (n / 4 + 15) / 16 * 16; }  // whole lines

 public:
  Fft(const Shape& shape, Memory& memory) {
    const auto group = [](std::size_t n) { return 4 * n * stride(n) * 8; };
    n_ = strided ? problem_size(shape, {16, 64, 256}, group) : problem_size(shape, {64, 256, 1024}, group);
    const std::size_t tables = twiddles_of(n_) * 8 + starts_of(n_) * 4;
    Shape single = shape;
    single.threads = 1;
    units_ = units_in(single, group(n_), tables) * stride(n_);
    if (units_ < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer blocks than threads");
    const std::size_t numbers = units_ * n_;
    in_re_ = {memory.take<double>(numbers)};
    in_im_ = {memory.take<double>(numbers)};
    out_re_ = {memory.take<double>(numbers)};
    out_im_ = {memory.take<double>(numbers)};
    twiddles_ = {memory.take<double>(twiddles_of(n_))};
    starts_ = {memory.take<std::uint32_t>(starts_of(n_))};
    for (std::size_t i = 0; i < numbers; ++i) {
      in_re_.p[i] = unit_real(2 * i) - 0.5;
      in_im_.p[i] = unit_real(2 * i + 1) - 0.5;
    }
    for (std::size_t u = 0; u < units_; ++u) out_re_.p[start(u)] = kUndone;
    for (std::size_t b = 0; b < n_ / 4; ++b) {
      std::size_t reversed = 0;
      for (std::size_t digits = b, place = 1; place < n_ / 4; place *= 4, digits /= 4)
        reversed = reversed * 4 + digits % 4;
      starts_.p[b] = static_cast<std::uint32_t>(reversed);
    }
    double* w = twiddles_.p;
    for (std::size_t quarter = 4; quarter < n_; quarter *= 4)
      for (std::size_t power = 1; power < 4; ++power)
        for (int part = 0; part < 2; ++part)
          for (std::size_t j = 0; j < quarter; ++j) {
            const double angle =
                -2 * std::numbers::pi * static_cast<double>(power * j) / static_cast<double>(4 * quarter);
            *w++ = part == 0 ? std::cos(angle) : std::sin(angle);
          }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const double n = static_cast<double>(n_);
    Counts c;
    for (std::size_t quarter = 1; quarter < n_; quarter *= 4) {
      const bool first = quarter == 1;
      c.flops += n / 4 * (first ? 16 : 34);  // eight complex additions, three complex multiplications
      c.load_bytes += n / 4 * (first ? 8 * 8 + 4 : (8 + 6) * 8);
      c.store_bytes += n / 4 * 8 * 8;
    }
    const double array = strided ? n * kLine : n * 8;
    c.line_read_bytes = 4 * array + static_cast<double>(twiddles_of(n_) * 8 + starts_of(n_) * 4);
    c.line_write_bytes = 2 * array;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    with_size<16, 64, 256, 1024>(n_, [&](auto size) {
      for (std::size_t u = first; u < last; ++u) {
        const std::size_t offset = start(u);
        transform<size>(in_re_.from(offset), in_im_.from(offset), out_re_.from(offset), out_im_.from(offset), twiddles_,
                        starts_);
        A::end_unit();
      }
    });
  }
  /// Verifies the sum over k of X[k] a^k with a = e^(i pi / n), a root of -1. By the definition, it must equal the sum
  /// over j of x[j] 2 / (1 - a w^j). Every element has a weight of the same magnitude, and no two elements can be
  /// exchanged.
  std::string verify() const override {
    using Complex = std::complex<double>;
    const auto times = [](Complex a, Complex b) {
      return Complex{a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    };
    std::vector<Complex> out_weights(n_), in_weights(n_);
    const double n = static_cast<double>(n_), turn = std::numbers::pi / n;
    for (std::size_t i = 0; i < n_; ++i) {
      const double k = static_cast<double>(i);
      out_weights[i] = std::polar(1.0, turn * k);
      in_weights[i] = {1.0, 1 / std::tan(turn * (0.5 - k))};  // 2 / (1 - e^(i t)) = 1 + i cot(t / 2)
    }
    const std::size_t s = stride(n_);
    for (std::size_t u = 0; u < units_; ++u) {
      std::size_t index = start(u);
      if (out_re_.p[index] == kUndone) continue;
      Complex error = 0;
      for (std::size_t i = 0; i < n_; ++i, index += s)
        error += times({out_re_.p[index], out_im_.p[index]}, out_weights[i]) -
                 times({in_re_.p[index], in_im_.p[index]}, in_weights[i]);
      if (!(std::abs(error) <= 1e-13 * n))
        return "the error of block " + std::to_string(u) + " is " + std::to_string(std::abs(error));
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(out_re_.p, units_ * n_)); }

 private:
  std::size_t start(std::size_t u) const {
    const std::size_t s = stride(n_);
    return u / s * s * n_ + u % s;
  }
  template <std::size_t n>
  static void transform(Reals in_re, Reals in_im, Reals re, Reals im, Reals twiddles, Indices starts) {
    constexpr std::size_t s = stride(n);
    for (std::size_t b = 0; b < n / 4; ++b) {
      const typename A::template Value<std::uint32_t> input_start = starts[b];
      const std::size_t i = bare(input_start) * s, o = 4 * b * s;
      butterfly(Real(in_re[i]), Real(in_im[i]), Real(in_re[i + n / 4 * s]), Real(in_im[i + n / 4 * s]),
                Real(in_re[i + n / 2 * s]), Real(in_im[i + n / 2 * s]), Real(in_re[i + 3 * n / 4 * s]),
                Real(in_im[i + 3 * n / 4 * s]), re.from(o), im.from(o), s);
    }
    Reals w = twiddles;
    for (std::size_t quarter = 4; quarter < n; quarter *= 4) {
      const auto w1r = w, w1i = w.from(quarter), w2r = w.from(2 * quarter), w2i = w.from(3 * quarter),
                 w3r = w.from(4 * quarter), w3i = w.from(5 * quarter);
      for (std::size_t block = 0; block < n; block += 4 * quarter)
#pragma GCC ivdep
        for (std::size_t j = 0; j < quarter; ++j) {
          const std::size_t i0 = (block + j) * s, i1 = i0 + quarter * s, i2 = i1 + quarter * s, i3 = i2 + quarter * s;
          const Real ar = re[i1], ai = im[i1], br = re[i2], bi = im[i2], cr = re[i3], ci = im[i3];
          const Real pr = w1r[j], pi = w1i[j], qr = w2r[j], qi = w2i[j], rr = w3r[j], ri = w3i[j];
          butterfly(Real(re[i0]), Real(im[i0]), ar * pr - ai * pi, ar * pi + ai * pr, br * qr - bi * qi,
                    br * qi + bi * qr, cr * rr - ci * ri, cr * ri + ci * rr, re.from(i0), im.from(i0), quarter * s);
        }
      w = w.from(6 * quarter);
    }
  }
  /// Computes a transform of length four of a, b, c, d. The results are stored `apart` elements from each other.
  static void butterfly(Real ar, Real ai, Real br, Real bi, Real cr, Real ci, Real dr, Real di, Reals re, Reals im,
                        std::size_t apart) {
    const Real sr = ar + cr, si = ai + ci, tr = br + dr, ti = bi + di;
    const Real er = ar - cr, ei = ai - ci, fr = br - dr, fi = bi - di;
    re[0] = sr + tr;
    im[0] = si + ti;
    re[apart] = er + fi;
    im[apart] = ei - fr;
    re[2 * apart] = sr - tr;
    im[2 * apart] = si - ti;
    re[3 * apart] = er - fi;
    im[3 * apart] = ei + fr;
  }
  std::size_t n_ = 0, units_ = 0;
  Reals in_re_, in_im_, out_re_, out_im_, twiddles_;
  Indices starts_;
};

template <class A>
using Along = Fft<A, false>;
template <class A>
using Across = Fft<A, true>;

const Register<Along> fft{{.name = "fft",
                           .kind = "spectral",
                           .summary = "complex transforms of 64, 256 or 1024 points, depending on the volume",
                           .source = "radix 4 by Cooley and Tukey; after HPCC FFT",
                           .parity = true,
                           .min_bytes = 9216}};
const Register<Across> fft_strided{
    {.name = "fft_strided",
     .kind = "spectral",
     .summary = "complex transforms along the columns of matrices, with power-of-two strides",
     .source = "radix 4 by Cooley and Tukey; after NPB FT",
     .min_bytes = 16640}};

}  // namespace
}  // namespace mm::workloads

/// ft: the heat equation in a periodic box, by three-dimensional Fourier transforms; ranks transpose the box.
///
/// In space a rank holds planes of z with all y and x; in frequency space it holds rows of y with all z and x. A plane
/// is transformed along x and y, and the result is stored in one contiguous piece per target rank. The pieces received
/// from all ranks, one after the other, form the box ordered by z.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <deque>
#include <numbers>
#include <numeric>
#include <tuple>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {
namespace {

using Complex = std::complex<double>;

constexpr int kMostIterations = 20;
constexpr double kAlpha = 1e-6, kTolerance = 1e-12;
constexpr std::size_t kChecked = 1024;
// The number of transforms at a time. A batch of 256 numbers per transform and its results fit into a first-level
// cache. Extents are multiples of this number.
constexpr std::size_t kBatch = 4;

struct SpectrumClass {
  const char* name;
  std::size_t nx, ny, nz;
  int iterations;
  Complex sums[kMostIterations];  ///< from the report
};
constexpr SpectrumClass kClasses[] = {
    {"S",
     64,
     64,
     64,
     6,
     {{5.546087004964e+02, 4.845363331978e+02},
      {5.546385409189e+02, 4.865304269511e+02},
      {5.546148406171e+02, 4.883910722336e+02},
      {5.545423607415e+02, 4.901273169046e+02},
      {5.544255039624e+02, 4.917475857993e+02},
      {5.542683411902e+02, 4.932597244941e+02}}},
    {"W",
     128,
     128,
     32,
     6,
     {{5.673612178944e+02, 5.293246849175e+02},
      {5.631436885271e+02, 5.282149986629e+02},
      {5.594024089970e+02, 5.270996558037e+02},
      {5.560698047020e+02, 5.260027904925e+02},
      {5.530898991250e+02, 5.249400845633e+02},
      {5.504159734538e+02, 5.239212247086e+02}}},
    {"A",
     256,
     256,
     128,
     6,
     {{5.046735008193e+02, 5.114047905510e+02},
      {5.059412319734e+02, 5.098809666433e+02},
      {5.069376896287e+02, 5.098144042213e+02},
      {5.077892868474e+02, 5.101336130759e+02},
      {5.085233095391e+02, 5.104914655194e+02},
      {5.091487099959e+02, 5.107917842803e+02}}},
    {"B", 512, 256, 256, 20, {{5.177643571579e+02, 5.077803458597e+02}, {5.154521291263e+02, 5.088249431599e+02},
                              {5.146409228649e+02, 5.096208912659e+02}, {5.142378756213e+02, 5.101023387619e+02},
                              {5.139626667737e+02, 5.103976610617e+02}, {5.137423460082e+02, 5.105948019802e+02},
                              {5.135547056878e+02, 5.107404165783e+02}, {5.133910925466e+02, 5.108576573661e+02},
                              {5.132470705390e+02, 5.109577278523e+02}, {5.131197729984e+02, 5.110460304483e+02},
                              {5.130070319283e+02, 5.111252433800e+02}, {5.129070537032e+02, 5.111968077718e+02},
                              {5.128182883502e+02, 5.112616233064e+02}, {5.127393733383e+02, 5.113203605551e+02},
                              {5.126691062020e+02, 5.113735928093e+02}, {5.126064276004e+02, 5.114218460548e+02},
                              {5.125504076570e+02, 5.114656139760e+02}, {5.125002331720e+02, 5.115053595966e+02},
                              {5.124551951846e+02, 5.115415130407e+02}, {5.124146770029e+02, 5.115744692211e+02}}},
    {"C", 512, 512, 512, 20, {{5.195078707457e+02, 5.149019699238e+02}, {5.155422171134e+02, 5.127578201997e+02},
                              {5.144678022222e+02, 5.122251847514e+02}, {5.140150594328e+02, 5.121090289018e+02},
                              {5.137550426810e+02, 5.121143685824e+02}, {5.135811056728e+02, 5.121496764568e+02},
                              {5.134569343165e+02, 5.121870921893e+02}, {5.133651975661e+02, 5.122193250322e+02},
                              {5.132955192805e+02, 5.122454735794e+02}, {5.132410471738e+02, 5.122663649603e+02},
                              {5.131971141679e+02, 5.122830879827e+02}, {5.131605205716e+02, 5.122965869718e+02},
                              {5.131290734194e+02, 5.123075927445e+02}, {5.131012720314e+02, 5.123166486553e+02},
                              {5.130760908195e+02, 5.123241541685e+02}, {5.130528295923e+02, 5.123304037599e+02},
                              {5.130310107773e+02, 5.123356167976e+02}, {5.130103090133e+02, 5.123399592211e+02},
                              {5.129905029333e+02, 5.123435588985e+02}, {5.129714421109e+02, 5.123465164008e+02}}}};

// ---------------------------------------------------------------- FFTW, if installed

/// The functions of FFTW 3 that ft calls, loaded at run time.
struct FftwFunctions {
  struct Extent {
    int n, in_step, out_step;
  };
  void* (*plan)(int, const Extent*, int, const Extent*, double*, double*, double*, double*, unsigned) = nullptr;
  void (*execute)(void*) = nullptr;
  void (*destroy)(void*) = nullptr;
  std::string version;

  static const FftwFunctions& get() {
    static const FftwFunctions instance;
    return instance;
  }

 private:
  FftwFunctions() {
    void* const library = dlopen("libfftw3.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    plan = reinterpret_cast<decltype(plan)>(dlsym(library, "fftw_plan_guru_split_dft"));
    execute = reinterpret_cast<decltype(execute)>(dlsym(library, "fftw_execute"));
    destroy = reinterpret_cast<decltype(destroy)>(dlsym(library, "fftw_destroy_plan"));
    const auto* const text = static_cast<const char*>(dlsym(library, "fftw_version"));
    if (plan != nullptr && execute != nullptr && destroy != nullptr && text != nullptr) version = text;
  }
};

// ---------------------------------------------------------------- batched transforms

/// A batch of columns, real and imaginary parts separate: element 0 of all columns, then element 1, and so on.
struct ColumnBatch {
  explicit ColumnBatch(std::size_t n) : re(n * kBatch), im(n * kBatch) {}
  std::vector<double> re, im;
};

/// Transforms a batch of columns of one length, forward or backward, without scaling. Only one thread may use it at a
/// time.
class LineTransform {
 public:
  LineTransform(std::size_t n, bool forward, bool fftw) : n_(n), sign_(forward ? -1 : 1), a_(n), b_(n) {
    if (fftw) {
      const int batch = static_cast<int>(kBatch);
      const FftwFunctions::Extent along{static_cast<int>(n), batch, batch}, beside{batch, 1, 1};
      double *re = a_.re.data(), *im = a_.im.data(), *to_re = b_.re.data(), *to_im = b_.im.data();
      // With real and imaginary parts swapped, forward becomes backward. 0: FFTW_MEASURE.
      if (!forward) std::swap(re, im), std::swap(to_re, to_im);
      // FFTW is requested only where the library was found.
      plan_ =
          FftwFunctions::get().plan(1, &along, 1, &beside, re, im, to_re, to_im, 0);  // NOLINT(*-core.CallAndMessage)
      if (plan_ == nullptr) throw Failure("FFTW has no plan for length " + std::to_string(n));
      return;
    }
    for (std::size_t k = 0; k < n; ++k)
      roots_.push_back(std::polar(1.0, sign_ * 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)));
  }
  ~LineTransform() {
    // The loaded library has created the plan.
    if (plan_ != nullptr) FftwFunctions::get().destroy(plan_);  // NOLINT(clang-analyzer-core.CallAndMessage)
  }
  LineTransform(const LineTransform&) = delete;
  LineTransform& operator=(const LineTransform&) = delete;

  /// Returns the input, which must be filled before each transform.
  ColumnBatch& in() { return a_; }
  /// Transforms the input, and returns the output.
  const ColumnBatch& operator()() {
    if (plan_ != nullptr) {
      FftwFunctions::get().execute(plan_);  // NOLINT(clang-analyzer-core.CallAndMessage)
      return b_;
    }
    ColumnBatch *source = &a_, *target = &b_;
    std::size_t length = n_, stride = 1;
    for (; length % 4 == 0; length /= 4, stride *= 4, std::swap(source, target))
      by_four(*source, *target, length, stride);
    for (; length > 1; length /= 2, stride *= 2, std::swap(source, target)) by_two(*source, *target, length, stride);
    return *source;
  }

 private:
  // Stockham's algorithm keeps the natural order in each pass. A pass does `stride` transforms of length `length`.
  void by_two(const ColumnBatch& from, ColumnBatch& to, std::size_t length, std::size_t stride) {
    const std::size_t run = stride * kBatch, half = length / 2;
    for (std::size_t p = 0; p < half; ++p) {
      const double wr = roots_[p * stride].real(), wi = roots_[p * stride].imag();
      const double* const ar = from.re.data() + p * run;
      const double* const ai = from.im.data() + p * run;
      const double* const br = ar + half * run;
      const double* const bi = ai + half * run;
      double* __restrict const sr = to.re.data() + 2 * p * run;
      double* __restrict const si = to.im.data() + 2 * p * run;
      double* __restrict const dr = sr + run;
      double* __restrict const di = si + run;
      for (std::size_t q = 0; q < run; ++q) {
        const double xr = ar[q] - br[q], xi = ai[q] - bi[q];
        sr[q] = ar[q] + br[q];
        si[q] = ai[q] + bi[q];
        dr[q] = wr * xr - wi * xi;
        di[q] = wr * xi + wi * xr;
      }
    }
  }

  void by_four(const ColumnBatch& from, ColumnBatch& to, std::size_t length, std::size_t stride) {
    const std::size_t run = stride * kBatch, quarter = length / 4;
    const double turn = sign_;
    for (std::size_t p = 0; p < quarter; ++p) {
      const Complex w1 = roots_[p * stride], w2 = roots_[2 * p * stride], w3 = roots_[3 * p * stride];
      const double *const re = from.re.data() + p * run, *const im = from.im.data() + p * run;
      double* __restrict const out_re = to.re.data() + 4 * p * run;
      double* __restrict const out_im = to.im.data() + 4 * p * run;
      const std::size_t step = quarter * run;
      for (std::size_t q = 0; q < run; ++q) {
        const double sum_re = re[q] + re[q + 2 * step], sum_im = im[q] + im[q + 2 * step];
        const double dif_re = re[q] - re[q + 2 * step], dif_im = im[q] - im[q + 2 * step];
        const double other_re = re[q + step] + re[q + 3 * step], other_im = im[q + step] + im[q + 3 * step];
        // The difference of the other two, rotated by a quarter turn.
        const double turn_re = -turn * (im[q + step] - im[q + 3 * step]);
        const double turn_im = turn * (re[q + step] - re[q + 3 * step]);
        const double x1 = dif_re + turn_re, y1 = dif_im + turn_im;
        const double x2 = sum_re - other_re, y2 = sum_im - other_im;
        const double x3 = dif_re - turn_re, y3 = dif_im - turn_im;
        out_re[q] = sum_re + other_re;
        out_im[q] = sum_im + other_im;
        out_re[q + run] = w1.real() * x1 - w1.imag() * y1;
        out_im[q + run] = w1.real() * y1 + w1.imag() * x1;
        out_re[q + 2 * run] = w2.real() * x2 - w2.imag() * y2;
        out_im[q + 2 * run] = w2.real() * y2 + w2.imag() * x2;
        out_re[q + 3 * run] = w3.real() * x3 - w3.imag() * y3;
        out_im[q + 3 * run] = w3.real() * y3 + w3.imag() * x3;
      }
    }
  }

  std::size_t n_;
  double sign_;
  ColumnBatch a_, b_;
  std::vector<Complex> roots_;
  void* plan_ = nullptr;
};

/// Load and store a batch by runs: element i of all columns is the run that begins at at(i).
template <class At>
void load(const Complex* from, const At& at, std::size_t n, ColumnBatch& to) {
  for (std::size_t i = 0; i < n; ++i) {
    const Complex* const run = from + at(i);
    double *const re = to.re.data() + i * kBatch, *const im = to.im.data() + i * kBatch;
    for (std::size_t k = 0; k < kBatch; ++k) re[k] = run[k].real(), im[k] = run[k].imag();
  }
}
template <class At>
void store(const ColumnBatch& from, std::size_t n, Complex* to, const At& at) {
  for (std::size_t i = 0; i < n; ++i) {
    Complex* const run = to + at(i);
    const double *const re = from.re.data() + i * kBatch, *const im = from.im.data() + i * kBatch;
    for (std::size_t k = 0; k < kBatch; ++k) run[k] = {re[k], im[k]};
  }
}

// ---------------------------------------------------------------- the box

class Heat final : public NpbKernel {
 public:
  Heat(const SpectrumClass& problem, bool fftw)
      : problem_(problem),
        z0_(z_of(rank_)),
        y0_(y_of(rank_)),
        planes_(z_of(rank_ + 1) - z0_),
        rows_(y_of(rank_ + 1) - y0_),
        here_(planes_ * problem.ny * problem.nx),
        there_(problem.nz * rows_ * problem.nx),
        space_(zeros<Complex>(std::max(here_, there_))),
        pieces_(zeros<Complex>(std::max(here_, there_))),
        frequencies_(zeros<Complex>(std::max(here_, there_))) {
    for (std::size_t t = 0; t < threads(); ++t) {
      of_threads_.emplace_back();
      for (const bool forward : {true, false})
        for (const std::size_t length : {problem.nx, problem.ny, problem.nz})
          of_threads_.back().emplace_back(length, forward, fftw);
    }
    for (int r = 0; r < ranks_; ++r) {
      // In doubles: the numbers that this rank holds in space and rank r in frequency space, and vice versa.
      give_.push_back(static_cast<int>(2 * planes_ * (y_of(r + 1) - y_of(r)) * problem.nx));
      take_.push_back(static_cast<int>(2 * (z_of(r + 1) - z_of(r)) * rows_ * problem.nx));
      for (std::size_t y = y_of(r); y < y_of(r + 1); ++y) {
        piece_of_.push_back(planes_ * y_of(r) * problem.nx + (y - y_of(r)) * problem.nx);
        plane_of_piece_.push_back((y_of(r + 1) - y_of(r)) * problem.nx);
      }
    }
    std::exclusive_scan(give_.begin(), give_.end(), std::back_inserter(give_at_), 0);
    std::exclusive_scan(take_.begin(), take_.end(), std::back_inserter(take_at_), 0);
    for (const std::size_t n : {problem.nx, problem.ny, problem.nz}) {
      std::vector<double> decay;
      for (std::size_t k = 0; k < n; ++k) {
        const double wave = static_cast<double>(k < n / 2 ? k : n - k);
        decay.push_back(std::exp(-4 * kAlpha * std::numbers::pi * std::numbers::pi * wave * wave));
      }
      decay_.push_back(decay);
    }
  }

  void solve() override {
    set_random();
    to_frequencies();
    for (int i = 0; i < problem_.iterations; ++i) {
      to_space();
      sums_[i] = checksum();
    }
    sum(reinterpret_cast<double*>(sums_), 2 * problem_.iterations, all_);
  }

  std::string verify() override {
    for (int i = 0; i < problem_.iterations; ++i) {
      const std::string which = "checksum " + std::to_string(i + 1);
      for (const auto& [name, expected, actual] :
           {std::tuple{", real part", problem_.sums[i].real(), sums_[i].real()},
            std::tuple{", imaginary part", problem_.sums[i].imag(), sums_[i].imag()}})
        if (const std::string wrong = differs(which + name, expected, actual, kTolerance); !wrong.empty()) return wrong;
    }
    return "";
  }
  json observed() const override {
    const Complex last = sums_[problem_.iterations - 1];
    return {{"checksum_real", last.real()}, {"checksum_imaginary", last.imag()}};
  }

 private:
  std::size_t z_of(int rank) const { return part(problem_.nz, n(ranks_), n(rank)); }
  std::size_t y_of(int rank) const { return part(problem_.ny, n(ranks_), n(rank)); }
  static std::size_t n(int i) { return static_cast<std::size_t>(i); }

  void set_random() {
    in_parts(here_, [&](std::size_t first, std::size_t last) {
      Random random(kSeed, 2 * (z0_ * problem_.ny * problem_.nx + first));
      for (std::size_t i = first; i < last; ++i) {
        const double re = random.next();
        space_[i] = {re, random.next()};
      }
    });
  }

  /// Returns this thread's transform along a dimension.
  LineTransform& forward(std::size_t dimension) { return of_threads_[this_thread()][dimension]; }
  LineTransform& back(std::size_t dimension) { return of_threads_[this_thread()][3 + dimension]; }

  /// Returns a function for the index of row y of a plane in the pieces to send or in the received pieces.
  auto piece_rows(std::size_t plane, std::size_t x) const {
    return [this, plane, x](std::size_t y) { return piece_of_[y] + plane * plane_of_piece_[y] + x; };
  }
  auto plane_rows(std::size_t plane, std::size_t x) const {
    return [this, plane, x](std::size_t y) { return (plane * problem_.ny + y) * problem_.nx + x; };
  }

  /// Transforms along x. A batch consists of adjacent rows, which are transposed first.
  void along_x(LineTransform& transform, Complex* rows) {
    ColumnBatch& in = transform.in();
    for (std::size_t r = 0; r < kBatch; ++r)
      for (std::size_t x = 0; x < problem_.nx; ++x) {
        const Complex value = rows[r * problem_.nx + x];
        in.re[x * kBatch + r] = value.real();
        in.im[x * kBatch + r] = value.imag();
      }
    const ColumnBatch& out = transform();
    for (std::size_t r = 0; r < kBatch; ++r)
      for (std::size_t x = 0; x < problem_.nx; ++x)
        rows[r * problem_.nx + x] = {out.re[x * kBatch + r], out.im[x * kBatch + r]};
  }

  void to_frequencies() {
    in_parts(planes_, [&](std::size_t first, std::size_t last) {
      LineTransform &rows = forward(0), &across = forward(1);
      for (std::size_t z = first; z < last; ++z) {
        for (std::size_t y = 0; y < problem_.ny; y += kBatch)
          along_x(rows, space_.data() + (z * problem_.ny + y) * problem_.nx);
        for (std::size_t x = 0; x < problem_.nx; x += kBatch) {
          load(space_.data(), plane_rows(z, x), problem_.ny, across.in());
          store(across(), problem_.ny, pieces_.data(), piece_rows(z, x));
        }
      }
    });
    transpose(give_, give_at_, take_, take_at_, pieces_, frequencies_);
    in_parts(rows_ * problem_.nx / kBatch, [&](std::size_t first, std::size_t last) {
      LineTransform& across = forward(2);
      for (std::size_t column = first * kBatch; column < last * kBatch; column += kBatch) {
        const auto columns = [this, column](std::size_t z) { return z * rows_ * problem_.nx + column; };
        load(frequencies_.data(), columns, problem_.nz, across.in());
        store(across(), problem_.nz, frequencies_.data(), columns);
      }
    });
  }

  /// Computes one time step: every frequency decays, then the box is transformed to space.
  void to_space() {
    const std::size_t batches = problem_.nx / kBatch;
    in_parts(rows_ * batches, [&](std::size_t first, std::size_t last) {
      LineTransform& across = back(2);
      for (std::size_t batch = first; batch < last; ++batch)
        decay_along_z(across, batch / batches, batch % batches * kBatch);
    });
    transpose(take_, take_at_, give_, give_at_, space_, pieces_);
    in_parts(planes_, [&](std::size_t first, std::size_t last) {
      LineTransform &across = back(1), &rows = back(0);
      for (std::size_t z = first; z < last; ++z) {
        for (std::size_t x = 0; x < problem_.nx; x += kBatch) {
          load(pieces_.data(), piece_rows(z, x), problem_.ny, across.in());
          store(across(), problem_.ny, space_.data(), plane_rows(z, x));
        }
        for (std::size_t y = 0; y < problem_.ny; y += kBatch)
          along_x(rows, space_.data() + (z * problem_.ny + y) * problem_.nx);
      }
    });
  }
  void decay_along_z(LineTransform& across, std::size_t y, std::size_t x) {
    const auto columns = [this, y, x](std::size_t z) { return (z * rows_ + y) * problem_.nx + x; };
    ColumnBatch& in = across.in();
    for (std::size_t z = 0; z < problem_.nz; ++z) {
      Complex* const run = frequencies_.data() + columns(z);
      const double decay = decay_[2][z] * decay_[1][y0_ + y];
      double *const re = in.re.data() + z * kBatch, *const im = in.im.data() + z * kBatch;
      for (std::size_t k = 0; k < kBatch; ++k) {
        run[k] *= decay * decay_[0][x + k];
        re[k] = run[k].real();
        im[k] = run[k].imag();
      }
    }
    store(across(), problem_.nz, space_.data(), columns);
  }

  void transpose(const std::vector<int>& give, const std::vector<int>& give_at, const std::vector<int>& take,
                 const std::vector<int>& take_at, Array<Complex>& from, Array<Complex>& to) {
    if (ranks_ == 1) return from.swap(to);
    library([&] {
      check(MPI_Alltoallv(from.data(), give.data(), give_at.data(), MPI_DOUBLE, to.data(), take.data(), take_at.data(),
                          MPI_DOUBLE, all_),
            "MPI_Alltoallv");
    });
  }

  Complex checksum() const {
    Complex total = 0;
    for (std::size_t j = 1; j <= kChecked; ++j) {
      const std::size_t x = j % problem_.nx, y = 3 * j % problem_.ny, z = 5 * j % problem_.nz;
      if (z >= z0_ && z < z0_ + planes_) total += space_[((z - z0_) * problem_.ny + y) * problem_.nx + x];
    }
    return total / static_cast<double>(problem_.nx * problem_.ny * problem_.nz);
  }

  const SpectrumClass& problem_;
  const std::size_t z0_, y0_, planes_, rows_, here_, there_;  // here_, there_: numbers in space, in frequency space
  Array<Complex> space_, pieces_, frequencies_;
  std::vector<std::deque<LineTransform>> of_threads_;  // by thread: along x, y, z, forward and then back
  std::vector<int> give_, take_, give_at_, take_at_;
  std::vector<std::size_t> piece_of_, plane_of_piece_;  // of each y: index of its row in plane 0; distance to plane 1
  std::vector<std::vector<double>> decay_;
  Complex sums_[kMostIterations];
};

}  // namespace

std::string fftw_version() { return FftwFunctions::get().version; }

std::vector<Problem> ft_problems() {
  std::vector<Problem> problems;
  for (const SpectrumClass& c : kClasses) {
    const double points = static_cast<double>(c.nx * c.ny * c.nz), log = std::log(points);
    problems.push_back({.kernel = "ft",
                        .class_name = c.name,
                        .size = std::to_string(c.nx) + "x" + std::to_string(c.ny) + "x" + std::to_string(c.nz),
                        .operations = points * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * c.iterations),
                        .bytes = 3 * 16 * points,
                        .max_ranks = static_cast<int>(std::min(c.ny, c.nz)),
                        .make = [&c](bool fftw) { return std::make_shared<Heat>(c, fftw); }});
  }
  return problems;
}

}  // namespace mm::mpi::npb

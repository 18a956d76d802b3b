/// mod2d: the dense symmetric eigenproblem by the installed LAPACK.
#include <cmath>
#include <numbers>

#include "base/clock.hpp"
#include "instruments/compute/dense.hpp"

namespace {

using mm::json;

const mm::Description kMod2d{
    .name = "mod2d",
    .summary = "rate of the dense symmetric eigenproblem with all eigenvectors, by the installed LAPACK",
    .detail =
        "dsyevd, divide and conquer, on a full matrix whose spectrum is known: the second difference, 2 and -1, "
        "reflected by a Householder matrix. The operation count is 10 n^3 / 3: 4/3 n^3 to make the matrix tridiagonal, "
        "and 2 n^3 for the vectors; the library executes up to 4/3 n^3 more. Half of the first part consists of "
        "products of a matrix and a vector, which memory limits, so that the rate is far below the rate of dgemm. "
        "Eigenvalues are compared with their formula, and vectors are multiplied by the matrix again.\n"
        "example: meshmark-probe mod2d --n 500,2000 --threads all",
    .source =
        "EuroBen 5, mod2d: van der Steen, The benchmark of the EuroBen group, Parallel Computing 17 (1991); "
        "LAPACK Users' Guide, 3rd ed. (1999), 2.3.4",
    .spoils = {"a library that does not support the processor (see library_kernel and the trials)",
               "other load: the library's threads wait for the slowest one"},
    .needs = {"a LAPACK library"},
    .parameters = mm::dense_parameters("500,1000"),
    .metrics = {{"flop_rate", "10 n^3 / 3 over time", "flop/s", mm::Better::higher}, mm::peak_share()},
    .identity = {"n", "threads", "library", "library_kernel"},
    .bytes_per_iteration = 0,
    .flops_per_iteration = 2,
};

/// The problem and its last solution, column-major.
struct DenseEigenproblem {
  std::size_t n;
  std::vector<double> reflector;  ///< unit vector v of the reflection I - 2 v v'
  std::shared_ptr<mm::Arena> arena;
  double *matrix, *vectors;
  std::vector<double> values;
  mm::Blas::EigenWork work;
  int info = 0;

  DenseEigenproblem(std::size_t n_, std::uint64_t seed, std::shared_ptr<mm::Arena> arena_)
      : n(n_), reflector(n_), arena(std::move(arena_)), values(n_) {
    matrix = arena->as<double>().data();
    vectors = matrix + n * n + 512;
    double norm = 0;
    for (std::size_t i = 0; i < n; ++i) {
      reflector[i] = std::cos(static_cast<double>((seed + 3) * (i + 1) % 1009));
      norm += reflector[i] * reflector[i];
    }
    for (double& v : reflector) v /= std::sqrt(norm);
    // (I - 2vv') T (I - 2vv') = T - 2 v w' - 2 w v' + 4 (v'w) v v', where w = T v.
    const std::vector<double> w = difference(reflector);
    double vw = 0;
    for (std::size_t i = 0; i < n; ++i) vw += reflector[i] * w[i];
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = 0; i < n; ++i) {
        const double t = i == j ? 2.0 : i + 1 == j || j + 1 == i ? -1.0 : 0.0;
        matrix[j * n + i] =
            t - 2 * reflector[i] * w[j] - 2 * w[i] * reflector[j] + 4 * vw * reflector[i] * reflector[j];
      }
  }

  /// Returns T x, where T has 2 on its diagonal and -1 beside it.
  std::vector<double> difference(const std::vector<double>& x) const {
    std::vector<double> y(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = 2 * x[i] - (i > 0 ? x[i - 1] : 0) - (i + 1 < n ? x[i + 1] : 0);
    return y;
  }

  /// Returns the largest error of the eigenvalues and, for sampled vectors, of A x = lambda x and of orthogonality,
  /// over n eps |A|.
  double error() const {
    const double scale = static_cast<double>(n) * 2.2e-16 * 4;
    double worst = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const double angle = static_cast<double>(k + 1) * std::numbers::pi / static_cast<double>(n + 1);
      worst = std::max(worst, std::fabs(values[k] - (2 - 2 * std::cos(angle))) / scale);
    }
    for (std::size_t k = 0; k < n; k += std::max<std::size_t>(1, n / 8)) {
      const double* const x = vectors + k * n;
      std::vector<double> ax(n, 0.0);
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < n; ++i) ax[i] += matrix[j * n + i] * x[j];
      double square = 0, overlap = 0;
      for (std::size_t i = 0; i < n; ++i) {
        worst = std::max(worst, std::fabs(ax[i] - values[k] * x[i]) / scale);
        square += x[i] * x[i];
        overlap += x[i] * vectors[(k + 1) % n * n + i];
      }
      worst = std::max({worst, std::fabs(square - 1) / scale, n > 1 ? std::fabs(overlap) / scale : 0});
    }
    return worst;
  }
};

void measure(mm::Run& run) {
  const mm::Pages pages = run.single_pages();
  const int node = run.single_node();
  const std::vector<int> cpus = mm::bind_for_library(run);
  const int count = static_cast<int>(cpus.size());
  const std::shared_ptr<mm::Blas> blas = mm::Blas::load(run.text("library"), run.text("coretype"), count, true);
  if (!blas->can_eigen()) throw mm::Absent(blas->name + " has no LAPACK (dsyevd)", "install liblapack3");
  run.beat("library loaded");
  const auto team = run.team(cpus);
  const auto peak = std::make_shared<double>(0);
  std::vector<mm::Point> points;
  for (const int n : run.integers("n", 0)) {
    const auto size = static_cast<std::size_t>(n);
    auto arena = run.arena(2 * 8 * (size * size + 512), pages, node, cpus.front(), "flop_rate", {{"n", n}});
    if (!arena) continue;
    const auto problem = std::make_shared<DenseEigenproblem>(size, run.seed(), arena);
    const auto solved = std::make_shared<bool>(false);
    const auto last = std::make_shared<double>(0);
    mm::Point p;
    p.conditions = mm::dense_conditions(run, n, cpus, pages, node, *blas);
    p.metrics = {"flop_rate", "peak_share"};
    p.team = team;
    p.least_samples = 6;
    p.shield = false;  // raising only the priority of our threads would delay the library's threads
    const auto solve = [=] {
      problem->info = blas->eigen(n, problem->vectors, problem->values.data(), problem->work);
      *solved = true;
    };
    const auto restore = [=] { std::copy_n(problem->matrix, size * size, problem->vectors); };
    p.prepare = [=] {
      *peak = mm::peak_now(*team);
      restore();
      if (!*solved) solve(), restore();
    };
    p.burst = [=] {
      const mm::Ticks begin = mm::ticks();
      solve();
      *last = 10.0 / 3 * n * n * n / mm::seconds(mm::ticks() - begin);
      if (problem->info != 0) throw mm::Failure("dsyevd failed: info " + std::to_string(problem->info));
      return mm::Values{*last, *peak > 0 ? *last / *peak : 0};
    };
    p.check = [=]() -> std::vector<std::string> {
      return problem->error() < 16 ? std::vector<std::string>{} : std::vector<std::string>{"unverified"};
    };
    points.push_back(std::move(p));
  }
  run.measure(std::move(points));
}

const mm::Instrument mod2d{kMod2d, measure};

}  // namespace

/// dgemm: matrix multiplication by the installed BLAS, compared with the peak of the cores.
#include <cmath>
#include <random>

#include "base/clock.hpp"
#include "instruments/compute/dense.hpp"

namespace {

using mm::json;

const mm::Description kDgemm{
    .name = "dgemm",
    .summary = "matrix multiplication rate of the installed BLAS, compared with the measured peak",
    .detail =
        "C = A B in double precision, 2n^3 operations, by the library that is found or named at run time. If "
        "OpenBLAS's default kernel may not be the fastest for this processor, a short trial selects the kernel. The "
        "product is verified with a random vector (Freivalds).\n"
        "example: meshmark-probe dgemm --n 1000,3000 --threads all",
    .source = "HPC Challenge DGEMM; Freivalds, Probabilistic machines can use less running time (1977)",
    .spoils = {"a library that does not support the processor (see library_kernel and the trials)",
               "other load: the library's threads wait for the slowest one"},
    .needs = {"a BLAS library"},
    .parameters = mm::dense_parameters("1000,2000"),
    .metrics = {{"flop_rate", "2n^3 over time", "flop/s", mm::Better::higher},
                {"residual", "maximum error of C x against A (B x), over eps n |A| |B| |x|", "1", mm::Better::lower},
                mm::peak_share()},
    .identity = {"n", "threads", "library", "library_kernel"},
    .bytes_per_iteration = 0,
    .flops_per_iteration = 2,
};

struct MatrixOperands {
  std::shared_ptr<mm::Arena> arena;
  double *a, *b, *c;
};

double residual(const MatrixOperands& m, int n) {
  const auto size = static_cast<std::size_t>(n);
  std::vector<double> x(size), bx(size), abx(size), cx(size);
  std::mt19937_64 random{7};
  for (double& v : x) v = random() & 1 ? 1.0 : -1.0;
  const auto apply = [&](const double* matrix, const std::vector<double>& in, std::vector<double>& out) {
    std::fill(out.begin(), out.end(), 0.0);
    for (std::size_t j = 0; j < size; ++j)
      for (std::size_t i = 0; i < size; ++i) out[i] += matrix[j * size + i] * in[j];
  };
  apply(m.b, x, bx);
  apply(m.a, bx, abx);
  apply(m.c, x, cx);
  double worst = 0;
  for (std::size_t i = 0; i < size; ++i) worst = std::max(worst, std::fabs(abx[i] - cx[i]));
  return worst / (2.2e-16 * n * 0.25 * n);  // entries are in [-0.5, 0.5]: |A||B||x| is about n²/4 per row
}

void measure(mm::Run& run) {
  const mm::Pages pages = run.single_pages();
  const int node = run.single_node();
  const std::vector<int> cpus = mm::bind_for_library(run);
  const int count = static_cast<int>(cpus.size());
  const std::shared_ptr<mm::Blas> blas = mm::Blas::load(run.text("library"), run.text("coretype"), count, false);
  run.beat("library loaded");
  const auto team = run.team(cpus);
  auto peak = std::make_shared<double>(0);

  std::vector<mm::Point> points;
  for (int n : run.integers("n", 0)) {
    const std::size_t words = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
    auto arena = run.arena(3 * 8 * (words + 512), pages, node, cpus.front(), "flop_rate", {{"n", n}});
    if (!arena) continue;
    auto* base = arena->as<double>().data();
    const MatrixOperands m{arena, base, base + words + 512, base + 2 * (words + 512)};
    std::mt19937_64 random{run.seed()};
    std::uniform_real_distribution<double> entry{-0.5, 0.5};
    for (std::size_t i = 0; i < words; ++i) m.a[i] = entry(random), m.b[i] = entry(random);
    auto last = std::make_shared<double>(0);
    auto bad = std::make_shared<bool>(false);
    mm::Point p;
    p.conditions = mm::dense_conditions(run, n, cpus, pages, node, *blas);
    p.metrics = {"flop_rate", "peak_share"};
    p.team = team;
    p.least_samples = n > 2500 ? 6 : 7;
    // Raising only the priority of the team's threads would delay the library's own threads.
    p.shield = false;
    p.prepare = [=] {
      *peak = mm::peak_now(*team);
      if (*last == 0) blas->multiply(n, m.a, m.b, m.c);
    };
    p.burst = [=] {
      const double flops = 2.0 * n * n * n;
      const int batch = std::max(1, static_cast<int>(5e-3 * *peak / flops));  // at least a few ms
      const mm::Ticks begin = mm::ticks();
      for (int i = 0; i < batch; ++i) blas->multiply(n, m.a, m.b, m.c);
      const double elapsed_s = mm::seconds(mm::ticks() - begin) / batch;
      *last = flops / elapsed_s;
      return mm::Values{*last, *peak > 0 ? *last / *peak : 0};
    };
    p.observe = [=] {
      json c;
      const std::string text = mm::advice(*blas, *peak > 0 ? *last / *peak : 1, n);
      if (!text.empty()) c["advice"] = text;
      return c;
    };
    p.check = [=]() -> std::vector<std::string> {
      *bad = !(residual(m, n) < 16);
      return *bad ? std::vector<std::string>{"unverified"} : std::vector<std::string>{};
    };
    points.push_back(std::move(p));
    // The residual depends on the result and not on the time of measurement, so one sample per size is enough.
    mm::Point r;
    r.conditions = points.back().conditions;
    r.metrics = {"residual"};
    r.team = team;
    r.shield = false;
    r.least_samples = 1;
    r.once = true;
    r.prepare = [=] {
      if (*last == 0) blas->multiply(n, m.a, m.b, m.c);
    };
    r.burst = [=] { return mm::Values{residual(m, n)}; };
    points.push_back(std::move(r));
  }
  run.measure(std::move(points));
}

const mm::Instrument dgemm{kDgemm, measure};

}  // namespace

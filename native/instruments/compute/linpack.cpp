/// linpack: a dense system solved by the installed LAPACK, its residual verified by HPL's rule.
#include <cmath>
#include <cstdint>
#include <random>

#include "base/clock.hpp"
#include "instruments/compute/dense.hpp"

namespace {

using mm::json;

std::vector<mm::Parameter> parameters() {
  auto all = mm::dense_parameters("1000");
  all.push_back({"memory_share", "also solves a system that fills this share of the memory; 0 = none", "",
                 mm::Kind::real, "0", 0, 0.8});
  return all;
}

const mm::Description kLinpack{
    .name = "linpack",
    .summary = "a dense linear system solved by the installed LAPACK, after LINPACK and HPL",
    .detail =
        "A x = b with random A by LU with partial pivoting (LAPACK dgesv): 2/3 n^3 + 3/2 n^2 operations. The residual "
        "max|A x - b| / (eps (|A| |x| + |b|) n), infinity norms, must be below 16.\n"
        "example: meshmark-probe linpack --n 1000,4000 --memory-share 0.1",
    .source =
        "Dongarra, Luszczek, Petitet: The LINPACK Benchmark: Past, Present and Future (2003); HPL's residual rule",
    .spoils = {"a library that does not support the processor (see library_kernel)", "small n: the panel dominates",
               "other load: the library's threads wait for the slowest one"},
    .needs = {"a LAPACK library"},
    .parameters = parameters(),
    .metrics = {{"flop_rate", "2/3 n^3 + 3/2 n^2 over time", "flop/s", mm::Better::higher},
                {"residual", "HPL's scaled residual", "1", mm::Better::lower},
                mm::peak_share()},
    .identity = {"n", "threads", "library", "library_kernel"},
    .flops_per_iteration = 1,
};

struct LinearSystem {
  std::shared_ptr<mm::Arena> arena;
  double *a, *lu, *b, *x;
  std::vector<std::int64_t> pivots;
};

double residual(const LinearSystem& s, int n) {
  const auto size = static_cast<std::size_t>(n);
  std::vector<double> r(s.b, s.b + size), rows(size);
  double x_norm = 0, b_norm = 0, a_norm = 0, worst = 0;
  for (std::size_t j = 0; j < size; ++j)
    for (std::size_t i = 0; i < size; ++i) {
      r[i] -= s.a[j * size + i] * s.x[j];
      rows[i] += std::fabs(s.a[j * size + i]);
    }
  for (std::size_t i = 0; i < size; ++i) {
    worst = std::max(worst, std::fabs(r[i]));
    a_norm = std::max(a_norm, rows[i]);
    x_norm = std::max(x_norm, std::fabs(s.x[i]));
    b_norm = std::max(b_norm, std::fabs(s.b[i]));
  }
  return worst / (1.1102230246251565e-16 * (a_norm * x_norm + b_norm) * n);
}

void measure(mm::Run& run) {
  const mm::Pages pages = run.single_pages();
  const int node = run.single_node();
  const std::vector<int> cpus = mm::bind_for_library(run);
  const int count = static_cast<int>(cpus.size());
  const std::shared_ptr<mm::Blas> blas = mm::Blas::load(run.text("library"), run.text("coretype"), count, true);
  if (!blas->can_solve())
    throw mm::Absent(blas->name + " has no LAPACK (dgesv)", "Debian: liblapack3; or another --library");
  run.beat("library loaded");
  const auto team = run.team(cpus);
  const auto peak = std::make_shared<double>(0);
  auto sizes = run.integers("n", 0);
  const double share = run.real("memory_share");
  if (share > 0)
    sizes.push_back(static_cast<int>(std::sqrt(share * static_cast<double>(mm::memory_available()) / 16)) / 64 * 64);

  std::vector<mm::Point> points;
  for (int n : sizes) {
    const auto size = static_cast<std::size_t>(n), words = size * size;
    auto arena = run.arena(8 * (2 * words + 2 * size + 1024), pages, node, cpus.front(), "flop_rate", {{"n", n}});
    if (!arena) continue;
    auto* base = arena->as<double>().data();
    auto s = std::make_shared<LinearSystem>(LinearSystem{arena, base, base + words, base + 2 * words,
                                                         base + 2 * words + size, std::vector<std::int64_t>(size)});
    std::mt19937_64 random{run.seed()};
    std::uniform_real_distribution<double> entry{-0.5, 0.5};
    for (std::size_t i = 0; i < words; ++i) {
      s->a[i] = entry(random);
      if (i % (1 << 24) == 0) run.beat("filling the matrix");
    }
    for (std::size_t i = 0; i < size; ++i) s->b[i] = entry(random);
    mm::Point p;
    p.conditions = mm::dense_conditions(run, n, cpus, pages, node, *blas);
    p.metrics = {"flop_rate", "peak_share", "residual"};
    p.team = team;
    p.shield = false;
    p.width_of_first_only = true;  // the residual does not vary like a time
    p.least_samples = n > 3000 ? 1 : 7;
    p.once = n > 3000;
    auto worst = std::make_shared<double>(0);
    p.prepare = [=] {
      *peak = mm::peak_now(*team);
      std::copy(s->a, s->a + words, s->lu);
      std::copy(s->b, s->b + size, s->x);
    };
    p.burst = [=] {
      const mm::Ticks begin = mm::ticks();
      const int info = blas->solve(n, s->lu, s->pivots.data(), s->x);
      const double elapsed_s = mm::seconds(mm::ticks() - begin);
      if (info != 0) throw mm::Failure("dgesv returned " + std::to_string(info));
      const double r = residual(*s, n);
      *worst = std::max(*worst, std::isfinite(r) ? r : 1e300);
      const double order_n = n;
      const double rate = (2.0 / 3 * order_n * order_n * order_n + 1.5 * order_n * order_n) / elapsed_s;
      return mm::Values{rate, *peak > 0 ? rate / *peak : 0, r};
    };
    p.check = [=] { return *worst < 16 ? std::vector<std::string>{} : std::vector<std::string>{"unverified"}; };
    points.push_back(std::move(p));
  }
  run.measure(std::move(points));
}

const mm::Instrument linpack{kLinpack, measure};

}  // namespace

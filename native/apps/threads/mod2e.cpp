/// mod2e: the largest eigenvalues of a sparse symmetric matrix, by our own Lanczos solver and by the installed ARPACK.
#include <barrier>
#include <cmath>

#include "apps/libraries/arpack.hpp"
#include "apps/models/sparse.hpp"
#include "base/clock.hpp"
#include "instruments/compute/dense.hpp"
#include "kernels/isa.hpp"

namespace {

using mm::json;
using mm::workloads::GridMatrix;
using mm::workloads::Lanczos;

const mm::Description kMod2e{
    .name = "mod2e",
    .summary =
        "time of the largest eigenvalues of a sparse symmetric matrix, by a built-in Lanczos solver and by ARPACK",
    .detail =
        "Differences on a cube of edge^3 points, 7 entries in most rows, in compressed rows of 12 bytes per entry. "
        "With --numbering random, points have random numbers, so that a product gathers from the whole vector. Both "
        "solvers keep a basis of fixed size, orthogonalize it fully, restart with its best vectors, and stop at "
        "residuals of 1e-10 of each eigenvalue: the built-in one by classical Gram-Schmidt, twice, on all threads; "
        "ARPACK leaves work on vectors to its BLAS. Matrix-vector products run on all threads with both. Eigenvalues "
        "are compared with their formula, and vectors are multiplied by the matrix again and with each other.\n"
        "example: meshmark-probe mod2e --edge 40 --numbering grid,random --solver lanczos",
    .source =
        "EuroBen 5, mod2e; Wu, Simon, Thick-restart Lanczos method for large symmetric eigenvalue problems, SIAM J. "
        "Matrix Anal. Appl. 22 (2000); Lehoucq, Sorensen, Yang, ARPACK Users' Guide (1998)",
    .spoils = {"a basis that fits into a cache at one size and not at the next",
               "threads on CPUs that other work uses: all wait for the slowest"},
    .needs = {"ARPACK for --solver arpack"},
    .parameters = {{"edge", "points on an edge of the cube", "", mm::Kind::integers, "16,40", GridMatrix::kMinEdge,
                    GridMatrix::kMaxEdge},
                   mm::choices("numbering", "numbering of the points", "grid", {"grid", "random"}),
                   mm::choices("solver", "solvers", "lanczos,arpack", {"lanczos", "arpack"}),
                   {"eigenvalues", "number of eigenvalues, largest first", "", mm::Kind::integer, "8", 1, 32},
                   {"basis", "vectors of the basis", "", mm::Kind::integer, "40", 4, 128},
                   mm::library_threads()},
    .metrics = {{"solve_time", "time until all eigenvalues and vectors are found", "s", mm::Better::lower},
                {"product_time", "mean time of a product of matrix and vector", "s", mm::Better::lower},
                {"flop_rate", "operations of the built-in solver over its time", "flop/s", mm::Better::higher}},
    .identity = {"edge", "numbering", "solver", "eigenvalues", "basis", "threads", "pages", "memory_node"},
    .observed = {"products", "largest_error"},
};

constexpr double kTolerance = 1e-10, kAccepted = 1e-8;

struct EigenSettings {
  int edge;
  bool scattered;
  mm::Pages pages;
  int node;  ///< -1: the policy decides
  int eigenvalues, basis;
  std::uint64_t seed;
};

/// The matrix in its memory, which all solvers share.
struct GridEigenproblem {
  EigenSettings settings;
  std::shared_ptr<mm::Team> team;
  std::shared_ptr<mm::Arena> arena;
  GridMatrix matrix;

  std::size_t threads() const { return static_cast<std::size_t>(team->size()); }
  std::size_t first(std::size_t thread) const { return Lanczos::first_row(matrix.rows(), threads(), thread); }
};

/// The result of a solver.
struct Found {
  std::vector<double> values;
  std::vector<const double*> vectors;
  int products = 0;
  double product_s = 0, flops = 0;
  std::string failure;
};

using Solver = std::function<void(Found&)>;

Solver own_solver(const std::shared_ptr<GridEigenproblem>& problem, std::byte* memory) {
  const EigenSettings& s = problem->settings;
  const auto lanczos = std::make_shared<Lanczos>(problem->matrix, s.eigenvalues, s.basis, kTolerance,
                                                 problem->threads(), memory, mm::best_fixed_isa());
  problem->team->run([&](int rank) { lanczos->touch(static_cast<std::size_t>(rank)); });
  return [=](Found& result) {
    problem->team->run([&](int rank) { lanczos->solve(static_cast<std::size_t>(rank), problem->settings.seed); });
    result = {lanczos->values(), {}, lanczos->products(), lanczos->product_s(), lanczos->flops(), ""};
    for (int k = 0; k < problem->settings.eigenvalues; ++k) result.vectors.push_back(lanczos->vector(k));
    if (!lanczos->converged()) result.failure = "Lanczos did not converge";
  };
}

/// Runs ARPACK on the first thread of the team, while the other threads wait for products.
Solver arpack_solver(const std::shared_ptr<GridEigenproblem>& problem, const std::shared_ptr<const mm::Arpack>& library,
                     double* memory) {
  const auto barrier = std::make_shared<std::barrier<>>(static_cast<std::ptrdiff_t>(problem->threads()));
  return [=](Found& result) {
    const EigenSettings& s = problem->settings;
    const GridMatrix& matrix = problem->matrix;
    const double* input = nullptr;
    double* output = nullptr;
    double product_s = 0;
    mm::Arpack::Solution solution;
    const auto multiply = [&](std::size_t rank) {
      matrix.multiply(problem->first(rank), problem->first(rank + 1), input, output);
      barrier->arrive_and_wait();
    };
    problem->team->run([&](int member) {
      const auto rank = static_cast<std::size_t>(member);
      if (rank > 0) {
        for (barrier->arrive_and_wait(); input != nullptr; barrier->arrive_and_wait()) multiply(rank);
        return;
      }
      Lanczos::random_rows(0, matrix.rows(), s.seed, memory);
      solution = library->solve({static_cast<int>(matrix.rows()), s.eigenvalues, s.basis, kTolerance,
                                 [&](const double* x, double* y) {
                                   input = x, output = y;
                                   barrier->arrive_and_wait();
                                   const mm::Ticks begin = mm::ticks();
                                   multiply(0);
                                   product_s += mm::seconds(mm::ticks() - begin);
                                 }},
                                memory);
      input = nullptr;
      barrier->arrive_and_wait();
    });
    result = {std::move(solution.values), std::move(solution.vectors), solution.products, product_s, 0, ""};
    if (solution.info != 0) result.failure = "ARPACK failed: info " + std::to_string(solution.info);
  };
}

/// Returns the largest relative error of eigenvalues, residuals and scalar products.
double error_of(const GridMatrix& matrix, const Found& pairs) {
  const std::size_t n = matrix.rows();
  const std::vector<double> expected = matrix.largest(static_cast<int>(pairs.values.size()));
  std::vector<double> product(n);
  double worst = pairs.values.empty() ? 1 : 0;
  const auto add = [&worst](double error) { worst = std::isfinite(error) ? std::max(worst, error) : 1e300; };
  for (std::size_t k = 0; k < pairs.values.size(); ++k) {
    const double value = pairs.values[k];
    add(std::fabs(value / expected[k] - 1));
    const double* const x = pairs.vectors[k];
    matrix.multiply(0, n, x, product.data());
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) square += (product[i] - value * x[i]) * (product[i] - value * x[i]);
    add(std::sqrt(square) / value);
    for (std::size_t other = 0; other <= k; ++other) {
      double dot = 0;
      for (std::size_t i = 0; i < n; ++i) dot += x[i] * pairs.vectors[other][i];
      add(std::fabs(dot - (other == k ? 1 : 0)));
    }
  }
  return worst;
}

void add_point(mm::Run& run, std::vector<mm::Point>& points, const std::shared_ptr<GridEigenproblem>& problem,
               const std::string& solver, json conditions) {
  const EigenSettings& s = problem->settings;
  const std::size_t rows = problem->matrix.rows();
  const bool is_lanczos = solver == "lanczos";
  mm::Point p;
  conditions["solver"] = solver;
  if (is_lanczos) conditions["isa"] = mm::best_fixed_isa();
  std::shared_ptr<const mm::Arpack> library;
  if (!is_lanczos) {
    try {
      library = mm::Arpack::load(problem->team->size());
    } catch (const mm::Absent& error) {
      return run.absent("solve_time", conditions, error.what(), error.enable);
    }
    conditions["library_path"] = library->path;
    conditions["blas_path"] = library->blas_path;
  }
  p.conditions = std::move(conditions);
  const std::size_t bytes =
      is_lanczos ? Lanczos::bytes(rows, s.basis) : mm::Arpack::words(rows, s.basis) * sizeof(double);
  const auto memory = run.arena(bytes, s.pages, s.node, problem->team->cpus().front(), "solve_time", p.conditions);
  if (!memory) return;
  p.arenas = {problem->arena, memory};
  const Solver solve = is_lanczos ? own_solver(problem, memory->as<std::byte>().data())
                                  : arpack_solver(problem, library, memory->as<double>().data());
  const auto result = std::make_shared<Found>();
  p.metrics = {"solve_time", "product_time"};
  if (is_lanczos) p.metrics.emplace_back("flop_rate");
  p.team = problem->team;
  p.shield = false;  // a sample takes longer than a burst at real-time priority may
  p.width_of_first_only = true;
  p.burst = [=, team = problem->team] {
    solve(*result);
    if (!result->failure.empty()) throw mm::Failure(result->failure);
    mm::Values values{team->elapsed_s(), result->product_s / std::max(1, result->products)};
    if (is_lanczos) values.push_back(result->flops / team->elapsed_s());
    return values;
  };
  const auto error = std::make_shared<double>(-1);
  const auto verify = [=] {
    if (*error < 0) *error = error_of(problem->matrix, *result);
  };
  p.observe = [=] {
    verify();
    return json{{"products", result->products}, {"largest_error", *error}};
  };
  p.check = [=]() -> std::vector<std::string> {
    verify();
    return *error < kAccepted ? std::vector<std::string>{} : std::vector<std::string>{"unverified"};
  };
  points.push_back(std::move(p));
}

std::shared_ptr<GridEigenproblem> make_problem(mm::Run& run, const std::shared_ptr<mm::Team>& team,
                                               const EigenSettings& s, const json& conditions) {
  auto problem =
      std::make_shared<GridEigenproblem>(GridEigenproblem{s, team, nullptr, GridMatrix{s.edge, s.scattered, s.seed}});
  problem->arena = run.arena(problem->matrix.bytes(), s.pages, s.node, team->cpus().front(), "solve_time", conditions);
  if (!problem->arena) return nullptr;
  problem->matrix.place(problem->arena->as<std::byte>().data());
  team->run([&](int rank) {
    const auto thread = static_cast<std::size_t>(rank);
    problem->matrix.fill(problem->first(thread), problem->first(thread + 1));
  });
  return problem;
}

void measure(mm::Run& run) {
  const int eigenvalues = static_cast<int>(run.integer("eigenvalues")), basis = static_cast<int>(run.integer("basis"));
  if (basis < eigenvalues + 3)
    run.refuse("basis", "found " + std::to_string(basis), "at least " + std::to_string(eigenvalues + 3));
  const std::vector<int> cpus = mm::bind_for_library(run);
  const auto team = run.team(cpus);
  const std::vector<int> edges = run.integers("edge", GridMatrix::kMinEdge), nodes = run.placed_nodes();
  const auto numberings = run.choices("numbering"), solvers = run.choices("solver");
  std::size_t remaining = edges.size() * numberings.size() * run.pages().size() * nodes.size();
  const int min_edge = static_cast<int>(std::cbrt(2.0 * basis)) + 1;  // more points than twice the basis
  for (const int edge : edges)
    if (edge < min_edge)
      run.refuse("edge", "found " + std::to_string(edge), std::to_string(min_edge) + " or more with this basis");
  for (const int edge : edges) {
    for (const std::string& numbering : numberings)
      for (const mm::Pages pages : run.pages())
        for (const int node : nodes) {
          run.allot(1.0 / static_cast<double>(remaining--));
          run.beat("matrix of " + std::to_string(edge) + " points on an edge");
          const json conditions = {{"edge", edge},
                                   {"numbering", numbering},
                                   {"eigenvalues", eigenvalues},
                                   {"basis", basis},
                                   {"threads", cpus.size()},
                                   {"cpus", mm::cpu_list(cpus)},
                                   {"pages", mm::name(pages)},
                                   {"page_bytes", mm::page_bytes(pages)},
                                   {"memory_node", run.memory_node(node)}};
          const auto problem = make_problem(
              run, team, {edge, numbering == "random", pages, node, eigenvalues, basis, run.seed()}, conditions);
          if (!problem) continue;
          json matrix_conditions = conditions;
          matrix_conditions["rows"] = problem->matrix.rows();
          matrix_conditions["entries"] = problem->matrix.entries();
          std::vector<mm::Point> points;
          for (const std::string& solver : solvers) add_point(run, points, problem, solver, matrix_conditions);
          run.measure(std::move(points));
        }
  }
}

const mm::Instrument mod2e{kMod2e, measure};

}  // namespace

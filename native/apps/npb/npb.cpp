/// npb: the eight NAS parallel benchmarks, verified by the numbers of their report.
#include "apps/npb/npb.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace npb {

std::string differs(const std::string& what, double expected, double actual, double tolerance) {
  if (std::fabs(actual - expected) <= tolerance * std::fabs(expected)) return "";
  char text[200];
  std::snprintf(text, sizeof text, "%s: expected %.15g, got %.15g, relative tolerance %g", what.c_str(), expected,
                actual, tolerance);
  return text;
}

}  // namespace npb

namespace {

using npb::NpbKernel;
using npb::Problem;

const std::vector<Problem>& problems() {
  static const std::vector<Problem> list = [] {
    std::vector<Problem> result;
    for (const auto& kernel_problems : {npb::ep_problems(), npb::cg_problems(), npb::is_problems(), npb::ft_problems(),
                                        npb::mg_problems(), npb::lu_problems(), npb::bt_problems(), npb::sp_problems()})
      result.insert(result.end(), kernel_problems.begin(), kernel_problems.end());
    return result;
  }();
  return list;
}

/// Returns the parameter for OpenMP threads. It is fixed per process, because threads stay as they were started, bound
/// to their CPUs.
Parameter npb_threads() {
  Parameter p{
      "threads", "numbers of OpenMP threads of each rank, each in processes of its own", "", Kind::integers, "1", 1,
      4096};
  p.per_process = true;
  return p;
}

const Description& npb_description() {
  static const Description d{
      .name = "npb",
      .summary = "the eight NAS parallel benchmarks among ranks and threads, verified: time, rate, communication",
      .detail =
          "New implementations of the report's five kernels and three applications. ep: pairs of normal deviates, "
          "reduced at the end. cg: inverse iteration with a random sparse matrix; reductions along rows of ranks, "
          "swaps across the diagonal. is: "
          "ranking of integers by a bucket sort; a reduction of counts, and an all-to-all exchange of keys. ft: the "
          "heat equation by three-dimensional Fourier transforms; the box is transposed. mg: Poisson's equation by "
          "V-cycles; halo exchanges with six neighbours on grids of all sizes. lu, bt, sp: compressible flow in slabs; "
          "lu by over-relaxation, in sweeps that pass from slab to slab row by row; bt by block tridiagonal and sp by "
          "pentadiagonal systems along each direction; the cube is transposed twice in each step. The threads of a "
          "rank "
          "divide its loops; with one rank no data is exchanged.\n"
          "A result that fails verification is reported absent, with the expected and the actual value. Operations are "
          "counted as in the report's programs.\n"
          "example: mpirun -n 4 meshmark-comm npb --kernel cg,mg --class W",
      .source =
          "Bailey, Barszcz, Barton and others, The NAS Parallel Benchmarks, RNR-94-007 (1994); classes W and C: later "
          "programs",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs", "ranks bound to one CPU"},
      .needs = {"an MPI library", "for mg a number of ranks that is a power of two",
                "for lu, bt and sp two planes of the cube for each rank"},
      .parameters = {{"kernel",
                      "NPB kernels and applications",
                      "",
                      Kind::choices,
                      "all",
                      {},
                      {},
                      {"all", "ep", "cg", "is", "ft", "mg", "lu", "bt", "sp"}},
                     {"class",
                      "problem sizes: small, workstation, A, B, C",
                      "",
                      Kind::choices,
                      "S",
                      {},
                      {},
                      {"S", "W", "A", "B", "C"}},
                     npb_threads(),
                     {"fft",
                      "transforms of ft; auto: FFTW if every rank finds its library, otherwise Meshmark's own",
                      "",
                      Kind::choice,
                      "auto",
                      {},
                      {},
                      {"auto", "own", "fftw"}}},
      .metrics = {{"elapsed", "time of a solution, on the slowest rank", "s", Better::lower},
                  {"operation_rate", "operations per second, counted as in the report", "op/s", Better::higher},
                  {"communication_share", "maximum time of any rank in the MPI library, over elapsed", "1",
                   Better::lower}},
      .identity = {"kernel", "class", "ranks", "threads", "mpi", "fft"},
      .observed = {"zeta", "residual_norm", "first_norm", "sum_x", "sum_y", "deviates", "checksum_real",
                   "checksum_imaginary", "residual_density", "residual_momentum_x", "residual_momentum_y",
                   "residual_momentum_z", "residual_energy", "error_density", "error_momentum_x", "error_momentum_y",
                   "error_momentum_z", "error_energy"},
      .ranks = true,
  };
  return d;
}

/// Returns the metric and the conditions of a case that has not been created yet.
Case planned_case(const Problem& problem, const std::string& fft) {
  Case c;
  c.conditions = {
      {"kernel", problem.kernel}, {"class", problem.class_name}, {"size", problem.size}, {"threads", npb::threads()}};
  if (problem.kernel == "ft") c.conditions["fft"] = fft;
  c.metric = "elapsed";
  return c;
}

/// Returns a case whose iteration is one solution.
Case solver_case(Case c, const std::shared_ptr<NpbKernel>& kernel, double operations) {
  struct SolverState {
    bool prepared = false;
    double took_s = 0, library_s = 0;
  };
  const auto state = std::make_shared<SolverState>();
  c.single = true;
  c.fill = [=](std::uint32_t, bool) {
    if (!state->prepared) kernel->prepare();
    state->prepared = true;
    kernel->reset();
  };
  c.run = [=](std::uint64_t) {  // always 1, because the case is single
    kernel->library.clear();
    const Ticks begin = ticks();
    kernel->solve();
    state->took_s = seconds(ticks() - begin);
    state->library_s = kernel->library.spent_s();  // verification communicates, too
  };
  c.verify = [=] { return World::get().broadcast(kernel->verify()).get<std::string>(); };
  c.extra_metrics = {"operation_rate", "communication_share"};
  c.values = [=]() -> Values {
    double longest[2] = {state->took_s, state->library_s};
    check(MPI_Allreduce(MPI_IN_PLACE, longest, 2, MPI_DOUBLE, MPI_MAX, World::get().all()), "MPI_Allreduce");
    return {operations / longest[0], longest[1] / longest[0]};
  };
  c.observe = [=] { return kernel->observed(); };
  return c;
}

/// Starts the threads that `--threads` requests. Collective.
void start_threads(Run& run) {
  World& world = World::get();
  const std::vector<int> numbers = run.integers("threads", 0);
  if (numbers.size() != 1) run.refuse("threads", "found several", "one number: a process starts its threads once");
  if (numbers.front() == 1) return;  // the rank stays where its launcher put it
  world.all_or_none<int>([&] {
    npb::start_threads(world.divide_cpus(numbers.front()));
    return 0;
  });
}

bool everywhere(bool here) {
  int minimum = here;
  check(MPI_Allreduce(MPI_IN_PLACE, &minimum, 1, MPI_INT, MPI_MIN, World::get().all()), "MPI_Allreduce");
  return minimum != 0;
}

std::string ranks_and_threads() {
  const std::string ranks = std::to_string(World::get().size());
  return npb::threads() == 1 ? ranks + " ranks" : ranks + " ranks of " + std::to_string(npb::threads()) + " threads";
}

void measure_npb(Run& run) {
  World& world = World::get();
  world.check_request(run);
  start_threads(run);
  const auto kernels = run.choices("kernel"), classes = run.choices("class");
  const auto contains = [](const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const auto is_requested = [&](const Problem& p) {
    return contains(classes, p.class_name) && run.selects("kernel", {p.kernel});
  };
  for (const Problem& p : problems())
    if (is_requested(p) && contains(kernels, p.kernel) && !p.fits(world.size()))
      throw UsageError(p.field(), "found " + ranks_and_threads() + " for " + p.kernel + " of class " + p.class_name,
                       p.allowed());
  const std::string transforms = run.text("fft");
  const bool fftw = transforms != "own" && everywhere(!npb::fftw_version().empty());

  CaseBatch batch(run, classes.size());
  for (const std::string& name : classes) {
    for (const Problem& p : problems()) {
      if (!is_requested(p) || p.class_name != name) continue;
      const Case plan = planned_case(p, fftw ? npb::fftw_version() : transforms == "fftw" ? "fftw" : "own");
      batch.add(plan, p.bytes / world.size(), [&] {
        if (!p.fits(world.size()))
          throw Absent(ranks_and_threads() + " do not fit " + p.kernel + " of class " + p.class_name,
                       "--" + p.field() + ": " + p.allowed());
        if (p.kernel == "ft" && transforms == "fftw" && !fftw)
          throw Absent("not every rank finds libfftw3.so.3", "install FFTW 3, or --fft own");
        return solver_case(plan, p.make(fftw), p.operations);
      });
    }
    batch.done();
  }
}

const Instrument npb_kernels{npb_description(), measure_npb};

}  // namespace
}  // namespace mm::mpi

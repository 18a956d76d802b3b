/// npb: five of the NAS parallel kernels, each verified by its report's own numbers.
#include "mpi/npb/npb.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace npb {

std::string differs(const std::string& what, double expected, double got, double tolerance) {
  if (std::fabs(got - expected) <= tolerance * std::fabs(expected)) return "";
  char text[200];
  std::snprintf(text, sizeof text, "%s: expected %.15g, got %.15g, which is not within %g of it", what.c_str(),
                expected, got, tolerance);
  return text;
}

}  // namespace npb

namespace {

using npb::Kernel;
using npb::Problem;

const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = [] {
    std::vector<Problem> found;
    for (const auto& some :
         {npb::ep_problems(), npb::cg_problems(), npb::is_problems(), npb::ft_problems(), npb::mg_problems()})
      found.insert(found.end(), some.begin(), some.end());
    return found;
  }();
  return all;
}

const Description& npb_description() {
  static const Description d{
      .name = "npb",
      .summary = "five of the NAS parallel kernels among ranks, verified: time, rate, and the share of communication",
      .detail =
          "Written anew from the report. ep: pairs of normal deviates, summed at the end. cg: inverse iteration with a "
          "random sparse matrix; sums along rows of ranks, swaps across the diagonal. is: ranks of integers by a "
          "bucket "
          "sort; sums of counts, and each rank's keys for every other one. ft: the heat equation by Fourier transforms "
          "in three dimensions; the box is transposed. mg: Poisson's equation by V-cycles; faces swapped with six "
          "neighbours on grids of all sizes.\n"
          "What is not verified is no number: it is reported absent, with what was expected and what came. Operations "
          "are counted as the report's programs do.\n"
          "example: mpirun -n 4 meshmark-comm npb --kernel cg,mg --class W",
      .source =
          "Bailey, Barszcz, Barton and others, The NAS Parallel Benchmarks, RNR-94-007 (1994); class W: later programs",
      .spoils = {"a neighbour on a rank's CPU", "more ranks than CPUs", "ranks that were bound to one CPU"},
      .needs = {"an MPI library", "for mg a number of ranks that is a power of two"},
      .parameters =
          {{"kernel", "which ones", "", Kind::choices, "all", {}, {}, {"all", "ep", "cg", "is", "ft", "mg"}},
           {"class", "sizes of the report: small, workstation, A", "", Kind::choices, "S", {}, {}, {"S", "W", "A"}},
           {"fft",
            "transforms of ft; auto: FFTW where every rank finds its library, else Meshmark's own",
            "",
            Kind::choice,
            "auto",
            {},
            {},
            {"auto", "own", "fftw"}}},
      .metrics = {{"elapsed", "time of a solution, the slowest rank's", "s", Better::lower},
                  {"operation_rate", "operations a second, as the report counts them", "op/s", Better::higher},
                  {"communication_share", "time that a rank spends in the library, the longest, over elapsed", "1",
                   Better::lower}},
      .identity = {"kernel", "class", "ranks", "mpi", "fft"},
      .ranks = true,
  };
  return d;
}

/// What is known of a problem's case before it is made.
Case planned(const Problem& problem, const std::string& fft) {
  Case c;
  c.conditions = {{"kernel", problem.kernel}, {"class", problem.class_name}, {"size", problem.size}};
  if (problem.kernel == "ft") c.conditions["fft"] = fft;
  c.metric = "elapsed";
  return c;
}

/// A solution is an iteration.
Case solving(Case c, const std::shared_ptr<Kernel>& kernel, double operations) {
  struct State {
    bool prepared = false;
    double took_s = 0;
  };
  const auto state = std::make_shared<State>();
  c.single = true;
  c.mark = [=](std::uint32_t, bool) {
    if (!state->prepared) kernel->prepare();
    state->prepared = true;
    kernel->reset();
  };
  c.run = [=](std::uint64_t) {  // one: single
    kernel->library.clear();
    const Ticks begin = ticks();
    kernel->solve();
    state->took_s = seconds(ticks() - begin);
  };
  c.proof = [=] { return World::get().tell(kernel->proof()).get<std::string>(); };
  c.also = {"operation_rate", "communication_share"};
  c.values = [=]() -> Values {
    double longest[2] = {state->took_s, kernel->library.spent_s()};
    check(MPI_Allreduce(MPI_IN_PLACE, longest, 2, MPI_DOUBLE, MPI_MAX, World::get().all()), "MPI_Allreduce");
    return {operations / longest[0], longest[1] / longest[0]};
  };
  c.observe = [=] { return kernel->observed(); };
  return c;
}

bool everywhere(bool here) {
  int all = here;
  check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, World::get().all()), "MPI_Allreduce");
  return all != 0;
}

void measure_npb(Run& run) {
  World& world = World::get();
  world.expect(run);
  const auto kernels = run.choices("kernel"), classes = run.choices("class");
  const auto among = [](const std::vector<std::string>& all, const std::string& word) {
    return std::find(all.begin(), all.end(), word) != all.end();
  };
  const auto wanted = [&](const Problem& p) { return among(classes, p.class_name) && run.asks("kernel", {p.kernel}); };
  for (const Problem& p : problems())
    if (wanted(p) && among(kernels, p.kernel) && !p.fits(world.size()))
      throw UsageError("ranks",
                       "found " + std::to_string(world.size()) + " for " + p.kernel + " of class " + p.class_name,
                       p.allowed());
  const std::string transforms = run.text("fft");
  const bool fftw = transforms != "own" && everywhere(!npb::fftw_version().empty());

  Batch batch(run, classes.size());
  for (const std::string& name : classes) {
    for (const Problem& p : problems()) {
      if (!wanted(p) || p.class_name != name) continue;
      const Case plan = planned(p, fftw ? npb::fftw_version() : transforms == "fftw" ? "fftw" : "own");
      batch.add(plan, p.bytes / world.size(), [&] {
        if (!p.fits(world.size()))
          throw Absent(std::to_string(world.size()) + " ranks do not fit " + p.kernel + " of class " + p.class_name,
                       "--ranks: " + p.allowed());
        if (p.kernel == "ft" && transforms == "fftw" && !fftw)
          throw Absent("libfftw3.so.3 is not found by every rank", "install FFTW 3, or --fft own");
        return solving(plan, p.make(fftw), p.operations);
      });
    }
    batch.done();
  }
}

const Instrument npb_kernels{npb_description(), measure_npb};

}  // namespace
}  // namespace mm::mpi

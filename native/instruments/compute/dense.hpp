#pragma once
/// Parameters and conditions that the instruments of numerical libraries share, and their measurement of peak.
#include <algorithm>
#include <atomic>

#include "base/harness/instrument.hpp"
#include "base/libraries/blas.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/fma.hpp"

namespace mm {

/// Returns the parameter for the number of library threads. It is fixed per process, because a process loads a library
/// and creates its threads only once.
inline Parameter library_threads() {
  Parameter p{"threads", "numbers of the library's threads, each in processes of its own", "", Kind::integers, "all", 1,
              4096};
  p.per_process = true;
  return p;
}

inline std::vector<Parameter> dense_parameters(const char* sizes) {
  return {{"n", "sizes of the square matrices", "", Kind::integers, sizes, 2, 200000},
          library_threads(),
          {"library", "mkl, openblas, flexiblas, blis, reference, a path, or auto: the fastest in a trial", "",
           Kind::text, "auto"},
          {"coretype", "OpenBLAS's kernel; auto: the fastest in a trial", "", Kind::text, "auto"}};
}

/// Binds this process, and thereby the threads that a library creates, to as many CPUs as `--threads` requests. Returns
/// these CPUs.
inline std::vector<int> bind_for_library(Run& run) {
  std::vector<int> cpus = fill_order("cores", run.cpus());
  const auto threads = run.integers("threads", static_cast<int>(cpus.size()));
  if (threads.size() != 1) run.refuse("threads", "found several", "one number: a process loads the library once");
  if (threads.front() > static_cast<int>(cpus.size()))
    run.refuse("threads", "found " + std::to_string(threads.front()), "1 to " + std::to_string(cpus.size()));
  cpus.resize(static_cast<std::size_t>(threads.front()));
  bind_process(cpus);
  return cpus;
}

/// Returns the current fp64 multiply-add rate of this team in flop/s: the best of a few short bursts.
inline double peak_now(Team& team) {
  const std::string_view isa = best_fixed_isa();
  const FmaKernel kernel = fma_kernel(isa, FmaType::fp64);
  if (kernel.run == nullptr) return 0;
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    constexpr std::uint64_t kSteps = 400000;
    team.run([&](int) { keep(kernel.run(kSteps)); });
    best = std::max(best, 2.0 * kernel.lanes * kSteps * team.size() / team.elapsed_s());
  }
  return best;
}

/// Returns the metric that compares a library with the cores.
inline Metric peak_share() {
  return {"peak_share", "flop_rate over the multiply-add peak measured at the same time", "1", Better::higher};
}

/// Returns the conditions of a point: the size of its matrices, its CPUs and memory, and the library.
inline json dense_conditions(const Run& run, int n, const std::vector<int>& cpus, Pages pages, int node,
                             const Blas& blas) {
  json c{{"n", n},
         {"threads", cpus.size()},
         {"cpus", cpu_list(cpus)},
         {"pages", name(pages)},
         {"memory_node", run.memory_node(node)}};
  c["library"] = blas.name;
  c["library_version"] = blas.version;
  c["library_path"] = blas.path;
  c["library_kernel"] = blas.kernel.empty() ? json(nullptr) : json(blas.kernel);
  c["kernel_chosen_by"] = blas.chosen_by;
  for (const Blas::Trial& t : blas.trials) c["trial_" + t.name] = t.flop_rate;
  c["library_missing"] = joined(blas.missing);
  return c;
}

/// Returns a likely cause and a remedy if a library stays far below the peak of the cores, otherwise "".
inline std::string advice(const Blas& blas, double share, int n) {
  if (share >= 0.6) return "";
  if (n < 500) return "a matrix of this size cannot use all units; use --n 2000 or more";
  if (blas.name == "reference BLAS")
    return "the reference library is not optimised; install libopenblas0-pthread (Debian) or select another with "
           "--library";
  if (blas.name.starts_with("OpenBLAS"))
    return "OpenBLAS uses its kernel " + blas.kernel +
           "; set OPENBLAS_CORETYPE to that of the processor, or install a "
           "version that supports it";
  return "the library may not support this processor; try another with --library";
}

}  // namespace mm

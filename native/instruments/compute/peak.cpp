/// peak: multiply-add throughput of the cores from registers.
#include <algorithm>
#include <atomic>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/fma.hpp"

namespace {

using mm::json;

const mm::Description kPeak{
    .name = "peak",
    .summary = "fused multiply-add throughput by type and vector width",
    .detail =
        "Twelve independent chains of multiply-adds in registers; each counts as two operations. SSE2 has no fused "
        "instruction and uses a multiplication and an addition. int is a 32-bit multiplication and an addition.\n"
        "example: meshmark-probe peak --type fp64,fp32 --threads 1,all",
    .source = "Fog, Instruction tables; Hager, Wellein: Introduction to HPC (2010), 1.2; likwid-bench peakflops",
    .spoils = {"the clock: wide vectors and many busy cores reduce it", "a busy sibling thread on the same core"},
    .needs = {},
    .parameters = {mm::choices("type", "data types", "fp64", {"fp64", "fp32", "int"}),
                   mm::choices("isa", "vector instructions; best: the widest of this processor; all: each of them",
                               "best", {"best", "all", "sse2", "avx2", "avx512", "neon"}),
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536},
                   mm::choice("fill", "order in which a team fills the CPUs", "cores", {"cores", "spread", "compact"})},
    .metrics = {{"flop_rate", "floating-point operations over time", "flop/s", mm::Better::higher},
                {"op_rate", "integer operations over time", "op/s", mm::Better::higher}},
    .identity = {"type", "isa", "threads", "cpus"},
    .flops_per_iteration = 24,
};

std::vector<std::string> isas_of(mm::Run& run) {
  std::vector<std::string> isas;
  for (const std::string& name : run.choices("isa")) {
    for (std::string_view isa : mm::built_isas())
      if (mm::has_isa(isa) && isa != "sve" && (name == "all" || name == isa)) isas.emplace_back(isa);
    if (name == "best") isas.emplace_back(mm::best_fixed_isa());
    if (name != "all" && name != "best" && !mm::has_isa(name))
      run.absent("flop_rate", {{"isa", name}}, "this processor does not support " + name);
  }
  return isas;
}

mm::FmaType type_of(const std::string& name) {
  return name == "int" ? mm::FmaType::int32 : name == "fp32" ? mm::FmaType::fp32 : mm::FmaType::fp64;
}

mm::Point point_of(const std::shared_ptr<mm::Team>& team, const mm::FmaKernel& kernel) {
  mm::Point p;
  p.team = team;
  const auto batch_s = [=](std::uint64_t n) {
    std::atomic<int> wrong{0};
    team->run([&](int) { wrong += kernel.run(n) != 0; });
    if (wrong != 0) throw mm::Failure("the chains ended with wrong values");
    return team->elapsed_s();
  };
  const auto rate = [=](double n, double elapsed_s) {
    const double core_rate = 2.0 * kernel.lanes * n / elapsed_s;
    // The limit is four multiply-add units of the full width at 7 GHz. A higher rate means that something was not
    // computed.
    if (core_rate > 2.0 * kernel.lanes / 12 * 4 * 7e9) throw mm::Failure("the rate exceeds the rate of any core");
    return mm::Values{core_rate * team->size()};
  };
  mm::time_batches(p, 5e-3, batch_s, rate, 1000);
  return p;
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order(run.text("fill"), run.cpus());
  const auto isas = isas_of(run);
  std::vector<mm::Point> points;
  for (const std::string& type : run.choices("type"))
    for (const std::string& isa : isas)
      for (const int threads : run.team_sizes("threads", order)) {
        const mm::FmaKernel kernel = mm::fma_kernel(isa, type_of(type));
        const char* metric = type == "int" ? "op_rate" : "flop_rate";
        if (kernel.run == nullptr) {
          run.absent(metric, {{"type", type}, {"isa", isa}}, isa + " has no such instruction for " + type);
          continue;
        }
        const std::vector<int> cpus(order.begin(), order.begin() + threads);
        mm::Point p = point_of(run.team(cpus), kernel);
        p.conditions = {{"type", type}, {"isa", isa}, {"threads", threads}, {"cpus", mm::cpu_list(cpus)}};
        p.metrics = {metric};
        points.push_back(std::move(p));
      }
  run.measure(std::move(points));
}

const mm::Instrument peak{kPeak, measure};

}  // namespace

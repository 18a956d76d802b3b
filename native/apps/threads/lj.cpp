/// lj: molecular dynamics of a Lennard-Jones crystal that melts, atoms over threads.
#include <cmath>

#include "apps/models/melt.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/isa.hpp"

namespace {

using mm::json;
using mm::workloads::Melt;

const mm::Description kLj{
    .name = "lj",
    .summary = "molecular dynamics of a Lennard-Jones crystal that melts: time of a step, and atoms stepped per second",
    .detail =
        "Density 0.8442, initial temperature 1.44, cutoff 2.5 and steps of 0.005 in reduced units, as in the melt that "
        "is often published for molecular dynamics. Each atom lists its neighbours within 2.8, in memory of the thread "
        "that owns the atom; lists are rebuilt once an atom has moved by 0.15. All threads read the positions, which "
        "are gathered through the lists. The operation count is 21 for each listed pair and 26 for each atom. Every "
        "sample begins with the crystal. Its energy must be the published one; the energy of the shifted potential and "
        "the momentum must be conserved; and all positions and velocities must be bit-identical to a run on one "
        "thread.\n"
        "example: meshmark-probe lj --edge 10,20 --threads 1,all",
    .source =
        "Verlet, Computer \"Experiments\" on Classical Fluids I, Phys. Rev. 159 (1967); Plimpton, Fast Parallel "
        "Algorithms for Short-Range Molecular Dynamics, J. Comput. Phys. 117 (1995)",
    .spoils = {"positions that fit into a cache at one size and not at the next",
               "threads on CPUs that other work uses: all wait for the slowest"},
    .needs = {},
    .parameters = {{"edge", "unit cells on an edge of the crystal, of 4 atoms each", "", mm::Kind::integers, "10,20",
                    Melt::kMinEdge, Melt::kMaxEdge},
                   {"steps", "steps of a sample", "", mm::Kind::integer, "50", 1, 1000},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"step_time", "time of a step of all atoms, lists included", "s", mm::Better::lower},
                {"atom_rate", "atoms over the time of a step", "op/s", mm::Better::higher},
                {"flop_rate", "operations of forces and steps over time", "flop/s", mm::Better::higher}},
    .identity = {"edge", "steps", "threads", "pages", "memory_node"},
    .observed = {"energy_drift"},
};

// Energy of the crystal per atom. Published logs of this melt give it with eight digits.
constexpr double kCrystalEnergy = -6.7733681, kDigits = 1e-7;
// Limits of the relative change of the energy and of the momentum of an atom. The change is 3e-4 while the crystal
// breaks up, after some 20 steps, and less than 4e-5 after 50 to 1000; the momentum is roundoff.
constexpr double kEnergyDrift = 5e-4, kMomentum = 1e-12;

/// The settings that the points of one size share.
struct MeltSettings {
  int edge, steps;
  mm::Pages pages;
  int node;  ///< -1: the policy decides
  std::string_view isa;
  std::uint64_t digest;  ///< result of one thread, after the steps
};

/// Returns the digest that every sample must have: the result of one thread.
std::uint64_t digest_of_one(int edge, int steps, std::string_view isa) {
  const auto words = [](std::size_t bytes) { return std::vector<double>(bytes / sizeof(double) + 1); };
  std::vector<double> shared = words(Melt::shared_bytes(edge)), thread_words = words(Melt::own_bytes(edge, 1, 0));
  const auto bytes = [](std::vector<double>& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); };
  Melt melt(edge, bytes(shared), {bytes(thread_words)}, isa);
  melt.begin(0);
  melt.run(0, steps);
  return melt.totals(0).digest;
}

Melt::Totals totals(const Melt& melt, mm::Team& team, std::size_t threads) {
  std::vector<Melt::Totals> by_thread(threads);
  team.run([&](int rank) { by_thread[static_cast<std::size_t>(rank)] = melt.totals(static_cast<std::size_t>(rank)); });
  Melt::Totals sum;
  for (const Melt::Totals& part : by_thread) sum += part;
  return sum;
}

/// The state of a point between its samples.
struct MeltProgress {
  Melt::Totals before;
  bool stepped = false, wrong = false;
  double drift = 0;
};

void add_point(mm::Run& run, std::vector<mm::Point>& points, const MeltSettings& settings,
               const std::vector<int>& cpus) {
  const std::size_t threads = cpus.size(), atoms = Melt::atoms(settings.edge);
  mm::Point p;
  p.conditions = {{"edge", settings.edge},
                  {"atoms", atoms},
                  {"steps", settings.steps},
                  {"threads", threads},
                  {"cpus", mm::cpu_list(cpus)},
                  {"isa", settings.isa},
                  {"pages", mm::name(settings.pages)},
                  {"page_bytes", mm::page_bytes(settings.pages)},
                  {"memory_node", run.memory_node(settings.node)}};
  if (threads > atoms) return run.absent("step_time", p.conditions, "more threads than atoms", "a larger --edge");
  const auto memory = [&](std::size_t bytes, int cpu) -> std::byte* {
    const auto arena = run.arena(bytes, settings.pages, settings.node, cpu, "step_time", p.conditions);
    if (!arena) return nullptr;
    p.arenas.push_back(arena);
    return arena->as<std::byte>().data();
  };
  std::byte* const shared = memory(Melt::shared_bytes(settings.edge), cpus.front());
  if (shared == nullptr) return;
  std::vector<std::byte*> thread_memory;
  for (std::size_t t = 0; t < threads; ++t) {
    thread_memory.push_back(memory(Melt::own_bytes(settings.edge, threads, t), cpus[t]));
    if (thread_memory.back() == nullptr) return;
  }
  const auto melt = std::make_shared<Melt>(settings.edge, shared, thread_memory, settings.isa);
  const auto team = run.team(cpus);
  const auto progress = std::make_shared<MeltProgress>();
  p.metrics = {"step_time", "atom_rate", "flop_rate"};
  p.team = team;
  p.shield = false;  // a sample of many steps takes longer than a burst at real-time priority may
  p.width_of_first_only = true;
  const auto n = static_cast<double>(atoms);
  const auto verify = [=, digest = settings.digest] {
    if (!progress->stepped) return;
    progress->stepped = false;
    const Melt::Totals after = totals(*melt, *team, threads), &before = progress->before;
    progress->drift = std::fabs((after.kinetic + after.shifted) / (before.kinetic + before.shifted) - 1);
    double momentum = 0;
    for (const double m : after.momentum) momentum = std::max(momentum, std::fabs(m));
    if (!(std::fabs(before.potential / n - kCrystalEnergy) < kDigits) || !(progress->drift < kEnergyDrift) ||
        !(momentum / n < kMomentum) || after.digest != digest || melt->full())
      progress->wrong = true;
  };
  p.prepare = [=] {
    verify();
    team->run([&](int rank) { melt->begin(static_cast<std::size_t>(rank)); });
    progress->before = totals(*melt, *team, threads);
  };
  p.burst = [=, steps = settings.steps] {
    team->run([&](int rank) { melt->run(static_cast<std::size_t>(rank), steps); });
    progress->stepped = true;
    const double step_s = team->elapsed_s() / steps;
    return mm::Values{step_s, n / step_s, melt->flops() / steps / step_s};
  };
  p.observe = [=] {
    verify();
    return json{{"energy_drift", progress->drift}};
  };
  p.check = [=]() -> std::vector<std::string> {
    verify();
    return progress->wrong ? std::vector<std::string>{"unverified"} : std::vector<std::string>{};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  const std::vector<int> sizes = run.integers("edge", Melt::kMinEdge), teams = run.team_sizes("threads", order);
  const int steps = static_cast<int>(run.integer("steps"));
  const std::string_view isa = mm::best_fixed_isa();
  const std::vector<int> nodes = run.placed_nodes();
  std::size_t remaining = sizes.size() * run.pages().size() * nodes.size();
  for (const int edge : sizes) {
    run.beat("one thread steps " + std::to_string(Melt::atoms(edge)) + " atoms");
    std::uint64_t digest = 0;
    run.team({order.front()})->run([&](int) { digest = digest_of_one(edge, steps, isa); });
    for (const mm::Pages pages : run.pages())
      for (const int node : nodes) {
        std::vector<mm::Point> points;
        for (const int threads : teams)
          add_point(run, points, {edge, steps, pages, node, isa, digest}, {order.begin(), order.begin() + threads});
        run.allot(1.0 / static_cast<double>(remaining--));
        run.measure(std::move(points));
      }
  }
}

const mm::Instrument lj{kLj, measure};

}  // namespace

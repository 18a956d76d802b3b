/// swim_threads: shallow water on a staggered grid whose rows are divided over threads, as swim divides them over
/// ranks.
#include <algorithm>

#include "apps/threads/sea_team.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/stream.hpp"

namespace {

using mm::json;
using mm::workloads::Sea;

const mm::Description kSwimThreads{
    .name = "swim_threads",
    .summary = "shallow water on a grid divided by rows over threads: time of a step, and its share of the bandwidth",
    .detail =
        "Same scheme, initial state and metrics as swim among ranks, with the threads of one process: rows are divided "
        "over threads, which touch their part first, read adjacent rows in place, and synchronize once per step. A "
        "step moves 72 B per cell: two time levels of three fields are read, and the older one is overwritten. Every "
        "run starts anew. Mass, energy and potential enstrophy must be conserved as in swim, and all bits must equal "
        "the bits of one thread. The triad runs on the same memory in alternation, with ordinary or with streaming "
        "stores, whichever are faster; lines that ordinary stores read first are counted.\n"
        "example: meshmark-probe swim_threads --cells 256,2048 --threads 1,all",
    .source =
        "Sadourny, The dynamics of finite-difference models of the shallow-water equations, J. Atmos. Sci. 32 (1975)",
    .spoils = {"grids that fit into a cache: the share compares bandwidths of the cache",
               "threads on CPUs that other work uses: all wait for the slowest",
               "other traffic on the memory controller"},
    .needs = {},
    .parameters = {{"cells", "rows, and cells per row", "", mm::Kind::integers, "256,2048", 16, 16384},
                   {"steps", "steps per timed run", "", mm::Kind::integer, "50", 1, 10000},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"step_time", "time of a step, on the slowest thread", "s", mm::Better::lower},
                {"bandwidth", "72 B per cell over the time of a step", "B/s", mm::Better::higher},
                {"triad_bandwidth", "bytes over time of a triad by the same threads on the same memory", "B/s",
                 mm::Better::higher},
                {"bandwidth_share", "bandwidth over triad_bandwidth", "1", mm::Better::higher}},
    .identity = {"paradigm", "cells", "steps", "threads", "cpus", "pages", "memory_node"},
    .observed = {"mass_drift", "energy_drift", "enstrophy_drift"},
    .bytes_per_iteration = Sea::kBytes,
    .flops_per_iteration = Sea::kFlops,
};

/// A triad on the memory of a sea: the memory of each thread holds three arrays.
struct MemoryTriad {
  static constexpr std::size_t kSkew = 21 * 8;  // arrays start at different page offsets, to avoid 4 KiB aliasing
  mm::StreamFunction ordinary, streaming;
  std::vector<double*> memory;
  std::vector<std::size_t> n;  // elements of each array, by thread
  bool streams = false;        // whether streaming stores are used

  MemoryTriad() {
    const auto kernel = static_cast<std::size_t>(mm::StreamKernel::triad);
    const mm::StreamTable& table = *mm::stream_table(mm::best_isa());
    ordinary = table.ordinary[kernel];
    streaming = table.streaming[kernel];
  }
  void add(double* at, std::size_t words) {
    memory.push_back(at);
    n.push_back((words / 3 - kSkew) / 8 * 8);
  }
  /// Runs `passes` passes and returns their time in s.
  double run(mm::Team& team, int passes) const {
    team.run([&](int rank) {
      const auto t = static_cast<std::size_t>(rank);
      double* const a = memory[t];
      const std::size_t next = n[t] + kSkew;
      for (int pass = 0; pass < passes; ++pass) (streams ? streaming : ordinary)(a, a + next, a + 2 * next, n[t], 3.0);
    });
    return team.elapsed_s();
  }
  /// Returns the bytes of a pass, including the lines that ordinary stores read first.
  double bytes() const {
    const mm::StreamShape& shape = mm::kStreamShapes[static_cast<std::size_t>(mm::StreamKernel::triad)];
    double elements = 0;
    for (const std::size_t count : n) elements += static_cast<double>(count);
    return elements * (shape.net() + (streams ? 0 : shape.allocated()));
  }
  /// Uses the kind of stores with the higher rate.
  void choose(mm::Team& team, int passes) {
    double best = 0;
    bool choice = false;
    for (const bool kind : {false, true, false, true}) {
      streams = kind;
      const double rate = bytes() * passes / run(team, passes);
      if (rate > best) {
        best = rate;
        choice = kind;
      }
    }
    streams = choice;
  }
};

struct SeaSetup {
  int cells, steps;
  mm::Pages pages;
  int node;
};

/// The state of a point between its bursts.
struct SeaProgress {
  int passes = 0;  ///< passes of the triad per burst
  bool stepped = false, wrong = false;
  Sea::Invariants before{}, drifts{};
  MemoryTriad triad;
};

void add_point(mm::Run& run, std::vector<mm::Point>& points, const SeaSetup& s, const std::vector<int>& cpus,
               std::uint64_t digest) {
  const std::size_t threads = cpus.size();
  mm::Point p;
  p.conditions = {{"paradigm", "threads"},
                  {"cells", s.cells},
                  {"steps", s.steps},
                  {"threads", threads},
                  {"cpus", mm::cpu_list(cpus)},
                  {"pages", mm::name(s.pages)},
                  {"page_bytes", mm::page_bytes(s.pages)},
                  {"memory_node", run.memory_node(s.node)}};
  if (threads > static_cast<std::size_t>(s.cells))
    return run.absent("step_time", p.conditions, "more threads than rows", "a larger --cells");
  const auto progress = std::make_shared<SeaProgress>();
  std::vector<double*> memory;
  for (std::size_t t = 0; t < threads; ++t) {
    const std::size_t words = mm::SeaTeam::words(s.cells, threads, t);
    const auto arena = run.arena(words * sizeof(double), s.pages, s.node, cpus[t], "step_time", p.conditions);
    if (!arena) return;
    p.arenas.push_back(arena);
    memory.push_back(arena->as<double>().data());
    progress->triad.add(memory.back(), words);
  }
  const auto sea = std::make_shared<mm::SeaTeam>(s.cells, memory, mm::best_isa());
  const auto team = run.team(cpus);
  p.metrics = {"step_time", "bandwidth", "triad_bandwidth", "bandwidth_share"};
  p.team = team;
  p.shield = false;  // a run of many steps takes longer than a burst at real-time priority may
  p.width_of_first_only = true;
  const double step_bytes = Sea::kBytes * s.cells * s.cells;
  const auto invariants = [=] {
    std::vector<Sea::Invariants> by_thread(threads);
    team->run(
        [&](int rank) { by_thread[static_cast<std::size_t>(rank)] = sea->invariants(static_cast<std::size_t>(rank)); });
    Sea::Invariants sum{};
    for (const Sea::Invariants& part : by_thread)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    return sum;
  };
  const auto verify = [=] {
    if (!progress->stepped) return;
    progress->stepped = false;
    progress->drifts = mm::workloads::sea_drifts(progress->before, invariants());
    std::vector<std::uint64_t> digests(threads);
    team->run([&](int rank) {
      digests[static_cast<std::size_t>(rank)] = sea->part(static_cast<std::size_t>(rank)).digest();
    });
    std::uint64_t sum = 0;
    for (const std::uint64_t part_digest : digests) sum += part_digest;
    progress->wrong =
        progress->wrong || sum != digest || !mm::workloads::sea_violation(progress->drifts, s.cells, 1).empty();
  };
  p.prepare = [=] {
    verify();
    if (progress->passes == 0) {
      progress->passes = std::max(1, s.steps / 4);
      progress->triad.choose(*team, progress->passes);
    }
  };
  // The steps come last, so that Run checks their threads.
  p.burst = [=] {
    const double triad = progress->triad.bytes() * progress->passes / progress->triad.run(*team, progress->passes);
    team->run([&](int rank) { sea->part(static_cast<std::size_t>(rank)).begin(); });
    progress->before = invariants();
    team->run([&](int rank) { sea->run(static_cast<std::size_t>(rank), s.steps); });
    progress->stepped = true;
    const double rate = step_bytes * s.steps / team->elapsed_s();
    return mm::Values{step_bytes / rate, rate, triad, rate / triad};
  };
  p.observe = [=] {
    verify();
    return json{{"triad_store", progress->triad.streams ? "streaming" : "ordinary"},
                {"mass_drift", progress->drifts[0]},
                {"energy_drift", progress->drifts[1]},
                {"enstrophy_drift", progress->drifts[2]}};
  };
  p.check = [=]() -> std::vector<std::string> {
    verify();
    return progress->wrong ? std::vector<std::string>{"unverified"} : std::vector<std::string>{};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  const std::vector<int> sizes = run.integers("cells", 256), teams = run.team_sizes("threads", order);
  const int steps = static_cast<int>(run.integer("steps"));
  const std::vector<int> nodes = run.placed_nodes();
  std::size_t remaining = sizes.size() * run.pages().size() * nodes.size() * teams.size();
  for (const int cells : sizes) {
    run.beat("one thread computes " + std::to_string(cells) + " x " + std::to_string(cells) + " cells");
    std::uint64_t digest = 0;
    run.team({order.front()})->run([&](int) { digest = mm::workloads::sea_digest(cells, steps); });
    // Points are measured one after the other, since memory may suffice for only one of them.
    for (const mm::Pages pages : run.pages())
      for (const int node : nodes)
        for (const int threads : teams) {
          std::vector<mm::Point> points;
          add_point(run, points, {cells, steps, pages, node}, {order.begin(), order.begin() + threads}, digest);
          run.allot(1.0 / static_cast<double>(remaining--));
          run.measure(std::move(points));
        }
  }
}

const mm::Instrument swim_threads{kSwimThreads, measure};

}  // namespace

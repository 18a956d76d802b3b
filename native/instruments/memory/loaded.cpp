/// loaded: latency under load, as a function of bandwidth.
#include <algorithm>
#include <atomic>
#include <map>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/chase.hpp"

namespace {

using mm::json;

constexpr double kBurst_s = 4e-3;
constexpr double kKnee = 1.25;  // latency at the knee over the idle latency

const mm::Description kLoaded{
    .name = "loaded",
    .summary =
        "latency as a function of bandwidth, from one outstanding load up to the maximum bandwidth of a core and of "
        "the machine",
    .detail =
        "chains: every CPU of a team follows 1 to 32 independent random rings at once. paced: the first CPU follows "
        "one ring while the others stream, with several lengths of pauses and several shares of reads. The knee is the "
        "highest bandwidth at which latency is below 1.25 times the idle latency.\n"
        "example: meshmark-probe loaded --chains 1,2,4,8,16 --threads 1,all",
    .source =
        "GS1280 study (2003), figure 15: 1 to 20+ outstanding loads; Little's law; Esmaili-Dokht et al., A Mess of "
        "Memory System Benchmarking (MICRO 2024)",
    .spoils = {"other traffic on the memory controller", "4 KiB pages: address translation is part of the latency",
               "too few CPUs to saturate the controller: the curve stays flat, which is also a result"},
    .needs = {"two CPUs for mode paced"},
    .parameters = {mm::choices("mode", "source of the load", "chains,paced", {"chains", "paced"}),
                   {"chains", "outstanding loads per CPU", "", mm::Kind::integers, "1,2,3,4,5,6,8,10,12,16,20,24,32", 1,
                    32},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536},
                   {"pause", "paced: pauses between lines, in spins", "", mm::Kind::integers, "0,4,16,64,256", 0,
                    1 << 20},
                   {"read_share", "paced: shares of reads, a list", "", mm::Kind::text, "1,0.5"},
                   {"footprint_bytes", "footprint of each CPU", "B", mm::Kind::size, "256MiB", 65536, {}}},
    .metrics = {{"load_latency", "time per dependent load", "s", mm::Better::lower},
                {"bandwidth_net", "lines loaded (and stored) over time", "B/s", mm::Better::higher},
                {"memory_parallelism", "maximum outstanding loads per core (MLP)", "1", mm::Better::higher},
                {"knee_bandwidth", "highest bandwidth with a latency below 1.25 times the idle latency", "B/s",
                 mm::Better::higher}},
    .identity = {"mode", "chains", "threads", "read_share", "pause", "footprint_bytes", "pages", "memory_node"},
    .bytes_per_iteration = 64,
};

/// Streams over lines with a pause after each, mixing reads and writes by share, until `stop`. Returns the number of
/// lines.
std::uint64_t stream_paced(std::byte* base, std::size_t bytes, double read_share, int pause,
                           const std::atomic<bool>& stop) {
  std::uint64_t lines = 0, sum = 0;
  double read_credit = 0;
  for (std::size_t offset = 0; !stop.load(std::memory_order_relaxed); offset = offset + 64 < bytes ? offset + 64 : 0) {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(base + offset);
    read_credit += read_share;
    if (read_credit >= 1) {
      read_credit -= 1;
      sum += *word;
    } else {
      *word = lines;
    }
    ++lines;
    for (int i = 0; i < pause; ++i) asm volatile("" : : : "memory");
  }
  mm::keep(sum);
  return lines;
}

struct ChaseSetup {
  std::vector<int> order;
  std::vector<std::shared_ptr<mm::Arena>> arenas;
  std::vector<std::vector<mm::Link*>> starts;  // by thread: 32 positions along its ring
  std::size_t footprint;
  mm::Pages pages;
  int node;
  json memory_node;
};

json conditions(const ChaseSetup& g, const char* mode, int chains, int threads) {
  return {{"mode", mode},
          {"chains", chains},
          {"threads", threads},
          {"read_share", 1.0},
          {"pause", 0},
          {"footprint_bytes", g.footprint},
          {"pages", mm::name(g.pages)},
          {"page_bytes", mm::page_bytes(g.pages)},
          {"memory_node", g.memory_node}};
}

void add_chains(mm::Run& run, std::vector<mm::Point>& points, const std::shared_ptr<ChaseSetup>& g, int chains,
                int threads) {
  const mm::WalkTogether walk = mm::walk_of(chains);
  if (walk == nullptr) run.refuse("chains", "found " + std::to_string(chains), "1-6, 8, 10, 12, 14, 16, 20, 24, 32");
  const auto team = run.team({g->order.begin(), g->order.begin() + threads});
  // All points share these positions, and each chase continues where the previous one stopped. If a chase started again
  // at the same place, it would find lines in the caches that the previous chase has just loaded.
  const auto work = [=](std::uint64_t steps) {
    team->run([&](int rank) { walk(g->starts[static_cast<std::size_t>(rank)].data(), steps); });
    return team->elapsed_s();
  };
  auto steps = std::make_shared<std::uint64_t>(0);
  mm::Point p;
  p.conditions = conditions(*g, "chains", chains, threads);
  p.metrics = {"load_latency", "bandwidth_net"};
  p.bytes_each = g->footprint;
  p.team = team;
  p.arenas = g->arenas;
  p.prepare = [=] {
    if (*steps == 0) *steps = mm::iterations_for(kBurst_s, work, 256);
    work(*steps / 8 + 1);
  };
  p.burst = [=] {
    const double elapsed_s = work(*steps);
    const double step = elapsed_s / static_cast<double>(*steps);
    if (step < 0.15e-9) throw mm::Failure("a load took less than one clock cycle");
    return mm::Values{step, 64.0 * chains * threads / step};
  };
  points.push_back(std::move(p));
}

void add_paced(mm::Run& run, std::vector<mm::Point>& points, const std::shared_ptr<ChaseSetup>& g, int threads,
               int pause, double read_share) {
  const auto team = run.team({g->order.begin(), g->order.begin() + threads});
  auto loads = std::make_shared<std::uint64_t>(0);
  struct PacedSample {
    double latency, lines, took;
  };
  const auto work = [=](std::uint64_t n) {
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> lines{0};
    PacedSample sample{};
    team->run([&](int rank) {
      if (rank != 0) {
        const auto& arena = g->arenas[static_cast<std::size_t>(rank)];
        // The traffic uses the upper half of the arena, because it must not overwrite the links of this CPU's own ring.
        lines += stream_paced(arena->data() + g->footprint, g->footprint, read_share, pause, stop);
        return;
      }
      const mm::Ticks begin = mm::ticks();
      mm::walk_together<1>(g->starts[0].data(), n);
      sample.took = mm::seconds(mm::ticks() - begin);
      stop = true;
    });
    sample.lines = static_cast<double>(lines.load());
    sample.latency = sample.took / static_cast<double>(n);
    return sample;
  };
  mm::Point p;
  p.conditions = conditions(*g, "paced", 1, threads);
  p.conditions["pause"] = pause;
  p.conditions["read_share"] = read_share;
  p.metrics = {"load_latency", "bandwidth_net"};
  p.bytes_each = g->footprint;
  p.team = team;
  p.arenas = g->arenas;
  p.prepare = [=] {
    if (*loads == 0) *loads = mm::iterations_for(kBurst_s, [=](std::uint64_t n) { return work(n).took; }, 1024);
  };
  p.burst = [=] {
    const PacedSample sample = work(*loads);
    return mm::Values{sample.latency, 64.0 * (sample.lines + static_cast<double>(*loads)) / sample.took};
  };
  points.push_back(std::move(p));
}

void derive(mm::Run& run, const std::vector<mm::Outcome>& outcomes, const ChaseSetup& g) {
  std::map<int, std::vector<const mm::Outcome*>> by_threads;
  for (const mm::Outcome& o : outcomes)
    if (o.metric == "load_latency" && o.conditions["mode"] == "chains")
      by_threads[o.conditions["threads"]].push_back(&o);
  for (auto& [threads, curve] : by_threads) {
    const mm::Outcome* idle = nullptr;
    for (const auto* o : curve)
      if (o->conditions["chains"] == 1) idle = o;
    if (idle == nullptr || curve.size() < 3) continue;
    const auto rate = [&](const mm::Outcome* o) {
      return 64.0 * o->conditions["chains"].get<double>() * threads / o->value;
    };
    json c = conditions(g, "chains", 0, threads);
    c.erase("chains");
    const mm::Outcome *best = idle, *knee = idle;
    for (const auto* o : curve) {
      if (rate(o) > rate(best)) best = o;
      if (o->value <= kKnee * idle->value && rate(o) > rate(knee)) knee = o;
    }
    std::vector<std::string> flags = idle->flags;
    for (const auto* o : {best, knee}) flags.insert(flags.end(), o->flags.begin(), o->flags.end());
    const std::string source =
        "load_latency and bandwidth_net over " + std::to_string(curve.size()) + " numbers of chains";
    const auto rates = [count = threads](const mm::Outcome* o, double factor) {
      std::vector<double> scaled;
      for (double latency : o->samples)
        scaled.push_back(factor * o->conditions["chains"].get<double>() * count / latency);
      return scaled;
    };
    if (threads == 1) {
      c["best_chains"] = best->conditions["chains"];
      run.derive("memory_parallelism", rates(best, idle->value), c, flags, source);  // Little's law
    }
    c["best_chains"] = knee->conditions["chains"];
    c["latency_at_knee"] = knee->value;
    c["reached"] = best == knee ? "no: latency stayed below the knee" : "yes";
    run.derive("knee_bandwidth", rates(knee, 64.0), c, flags, source);
  }
}

/// Measures one page size and one memory node.
void measure_memory(mm::Run& run, mm::Pages pages, int node) {
  auto g = std::make_shared<ChaseSetup>();
  g->order = mm::fill_order("cores", run.cpus());
  const auto threads = run.team_sizes("threads", g->order);
  const int max_threads = *std::max_element(threads.begin(), threads.end());
  std::vector<double> shares;
  for (const std::string& text : mm::split(run.text("read_share"), ',')) {
    shares.push_back(mm::parse_real("read_share", text));
    if (shares.back() < 0 || shares.back() > 1) run.refuse("read_share", "found " + text, "0 to 1");
  }
  g->footprint = run.bytes("footprint_bytes") / 64 * 64;
  g->pages = pages;
  g->node = node;
  g->memory_node = run.memory_node(g->node);
  const auto modes = run.choices("mode");
  for (int t = 0; t < max_threads; ++t) {
    auto arena = run.arena(2 * g->footprint, g->pages, g->node, g->order[static_cast<std::size_t>(t)], "load_latency",
                           {{"footprint_bytes", g->footprint}, {"threads", t + 1}});
    if (!arena) break;
    g->arenas.push_back(std::move(arena));
    g->starts.emplace_back(32);
    mm::make_random_ring(g->arenas.back()->data(), g->footprint / 64, 64, run.seed() + static_cast<std::uint64_t>(t),
                         g->starts.back());
    run.beat("building rings");
  }
  std::vector<mm::Point> points;
  const auto fits = [&](int t) { return static_cast<std::size_t>(t) <= g->arenas.size(); };
  for (const std::string& mode : modes)
    for (int t : threads) {
      if (!fits(t)) continue;
      if (mode == "chains")
        for (int chains : run.integers("chains", 32)) add_chains(run, points, g, chains, t);
      else if (t > 1)
        for (double share : shares)
          for (int pause : run.integers("pause", 0)) add_paced(run, points, g, t, pause, share);
    }
  derive(run, run.measure(std::move(points)), *g);
}

void measure(mm::Run& run) {
  const std::vector<int> nodes = run.placed_nodes();
  std::size_t remaining = run.pages().size() * nodes.size();
  for (const mm::Pages pages : run.pages())
    for (const int node : nodes) {
      run.allot(1.0 / static_cast<double>(remaining--));
      measure_memory(run, pages, node);
    }
  const auto modes = run.choices("mode");
  const bool paced = std::find(modes.begin(), modes.end(), "paced") != modes.end();
  if (paced && run.cpus().size() < 2)
    run.absent("load_latency", {{"mode", "paced"}}, "needs at least 2 CPUs, found 1", "--cpus with two or more");
}

const mm::Instrument loaded{kLoaded, measure};

}  // namespace

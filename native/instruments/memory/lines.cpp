/// lines: core-to-core latency, the cost of loading a cache line that another core's cache holds.
#include <algorithm>
#include <atomic>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/topology/topology.hpp"
#include "kernels/pingpong.hpp"

namespace {

using mm::json;

constexpr double kBurst_s = 3e-3;
constexpr std::size_t kRingLines = 256;  // 16 KiB: stays in the owner's first-level cache
constexpr std::size_t kPart = 1 << 16;   // bytes of the arena, per pair and state

const mm::Description kLines{
    .name = "lines",
    .summary = "core-to-core latency: loads of a line in another core's cache, for every pair of CPUs",
    .detail =
        "swap: two CPUs exchange one line by compare-and-swap; one way is half a round trip. flag: the same by loads "
        "and stores, a round trip. dirty, clean: the CPU `from` writes (or loads) 256 lines, then `to` loads them one "
        "after the other; time per load.\n"
        "example: meshmark-probe lines --state swap,dirty --cpus 0-3",
    .source =
        "GS1280 study (2003), read-dirty latency; Molka et al., Memory Performance and Cache Coherency Effects on an "
        "Intel Nehalem (PACT 2009); Ball protocols as in core-to-core-latency and multichase",
    .spoils = {"a hypervisor that moves virtual CPUs between cores", "the home node of the line (see home_node)",
               "load on either core, and a busy sibling thread"},
    .needs = {"two CPUs"},
    .parameters = {mm::choices("state", "state of the line and method of transfer", "swap,flag,dirty,clean",
                               {"swap", "flag", "dirty", "clean"})},
    .metrics = {{"line_latency", "time per transfer of a line", "s", mm::Better::lower}},
    .identity = {"from_cpu", "to_cpu", "state", "trip", "home_node", "pages"},
    .bytes_per_iteration = 64,
};

double clock_period() {
  const mm::Ticks begin = mm::ticks();
  mm::keep(mm::dependent_adds(1 << 18));
  return mm::seconds(mm::ticks() - begin) / (1 << 18);
}

mm::Point ball_point(const std::shared_ptr<mm::Team>& team, mm::Ball* ball, bool swap) {
  mm::Point p;
  const auto batch_s = [=](std::uint64_t n) {
    ball->value.store(0);
    team->run([&](int rank) {
      swap ? mm::swap_ball(*ball, static_cast<std::uint32_t>(rank), n)
           : mm::pass_ball(*ball, static_cast<std::uint32_t>(rank), n);
    });
    return team->elapsed_s();
  };
  const auto latency = [=](double rounds, double elapsed_s) {
    const double round_s = elapsed_s / rounds;
    if (ball->value.load() != 0) throw mm::Failure("the line was not transferred as often as counted");
    if (round_s < 2 * clock_period()) throw mm::Failure("a transfer took less than one clock cycle");
    return mm::Values{swap ? round_s / 2 : round_s};
  };
  mm::time_batches(p, kBurst_s, batch_s, latency, 100);
  return p;
}

mm::Point load_point(const std::shared_ptr<mm::Team>& team, std::byte* base, bool dirty, std::uint64_t seed) {
  mm::Point p;
  mm::Link* const start = mm::make_random_ring(base, kRingLines, 64, seed);
  auto turns = std::make_shared<std::uint64_t>(0);
  // Member 0 owns the lines and member 1 loads them, in turn; only the loads are timed.
  const auto load_s = [=](std::uint64_t count) {
    std::atomic<int> turn{0};
    double total_s = 0;
    team->run([&](int rank) {
      for (std::uint64_t i = 0; i < count; ++i) {
        for (int spins = 0; turn.load(std::memory_order_acquire) % 2 != rank; ++spins)
          if (spins > 1 << 20) sched_yield();
        if (rank == 0) {
          if (dirty) {
            mm::dirty_ring(start);
          } else {
            mm::flush_lines(base, kRingLines * 64);  // evicts the lines; then the owner loads them unmodified
            mm::keep(mm::walk(start, kRingLines));
          }
        } else {
          const mm::Ticks begin = mm::ticks();
          mm::Link* const end = mm::walk(start, kRingLines);
          mm::keep(end);
          total_s += mm::seconds(mm::ticks() - begin) - mm::clock_info().overhead_s;
          if (end != start) throw mm::Failure("the walk did not return to the start of the ring");
        }
        turn.fetch_add(1, std::memory_order_release);
      }
    });
    return total_s;
  };
  p.prepare = [=] {
    // The better of two estimates is used, since one may be interrupted. More estimates would take too long, since a
    // turn takes much longer than the part of it that is timed.
    if (*turns == 0) {
      const double turn_s = std::max(std::min(load_s(4), load_s(4)) / 4, 1e-6);
      *turns = std::clamp(static_cast<std::uint64_t>(kBurst_s / turn_s), std::uint64_t{8}, std::uint64_t{2000});
    }
  };
  p.burst = [=] {
    const double latency = load_s(*turns) / static_cast<double>(*turns) / kRingLines;
    if (latency < clock_period()) throw mm::Failure("a load took less than one clock cycle");
    return mm::Values{latency};
  };
  return p;
}

/// Returns whose node is the home of a line that two CPUs exchange: "from", "to" or "other"; "" if both CPUs are on one
/// node.
std::string home_relation(int from, int to, int home) {
  const int a = mm::topology().cpu(from).node, b = mm::topology().cpu(to).node;
  return a == b ? "" : home == a ? "from" : home == b ? "to" : "other";
}

void measure(mm::Run& run) {
  const std::vector<int> cpus = run.cpus();
  const auto states = run.choices("state");
  if (cpus.size() < 2) throw mm::Absent("needs at least 2 CPUs, found 1", "--cpus with two or more");
  const auto nodes = run.memory_nodes();
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    run.allot(1.0 / static_cast<double>(cpus.size() - i));
    const int from = cpus[i];
    std::vector<mm::Point> points;
    for (const mm::Pages pages : run.pages())
      for (int home : nodes.empty() ? std::vector<int>{mm::topology().cpu(from).node} : nodes) {
        // Every pair and state has a separate part of an arena on the home node, because the page of a line determines
        // its home node.
        const auto arena = run.arena(kPart * cpus.size() * states.size(), pages, home, from, "line_latency",
                                     {{"from_cpu", from}, {"home_node", home}, {"pages", mm::name(pages)}});
        if (!arena) continue;
        std::size_t offset = 0;
        for (int to : cpus) {
          if (to == from) continue;
          const auto team = run.team({from, to});
          for (const std::string& state : states) {
            std::byte* const base = arena->data() + offset;
            offset += kPart;
            const bool ball = state == "swap" || state == "flag";
            mm::Point p = ball ? ball_point(team, new (base) mm::Ball, state == "swap")
                               : load_point(team, base, state == "dirty", run.seed() + offset);
            p.conditions = {{"from_cpu", from},  {"to_cpu", to},
                            {"state", state},    {"trip", state == "swap" ? "one_way" : "round"},
                            {"home_node", home}, {"pages", mm::name(arena->request().pages)}};
            if (const std::string relation = home_relation(from, to, home); !relation.empty())
              p.conditions["home"] = relation;
            p.metrics = {"line_latency"};
            p.team = team;
            p.arenas = {arena};
            points.push_back(std::move(p));
          }
        }
      }
    run.measure(std::move(points));
    run.release_teams();  // 1000 pairs have 2000 threads
  }
}

const mm::Instrument lines{kLines, measure};

}  // namespace

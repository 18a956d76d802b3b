/// clock: resolution, cost and monotonicity of this machine's clocks, and the actual frequency of a core.
#include <atomic>
#include <cmath>
#include <functional>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/topology/topology.hpp"

namespace {

using mm::json;

const mm::Description kClock{
    .name = "clock",
    .summary = "resolution, cost and monotonicity of every clock, and the core's actual frequency",
    .detail =
        "Reads each clock in a loop; reads it on CPUs in turn to detect steps backwards; times chains of dependent "
        "additions (one per cycle) for the core frequency.\n"
        "example: meshmark-probe clock --cpus 0",
    .source = "dependent-chain timing after McCalpin and Fog; monotonicity check after Linux's own TSC warp test",
    .spoils = {"a hypervisor that traps the counter",
               "turbo and power states: the frequency holds only for the time of the measurement"},
    .needs = {},
    .parameters = {mm::choices(
        "clocks", "clocks to measure", "tsc,monotonic,monotonic_raw,monotonic_coarse,realtime,thread_cputime",
        {"tsc", "monotonic", "monotonic_raw", "monotonic_coarse", "realtime", "thread_cputime"})},
    .metrics = {{"clock_overhead", "time per reading", "s", mm::Better::lower},
                {"clock_resolution", "smallest step between two different readings", "s", mm::Better::lower},
                {"clock_backward", "steps backwards while CPUs read in turn", "1", mm::Better::lower},
                {"clock_drift", "relative change of the counter's rate between an idle and a busy core", "1",
                 mm::Better::lower},
                {"counter_frequency", "rate of the time-stamp counter", "Hz", mm::Better::none},
                {"core_frequency", "dependent additions per second", "Hz", mm::Better::higher},
                {"timer_perturbation", "relative slowdown of 1024 dependent additions by one clock reading", "1",
                 mm::Better::lower}},
    .identity = {"clock", "cpu"},
};

using Reader = mm::Ticks (*)();

template <clockid_t id>
mm::Ticks read_clock() {
  return mm::kernel_ns(id);
}

struct ClockSource {
  const char* name;
  Reader read;
  bool counter;  // readings are ticks of the counter; otherwise ns
  double seconds(mm::Ticks t) const { return counter ? mm::seconds(t) : static_cast<double>(t) * 1e-9; }
};

constexpr ClockSource kSources[] = {{"tsc", mm::ticks, true},
                                    {"monotonic", read_clock<CLOCK_MONOTONIC>, false},
                                    {"monotonic_raw", read_clock<CLOCK_MONOTONIC_RAW>, false},
                                    {"monotonic_coarse", read_clock<CLOCK_MONOTONIC_COARSE>, false},
                                    {"realtime", read_clock<CLOCK_REALTIME>, false},
                                    {"thread_cputime", read_clock<CLOCK_THREAD_CPUTIME_ID>, false}};

mm::Values overhead(const ClockSource& source) {
  constexpr int kReads = 20000;
  const mm::Ticks begin = mm::ticks();
  for (int i = 0; i < kReads; ++i) mm::keep(source.read());
  return {mm::seconds(mm::ticks() - begin) / kReads};
}

mm::Values resolution(const ClockSource& source) {
  mm::Ticks min_step = ~mm::Ticks{0}, last = source.read();
  const double end = mm::wall_s() + 0.012;  // a coarse clock typically steps every 4 ms
  while (mm::wall_s() < end)
    for (int i = 0; i < 64; ++i) {
      const mm::Ticks now = source.read();
      if (now > last) min_step = std::min(min_step, now - last);
      last = now;
    }
  if (min_step == ~mm::Ticks{0}) throw mm::Failure(std::string(source.name) + " did not step within 12 ms");
  return {source.seconds(min_step)};
}

/// Returns the number of steps backwards while the members of the team read in turn, each after the previous member has
/// published its reading.
mm::Values backward(mm::Team& team, const ClockSource& source) {
  std::atomic<mm::Ticks> last{source.read()};
  std::atomic<int> turn{0}, steps{0};
  constexpr int kRounds = 2000;
  team.run([&](int rank) {
    for (int i = 0; i < kRounds; ++i) {
      for (int spins = 0; turn.load(std::memory_order_acquire) != rank; ++spins)
        if (spins > 1 << 14) sched_yield();
      const mm::Ticks now = source.read();
      if (now < last.load(std::memory_order_relaxed)) ++steps;
      last.store(now, std::memory_order_relaxed);
      turn.store((rank + 1) % team.size(), std::memory_order_release);
    }
  });
  return {static_cast<double>(steps.load())};
}

double counter_rate(bool busy) {
  const mm::Ticks n0 = mm::kernel_ns(), t0 = mm::ticks();
  if (busy)
    while (mm::kernel_ns() - n0 < 8'000'000) mm::keep(mm::dependent_adds(1 << 12));
  else {
    const timespec nap{0, 8'000'000};
    nanosleep(&nap, nullptr);
  }
  const mm::Ticks n1 = mm::kernel_ns(), t1 = mm::ticks();
  return static_cast<double>(t1 - t0) / (static_cast<double>(n1 - n0) * 1e-9);
}

double time_adds(std::uint64_t adds) {
  const mm::Ticks begin = mm::ticks();
  mm::keep(mm::dependent_adds(adds));
  return mm::seconds(mm::ticks() - begin);
}

void measure(mm::Run& run) {
  const std::vector<int> cpus = run.cpus();
  const int cpu = cpus.front();
  std::vector<mm::Point> points;
  const auto add = [&](const char* metric, json conditions, std::function<mm::Values()> burst, int bound_cpu) {
    mm::Point p;
    p.conditions = std::move(conditions);
    p.conditions["cpu"] = bound_cpu;
    p.metrics = {metric};
    p.cpu = bound_cpu;
    p.burst = std::move(burst);
    points.push_back(std::move(p));
  };
  for (const std::string& name : run.choices("clocks"))
    for (const ClockSource& source : kSources) {
      if (name != source.name) continue;
      const json c{{"clock", name}};
      for (const int bound_cpu : run.single_cpus()) {
        add("clock_overhead", c, [&source] { return overhead(source); }, bound_cpu);
        add("clock_resolution", c, [&source] { return resolution(source); }, bound_cpu);
      }
      if (name == "thread_cputime") continue;  // separate for every thread
      if (cpus.size() < 2) {
        run.absent("clock_backward", c, "needs at least 2 CPUs, found 1", "--cpus with two or more");
        continue;
      }
      mm::Point p;
      p.conditions = c;
      p.metrics = {"clock_backward"};
      p.team = run.team(cpus);
      p.burst = [team = p.team, &source] { return backward(*team, source); };
      points.push_back(std::move(p));
    }
#if defined(__x86_64__) || defined(__aarch64__)
  add("counter_frequency", {{"clock", "tsc"}}, [] { return mm::Values{counter_rate(true)}; }, cpu);
  add(
      "clock_drift", {{"clock", "tsc"}},
      [] { return mm::Values{std::fabs(counter_rate(true) / counter_rate(false) - 1)}; }, cpu);
#endif
  for (int bound_cpu : cpus)
    add(
        "core_frequency", json::object(),
        [] {
          constexpr std::uint64_t kAdds = 1 << 22;
          return mm::Values{static_cast<double>(kAdds) / time_adds(kAdds)};
        },
        bound_cpu);
  for (const int bound_cpu : run.single_cpus())
    add(
        "timer_perturbation", {{"clock", mm::clock_info().name}},
        [] {
          constexpr int kBlocks = 2000, kBlock = 1024;
          const double plain = time_adds(static_cast<std::uint64_t>(kBlocks) * kBlock);
          const mm::Ticks begin = mm::ticks();
          for (int i = 0; i < kBlocks; ++i) {
            mm::keep(mm::dependent_adds(kBlock));
            mm::keep(mm::ticks());
          }
          return mm::Values{std::max(0.0, mm::seconds(mm::ticks() - begin) / plain - 1)};
        },
        bound_cpu);
  run.measure(std::move(points));
}

const mm::Instrument clock_instrument{kClock, measure};

}  // namespace

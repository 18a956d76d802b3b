/// kernels: the time of one unit of every load kernel by volume, stride and threads, which calibrates synthesis.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/options.hpp"
#include "base/resources/counts.hpp"
#include "base/resources/host.hpp"
#include "base/topology/topology.hpp"
#include "workloads/kernel.hpp"

namespace {

using mm::json;

const mm::Description kKernels{
    .name = "kernels",
    .summary = "time of a unit of every load kernel, by data volume, stride and number of threads",
    .detail =
        "A load kernel consists of equal units with exact counts (floating-point and integer operations, bytes loaded "
        "and stored, cache lines touched and written, bytes of files, system calls), which are conditions of its "
        "records; `meshmark load kernels` lists them. Threads share the units of a call; the threads of a team kernel "
        "do "
        "each unit together. Every kernel verifies its result after the last sample: a wrong one sets the flag "
        "unverified.\n"
        "After the samples a separate pass counts events of the threads by the processor and the Linux kernel: "
        "counter_cycles, counter_instructions, … are per unit, and counters_of states whether work in the Linux kernel "
        "is included. A counter that is not available is absent, once per run.\n"
        "volume: L1, L2 and L3 are half a cache, memory is four times the last level (512 MiB at most).\n"
        "example: meshmark-probe kernels --kernel triad,gemm --volume L2,memory --stride 1,8 --threads 1,all",
    .source = "PARbench (Janda, Mueller, Nagel, Trenkler 2007), base data; each kernel names its source",
    .spoils = {"other programs: calibration on a busy machine makes programs too short for an idle one",
               "other traffic in the last-level cache and on the memory controller"},
    .needs = {},
    .parameters = {{"kernel", "load kernels by name or kind (stream, dense, …), a list; all", "", mm::Kind::text,
                    "all"},
                   {"volume",
                    "data volumes: sizes, or L1, L2, L3, memory; a list",
                    "B",
                    mm::Kind::text,
                    "L1,L2,L3,memory",
                    {},
                    {},
                    {},
                    "--volume"},
                   {"stride", "strides in elements, a list", "1", mm::Kind::integers, "1,2,4,8,16,32", 1, 1024},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"unit_time", "wall time per unit, all threads sharing the units", "s", mm::Better::lower},
                {"unit_cpu_time", "CPU time per unit, of all threads", "s", mm::Better::lower}},
    .identity = {"kernel", "volume_bytes", "stride", "threads"},
};

/// Returns the volumes in bytes by name: half of a cache level, memory, or a size.
std::map<std::string, std::size_t> volumes(const mm::Run& run) {
  const mm::Machine& machine = mm::topology();
  std::map<std::string, std::size_t> bytes_by_name;
  for (const std::string& word : mm::split(run.text("volume"), ',')) {
    std::size_t bytes = 0;
    if (word == "memory")
      bytes = std::min<std::size_t>(4 * machine.last_level_bytes(), std::size_t{512} << 20);
    else if (word.size() == 2 && word[0] == 'L' && word[1] >= '1' && word[1] <= '9')
      bytes = machine.cache_bytes(word[1] - '0') / 2;
    else
      bytes = mm::parse_size("volume", word);
    if (bytes == 0) continue;  // this machine has no such level
    bytes_by_name[word] = bytes;
  }
  return bytes_by_name;
}

std::vector<const mm::workloads::KernelEntry*> selected(const mm::Run& run) {
  std::vector<const mm::workloads::KernelEntry*> entries;
  for (const std::string& word : mm::split(run.text("kernel"), ',')) {
    const std::size_t before = entries.size();
    for (const mm::workloads::KernelEntry& e : mm::workloads::kernels())
      if (word == "all" || word == e.info.name || word == e.info.kind) entries.push_back(&e);
    if (entries.size() == before)
      run.refuse("kernel", "found " + mm::quote(word), "all, a kind, or a name from `meshmark load kernels`");
  }
  return entries;
}

constexpr double kBurst_s = 4e-3;

/// The memory, kernel and team that the points of one variant share.
struct Work {
  const mm::workloads::KernelEntry* entry;
  mm::workloads::Shape shape;
  std::shared_ptr<mm::Team> team;
  std::unique_ptr<mm::workloads::Memory> memory{};
  std::unique_ptr<mm::workloads::Kernel> kernel{};
  std::size_t cursor = 0, burst = 0;
  double cpu_s = 0, system_s = 0;
  std::vector<std::unique_ptr<mm::perf::ThreadCounts>> counts{};  ///< by rank

  /// Allocates memory and kernel. Runs before the first burst, because all large volumes at once may exceed the budget.
  void make_ready() {
    if (kernel) return;
    memory = std::make_unique<mm::workloads::Memory>(shape.threads,
                                                     [this](const std::function<void(int)>& f) { team->run(f); });
    kernel = mm::workloads::make(*entry, shape, *memory);
    burst =
        mm::iterations_for(kBurst_s, [&](std::uint64_t n) { return run(n); }, static_cast<std::uint64_t>(team->size()));
  }

  /// Runs `units`, continuing after the last ones, and returns the wall time in s. The threads synchronise only at the
  /// end, because a barrier takes longer than a pass over a small volume. If `counting` is set, the event counters are
  /// active.
  double run(std::size_t units, bool counting = false) {
    const std::size_t kernel_units = kernel->units(), size = static_cast<std::size_t>(team->size());
    team->run([&](int rank) {
      const auto part = [&](std::size_t n, int r) { return n * static_cast<std::size_t>(r) / size; };
      std::size_t first = cursor;
      if (counting) counts[static_cast<std::size_t>(rank)]->begin();
      for (std::size_t remaining = units; remaining > 0; first = 0) {
        const std::size_t n = std::min(remaining, kernel_units - first);
        if (entry->info.team)
          kernel->run(first, first + n, rank);
        else if (part(n, rank) < part(n, rank + 1))
          kernel->run(first + part(n, rank), first + part(n, rank + 1), rank);
        remaining -= n;
      }
      if (counting) counts[static_cast<std::size_t>(rank)]->end();
    });
    cursor = (cursor + units) % kernel_units;
    return team->elapsed_s();
  }
};

/// Returns the system time of this process in s. The Linux kernel splits the exact total by clock ticks, so use the
/// value only over long periods.
double process_system_s() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_stime.tv_sec) + 1e-6 * static_cast<double>(use.ru_stime.tv_usec);
}

/// Returns the first level that holds a volume. Each thread adds its own first-level and second-level cache.
std::string served_by(std::size_t bytes, int threads) {
  const mm::Machine& machine = mm::topology();
  const auto private_caches = static_cast<std::size_t>(threads);
  if (bytes <= private_caches * machine.cache_bytes(1)) return "L1";
  if (bytes <= private_caches * machine.cache_bytes(2)) return "L2";
  return bytes <= machine.cache_bytes(3) ? "L3" : "memory";
}

double process_cpu_s() { return static_cast<double>(mm::kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// The events of threads that the Linux kernel can count, and the events that were missing for some points.
struct Counting {
  mm::perf::ThreadEvents events;
  std::map<std::string, std::size_t> missed;  ///< number of points, by event
};

/// Returns event counts per unit, by condition. If events are multiplexed, a burst may end before some of them were
/// counted; the burst is then repeated with more units.
json event_counts(Work& work, Counting& counting) {
  const mm::perf::ThreadEvents& events = counting.events;
  json conditions = json::object();
  if (events.had().empty()) return conditions;
  const auto size = static_cast<std::size_t>(work.team->size());
  work.counts.resize(size);
  work.team->run([&](int rank) {
    work.counts[static_cast<std::size_t>(rank)] = std::make_unique<mm::perf::ThreadCounts>(events);
  });
  for (std::size_t units = work.burst;; units *= 4) {
    work.run(units, true);
    bool complete = true;
    for (std::size_t e = 0; e < events.had().size(); ++e) {
      double sum = 0;
      for (const auto& thread : work.counts) sum += thread->of(e);
      // A thread that ran has used CPU time, but some Linux kernels occasionally report 0.
      const bool stuck = sum == 0 && events.had()[e].name == "task_clock_s";
      if (std::isfinite(sum) && !stuck)
        conditions["counter_" + events.had()[e].name] = sum / static_cast<double>(units);
      else
        complete = false;
    }
    if (complete || units >= 16 * work.burst) break;
  }
  for (const mm::perf::ThreadEvent& e : events.had())
    if (!conditions.contains("counter_" + e.name)) ++counting.missed[e.name];
  conditions["counters_of"] = events.user_only() ? "user" : "user and kernel";
  work.counts.clear();
  return conditions;
}

/// Returns the exact counts of one unit, by condition.
json amounts(const Work& work) {
  const mm::workloads::Counts counts = work.kernel->counts();
  json conditions{{"memory_bytes", work.memory->bytes()}, {"team", work.entry->info.team}};
  for (const mm::workloads::CountColumn& c : mm::workloads::kCountColumns) conditions[c.name] = counts.*c.value;
  return conditions;
}

void add_point(mm::Run& run, std::vector<mm::Point>& points, const mm::workloads::KernelEntry& entry,
               std::size_t volume, int stride, const std::vector<int>& cpus, Counting& counting) {
  const int threads = static_cast<int>(cpus.size());
  json conditions{{"kernel", entry.info.name},
                  {"kind", entry.info.kind},
                  {"volume_bytes", entry.info.sized ? volume : 0},
                  {"stride", stride},
                  {"threads", threads},
                  {"served_by", entry.info.sized ? served_by(volume, threads) : "L1"},
                  {"compiler", mm::kCompilerVersion}};
  mm::Point p;
  p.conditions = std::move(conditions);
  p.metrics = {"unit_time", "unit_cpu_time"};
  if (mm::wall_s() > run.last_call_s()) {  // avoids creating threads for a point that will not be measured
    p.missing = run.out_of_budget();
    points.push_back(std::move(p));
    return;
  }
  const auto work = std::make_shared<Work>(Work{&entry, {volume, stride, threads}, run.team(cpus)});
  p.team = work->team;
  p.width_of_first_only = true;
  p.shield = entry.info.kind != "system" && entry.info.kind != "idle" && entry.info.kind != "sharing";
  p.timed_inside = entry.info.kind != "idle";
  p.prepare = [work] { work->make_ready(); };
  p.burst = [work] {
    const double before_s = process_cpu_s(), system_s = process_system_s();
    const double elapsed_s = work->run(work->burst), cpu_s = process_cpu_s() - before_s;
    work->cpu_s += cpu_s;
    work->system_s += process_system_s() - system_s;
    const auto n = static_cast<double>(work->burst);
    return mm::Values{elapsed_s / n, cpu_s / n};
  };
  p.observe = [work, &counting, prepare = p.prepare, burst = p.burst] {
    if (!work->kernel) {  // all samples are from an earlier run
      prepare();
      burst();
    }
    json observed = amounts(*work);
    observed.update(event_counts(*work, counting));
    observed["system_share"] = work->cpu_s > 0 ? work->system_s / work->cpu_s : 0.0;
    return observed;
  };
  p.check = [work] {
    std::vector<std::string> flags;
    if (!work->kernel->verify().empty()) flags.emplace_back("unverified");
    return flags;
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  const auto threads = run.team_sizes("threads", order);
  const auto strides = run.integers("stride", 32);
  const auto sizes = volumes(run);
  const auto entries = selected(run);
  mm::perf::allow_many_events();
  Counting counting;
  // Only one kernel and one volume are measured at a time, because all at once would exceed the memory.
  std::size_t groups = 0;
  for (const auto* e : entries) groups += e->info.sized ? sizes.size() : 1;
  for (const auto* e : entries)
    for (const auto& [word, bytes] : sizes) {
      std::vector<mm::Point> points;
      for (const int stride : e->info.strided ? strides : std::vector<int>{1})
        for (const int t : threads)
          add_point(run, points, *e, bytes, stride, {order.begin(), order.begin() + t}, counting);
      run.allot(1.0 / static_cast<double>(groups--));
      run.measure(std::move(points));
      run.release_teams();
      if (!e->info.sized) break;
    }
  for (const auto& missing : counting.events.lacking()) {
    std::string names;
    for (const std::string& name : missing.names) names += (names.empty() ? "" : ",") + name;
    run.absent("", {{"counters", names}}, missing.reason, missing.enable);
  }
  for (const auto& [name, points] : counting.missed)
    run.absent("", {{"counters", name}}, "not counted in " + std::to_string(points) + " of the variants",
               "fewer events at once, or more open files (ulimit -n)");
}

const mm::Instrument kernels{kKernels, measure};

}  // namespace

/// bandwidth: data rate between cores and the level of the memory hierarchy that holds the footprint.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/harness/stats.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "instruments/memory/store_diagnosis.hpp"
#include "instruments/memory/stream_workers.hpp"
#include "kernels/stream.hpp"

namespace {

using mm::json;
using mm::stream::StreamArrays;
using mm::stream::StreamTask;
using mm::stream::ThreadMemory;
using mm::stream::WorkerCommand;
using mm::stream::Workers;

constexpr double kBurst_s = 5e-3;

const mm::Description kBandwidth{
    .name = "bandwidth",
    .summary = "data rate of copy, scale, add, triad, read, write and update over footprint and threads",
    .detail =
        "Every thread streams through its own part of the arrays, which it touched first; the footprint is the sum "
        "over all arrays of all threads. Net bytes are counted as in STREAM; gross bytes include the lines that "
        "ordinary stores read first.\n"
        "example: meshmark-probe bandwidth --kernel triad --store ordinary,streaming --threads 1,all --footprint 1GiB",
    .source = "after STREAM: McCalpin (1995); Hager, Wellein: Introduction to HPC (2010), 3.1; XEON 5500 study (2009)",
    .spoils = {"other traffic on the memory controller or in a shared cache",
               "4 KiB pages: prefetchers stop at page ends", "fewer threads than it takes to saturate a memory node",
               "a footprint that fits into an unreported cache"},
    .needs = {},
    .parameters = {mm::choices("kernel", "STREAM kernels", "triad",
                               {"copy", "scale", "add", "triad", "read", "write", "update"}),
                   mm::choices("store", "stores through the caches, or non-temporal stores that bypass them",
                               "ordinary,streaming", {"ordinary", "streaming"}),
                   mm::choices(
                       "isa",
                       "vector instructions; best: the fastest of this processor's, by trials before the first sample "
                       "(condition chosen_isa; within 3 % the widest); all: each of them",
                       "best", {"best", "all", "sse2", "avx2", "avx512", "neon", "sve"}),
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536},
                   mm::choice("fill", "order in which a team fills the CPUs", "cores", {"cores", "spread", "compact"}),
                   {"footprint_bytes",
                    "sum over all arrays of all threads; memory: four times all last-level caches, at least 512 MiB",
                    "B",
                    mm::Kind::sizes,
                    "memory",
                    1024,
                    {}},
                   mm::choices("mode", "threads of one process, or processes with their own memory", "threads",
                               {"threads", "processes"}),
                   {"diagnose",
                    "net rates of another binary, copy=21.4GB,scale=…,add=…,triad=… (per second): determines whether "
                    "it used streaming stores; these kernels are measured, too",
                    "", mm::Kind::text, ""}},
    .metrics = {{"bandwidth_net", "bytes of all operands over time, counted as in STREAM", "B/s", mm::Better::higher},
                {"bandwidth_gross", "the same plus the lines that ordinary stores read first", "B/s",
                 mm::Better::higher},
                {"saturation_threads", "minimum number of threads that reaches 95 % of the best rate", "1",
                 mm::Better::none},
                {"store_ratio", "rates of copy and scale over the rates of add and triad, as another binary reported",
                 "1", mm::Better::none}},
    .identity = {"kernel", "store", "isa", "threads", "cpus", "footprint_bytes", "pages", "memory_node", "fill",
                 "mode"},
    .bytes_per_iteration = 24,
    .flops_per_iteration = 2,
    .kernels =
        [] {
          std::vector<mm::KernelWork> kernels;
          for (const mm::StreamShape& s : mm::kStreamShapes)
            kernels.push_back({std::string(s.name), s.reads, s.writes, s.allocates, s.flops});
          return kernels;
        }(),
};

std::size_t kernel_index(const std::string& name) {
  for (std::size_t k = 0; k < mm::kStreamShapes.size(); ++k)
    if (mm::kStreamShapes[k].name == name) return k;
  return 0;
}

double core_hz() {
  const mm::Ticks begin = mm::ticks();
  mm::keep(mm::dependent_adds(1 << 20));
  return (1 << 20) / mm::seconds(mm::ticks() - begin);
}

struct StreamSetup {
  std::string kernel, store, isa, fill;
  std::size_t footprint;
  mm::Pages pages;
  int node;
};

/// Returns the instruction sets that a value of --isa stands for, narrow to wide.
std::vector<std::string_view> sets_of(const std::string& isa) {
  if (isa != "best") return {isa};
  std::vector<std::string_view> sets = mm::built_isas();
  std::erase_if(sets, [](std::string_view set) { return !mm::has_isa(set); });
  return sets;
}

/// Observes in the processes of a process team what Run observes for threads and their arenas.
void observe_processes(mm::ProcessTeam& processes, const StreamTask& job, const std::vector<int>& cpus,
                       json& observed) {
  const auto huge = processes.run(mm::stream::order_of(WorkerCommand::huge_share, job, 0));
  const auto nodes = processes.run(mm::stream::order_of(WorkerCommand::node, job, 0));
  const auto observed_nodes = mm::distinct(std::vector<int>(nodes.begin(), nodes.end()));
  observed["huge_share"] = *std::min_element(huge.begin(), huge.end());
  observed["observed_node"] =
      observed_nodes.size() == 1 ? json(observed_nodes.front()) : json(mm::cpu_list(observed_nodes));
  observed["observed_cpus"] = mm::cpu_list(cpus);
}

json conditions(const mm::Run& run, const StreamSetup& s, const std::vector<int>& cpus, std::size_t bytes,
                bool processes) {
  return {{"kernel", s.kernel},
          {"store", s.store},
          {"isa", s.isa},
          {"threads", cpus.size()},
          {"cpus", mm::cpu_list(cpus)},
          {"fill", s.fill},
          {"mode", processes ? "processes" : "threads"},
          {"footprint_bytes", bytes},
          {"pages", mm::name(s.pages)},
          {"page_bytes", mm::page_bytes(s.pages)},
          {"memory_node", run.memory_node(s.node)}};
}

/// Adds one point of `cpus`: threads with these shares, or the processes of `processes` if it is not null.
void add_point(mm::Run& run, std::vector<mm::Point>& points, const StreamSetup& s, const std::vector<int>& cpus,
               const std::vector<ThreadMemory>& shares, const std::shared_ptr<mm::ProcessTeam>& processes) {
  const std::size_t index = kernel_index(s.kernel);
  const mm::StreamShape& shape = mm::kStreamShapes[index];
  const auto kernel = static_cast<mm::StreamKernel>(index);
  const auto threads = cpus.size();
  const auto arrays = static_cast<std::size_t>(shape.arrays);
  const std::size_t n = s.footprint / (8 * arrays * threads);
  if (n < 8) {
    run.absent("bandwidth_net", {{"kernel", s.kernel}, {"footprint_bytes", s.footprint}, {"threads", threads}},
               "less than a cache line of each array for each thread", "a larger --footprint");
    return;
  }
  const auto forms = mm::stream::forms_of(kernel, s.store == "streaming", sets_of(s.isa));
  if (forms.empty()) throw std::logic_error("no kernels for " + s.isa);
  const auto form = std::make_shared<mm::stream::KernelForm>(forms.front());
  const auto job = std::make_shared<StreamTask>(
      StreamTask{kernel, form->function, n, kernel == mm::StreamKernel::update ? -1.0 : 3.0});
  const std::size_t bytes = n * 8 * arrays * threads;

  mm::Point p;
  p.conditions = conditions(run, s, cpus, bytes, processes != nullptr);
  p.metrics = {"bandwidth_net", "bandwidth_gross"};
  p.bytes_each = bytes / threads;
  Workers workers;
  if (processes) {
    // The processes work, not our threads: a thread waits for them and must not occupy their CPU.
    p.cpu = cpus[0];
    p.shield = p.timed_inside = false;
    workers = mm::stream::processes_on(processes);
  } else {
    p.team = run.team(cpus);
    for (std::size_t t = 0; t < threads; ++t) p.arenas.push_back(shares[t].arena);
    workers = mm::stream::threads_on(p.team, shares);
  }
  // Write-allocate reads a line from the next level before it is written; within the first-level cache this is no
  // traffic.
  const bool beyond_first = n * 8 * arrays > std::max<std::size_t>(mm::topology().cache_bytes(1), 16 << 10);
  const double net = shape.net() * static_cast<double>(n * threads);
  const double gross =
      net + (s.store == "ordinary" && beyond_first ? shape.allocated() * static_cast<double>(n * threads) : 0);
  const std::string_view widest = forms.front().isa;
  const int vector_bytes = widest == "avx512" ? 64 : widest == "avx2" ? 32 : widest == "sve" ? 256 : 16;
  // One untimed pass brings the caches to their steady state; far beyond their capacity it has no effect.
  const bool needs_warm_up = bytes < std::max<std::size_t>(4 * mm::topology().last_level_bytes(), 256 << 20);
  struct PassProgress {
    std::uint64_t passes = 0;
    bool wrong = false, moved = false, faulted = false;
  };
  const auto progress = std::make_shared<PassProgress>();
  p.prepare = [=] {
    if (progress->passes == 0) {
      if (forms.size() > 1) *form = mm::stream::fastest(forms, *job, workers);
      job->function = form->function;
      progress->passes = mm::iterations_for(kBurst_s, [&](std::uint64_t passes) { return workers.work(*job, passes); });
    }
    if (job->reads_a()) workers.fill(*job);
    if (needs_warm_up) workers.work(*job, kernel == mm::StreamKernel::update ? 2 : 1);
  };
  p.burst = [=] {
    const auto passes = static_cast<double>(progress->passes);
    const double elapsed_s = workers.work(*job, progress->passes);
    if (processes) {
      progress->moved = progress->moved || processes->moved();
      progress->faulted = progress->faulted || processes->faulted();
    }
    progress->wrong = progress->wrong || !workers.correct(*job, progress->passes);
    if (mm::beyond_ports(net * passes / elapsed_s / static_cast<double>(threads), vector_bytes, core_hz))
      throw mm::Failure("the rate exceeds the bandwidth of a core's ports to its first-level cache");
    return mm::Values{net * passes / elapsed_s, gross * passes / elapsed_s};
  };
  p.observe = [=] {
    json observed{{"prefetch_bytes", form->ahead ? 8 * mm::stream::kAhead : 0}};
    if (s.isa == "best") observed["chosen_isa"] = form->isa;
    if (processes) observe_processes(*processes, *job, cpus, observed);
    return observed;
  };
  p.check = [=] {
    std::vector<std::string> flags;
    if (progress->wrong) flags.emplace_back("unverified");
    if (progress->moved) flags.emplace_back("migrated");
    if (progress->faulted) flags.emplace_back("faulted");
    if (processes && s.node >= 0) {
      const auto& nodes = processes->run(mm::stream::order_of(WorkerCommand::node, *job, 0));
      if (std::any_of(nodes.begin(), nodes.end(), [&](double node) { return node != s.node; }))
        flags.emplace_back("misplaced");
    }
    return flags;
  };
  points.push_back(std::move(p));
}

/// For every series over threads, derives the minimum number that reaches 95 % of its best rate.
void derive_saturation(mm::Run& run, const std::vector<mm::Outcome>& outcomes) {
  std::map<std::string, std::vector<const mm::Outcome*>> series;
  for (const mm::Outcome& o : outcomes) {
    if (o.metric != "bandwidth_net") continue;
    std::string key;
    for (const char* k : {"kernel", "store", "isa", "pages", "memory_node", "fill", "mode"})
      key += o.conditions[k].dump() + '|';
    // The footprint is rounded to whole elements per thread, so it differs slightly between teams.
    key += std::to_string(std::lround(std::log2(o.conditions["footprint_bytes"].get<double>()) * 8));
    series[key].push_back(&o);
  }
  for (auto& [key, points] : series) {
    if (points.size() < 3) continue;  // two thread counts do not show saturation
    std::sort(points.begin(), points.end(),
              [](auto* a, auto* b) { return a->conditions["threads"] < b->conditions["threads"]; });
    double best = 0;
    for (const auto* p : points) best = std::max(best, p->value);
    const auto first = std::find_if(points.begin(), points.end(), [&](auto* p) { return p->value >= 0.95 * best; });
    json c;
    for (const char* k : {"kernel", "store", "isa", "pages", "memory_node", "fill", "mode", "footprint_bytes"})
      c[k] = points[0]->conditions[k];
    c["best_net"] = best;
    std::vector<std::string> flags;
    for (const auto* p : points) flags.insert(flags.end(), p->flags.begin(), p->flags.end());
    run.derive("saturation_threads", {(*first)->conditions["threads"].get<double>()}, c, flags,
               "bandwidth_net over " + std::to_string(points.size()) + " thread counts");
  }
}

/// Returns the rates of another binary by kernel, in B/s; an empty map if none are given.
std::map<std::string, double> reported_rates(const mm::Run& run) {
  std::map<std::string, double> rates;
  const std::string text = run.text("diagnose");
  if (text.empty()) return rates;
  for (const std::string& item : mm::split(text, ',')) {
    const auto equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (equals == std::string::npos || (name != "copy" && name != "scale" && name != "add" && name != "triad"))
      run.refuse("diagnose", "found " + mm::quote(item), "copy=RATE, scale=RATE, add=RATE, triad=RATE");
    const auto rate = static_cast<double>(mm::parse_size("diagnose", item.substr(equals + 1)));
    if (rate <= 0) run.refuse("diagnose", "found " + mm::quote(item), "rates above 0");
    rates[name] = rate;
  }
  return rates;
}

/// Compares the rates of another binary with ours, under each set of conditions that has both kinds of stores.
void diagnose(mm::Run& run, const std::map<std::string, double>& reported, const std::vector<mm::Outcome>& outcomes) {
  if (reported.empty()) return;
  std::map<std::string, mm::StoreRates> series;
  for (const mm::Outcome& o : outcomes) {
    if (o.metric != "bandwidth_net" || !reported.contains(o.conditions["kernel"])) continue;
    std::string key;
    for (const char* k : {"isa", "threads", "pages", "memory_node", "fill", "mode"})
      key += o.conditions[k].dump() + '|';
    // Footprints are whole elements of two or three arrays, so they differ slightly between kernels.
    key += std::to_string(std::lround(std::log2(o.conditions["footprint_bytes"].get<double>()) * 8));
    const auto interval = mm::median_interval(o.samples);
    mm::StoreRates& rates = series[key];
    (o.conditions["store"] == "streaming" ? rates.streaming : rates.ordinary)[o.conditions["kernel"]] =
        mm::MedianRate{o.value, interval ? interval->first : 0, interval ? interval->second : 0};
    rates.flags.insert(o.flags.begin(), o.flags.end());
  }
  std::vector<mm::StoreDiagnosis> diagnoses;
  std::set<std::string> flags;
  for (const auto& [key, rates] : series) {
    if (rates.ordinary.empty() || rates.streaming.empty()) continue;
    diagnoses.push_back(mm::diagnose_stores(reported, rates));
    flags.insert(rates.flags.begin(), rates.flags.end());
  }
  const mm::StoreDiagnosis diagnosis = mm::common_diagnosis(diagnoses);
  json c{{"verdict", diagnosis.verdict}, {"reason", diagnosis.reason}, {"conditions_compared", diagnoses.size()}};
  for (const auto& [kernel, rate] : reported) c["reported_" + kernel] = rate;
  for (const auto& [name, ratio] :
       {std::pair{"ordinary", diagnosis.ordinary}, std::pair{"streaming", diagnosis.streaming}})
    if (ratio.value > 0) {
      c[std::string(name) + "_low"] = ratio.low;
      c[std::string(name) + "_high"] = ratio.high;
    }
  if (diagnosis.other.value <= 0)
    return run.absent("store_ratio", c, diagnosis.reason,
                      diagnoses.empty() ? "--store ordinary,streaming, and a larger --budget"
                                        : "--diagnose with copy or scale, and add or triad");
  run.derive("store_ratio", {diagnosis.other.value}, c, {flags.begin(), flags.end()},
             "reported rates, beside our own with both kinds of stores");
}

/// Returns the kernels to measure: the requested ones, and the ones whose rates are to be compared.
std::vector<std::string> kernels_of(const mm::Run& run, const std::map<std::string, double>& reported) {
  std::vector<std::string> kernels = run.choices("kernel");
  if (!reported.empty() && !run.given("kernel")) kernels.clear();
  for (const auto& [kernel, rate] : reported)
    if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) kernels.push_back(kernel);
  return kernels;
}

std::vector<std::string> isas_of(mm::Run& run) {
  std::vector<std::string> isas;
  for (const std::string& name : run.choices("isa")) {
    if (name == "all") {
      for (std::string_view isa : mm::built_isas())
        if (mm::has_isa(isa)) isas.emplace_back(isa);
    } else if (name == "best" || (mm::has_isa(name) && mm::stream_table(name) != nullptr))
      isas.push_back(name);
    else
      run.absent("bandwidth_net", {{"isa", name}}, "this processor does not support " + name);
  }
  return isas;
}

/// The parameters that are swept for each page size and each node.
struct StreamSweep {
  std::string fill;
  std::vector<int> order, threads;  ///< CPUs in fill order; numbers of threads
  std::vector<std::string> isas, kernels, stores;
  std::vector<std::size_t> footprints;
};

/// Page size, node, and the largest footprint that the budget allows.
struct MemoryGroup {
  mm::Pages pages;
  int node;
  std::size_t largest = 0;
};

/// Returns the largest footprint that can be touched in half of this share of the budget; at least the smallest one.
std::size_t affordable_footprint(const mm::Run& run, const StreamSweep& sweep, mm::Pages pages, double share) {
  const std::size_t affordable = run.affordable_bytes(pages, 0.5 * share);
  std::size_t largest = sweep.footprints.front();
  for (const std::size_t f : sweep.footprints)
    if (StreamArrays::arena_bytes(f) <= affordable) largest = f;
  return largest;
}

/// Adds the points of the first `t` CPUs, from the largest footprint to the smallest.
void add_points(mm::Run& run, std::vector<mm::Point>& points, const StreamSweep& sweep, const MemoryGroup& group, int t,
                const std::vector<ThreadMemory>& shares, const std::shared_ptr<mm::ProcessTeam>& processes) {
  const std::vector<int> cpus(sweep.order.begin(), sweep.order.begin() + t);
  for (auto f = sweep.footprints.rbegin(); f != sweep.footprints.rend(); ++f)
    for (const std::string& isa : sweep.isas)
      for (const std::string& kernel : sweep.kernels)
        for (const std::string& store : sweep.stores) {
          if (kernel == "read" && store == "streaming") continue;  // it has no stores
          add_point(run, points, {kernel, store, isa, sweep.fill, *f, group.pages, group.node}, cpus, shares,
                    processes);
          if (*f > group.largest && !points.empty()) points.back().missing = run.out_of_budget();
        }
}

/// Returns the memory of each thread, touched. Every team with a t-th thread uses the same arena for it, so the
/// smallest such team determines the size.
std::vector<ThreadMemory> touch_shares(mm::Run& run, const StreamSweep& sweep, const MemoryGroup& group) {
  std::vector<ThreadMemory> shares;
  for (int t = 0; t < *std::max_element(sweep.threads.begin(), sweep.threads.end()); ++t) {
    const int smallest = *std::find_if(sweep.threads.begin(), sweep.threads.end(), [&](int x) { return x > t; });
    const std::size_t bytes = group.largest / static_cast<std::size_t>(smallest);
    const int cpu = sweep.order[static_cast<std::size_t>(t)];
    auto arena = run.arena(StreamArrays::arena_bytes(bytes), group.pages, group.node, cpu, "bandwidth_net",
                           {{"footprint_bytes", group.largest}, {"pages", mm::name(group.pages)}, {"threads", t + 1}});
    if (!arena) break;
    const StreamArrays part(arena->data(), bytes);
    run.team({cpu})->run([&](int) { part.fill(); });
    shares.push_back({std::move(arena), part});
  }
  return shares;
}

std::vector<mm::Outcome> measure_threads(mm::Run& run, const StreamSweep& sweep, const MemoryGroup& group) {
  std::vector<mm::Point> points;
  {
    const std::vector<ThreadMemory> shares = touch_shares(run, sweep, group);  // the points keep the arenas they need
    for (const int t : sweep.threads)
      if (static_cast<std::size_t>(t) <= shares.size()) add_points(run, points, sweep, group, t, shares, nullptr);
  }
  return run.measure(std::move(points));
}

/// Measures one team of `count` processes, whose memory is not shared with others.
std::vector<mm::Outcome> measure_processes(mm::Run& run, const StreamSweep& sweep, const MemoryGroup& group,
                                           int count) {
  const std::vector<int> cpus(sweep.order.begin(), sweep.order.begin() + count);
  const std::size_t bytes = group.largest / cpus.size();
  const mm::Policy policy = group.node >= 0                          ? mm::Policy::node
                            : run.policy() == mm::Policy::interleave ? mm::Policy::interleave
                                                                     : mm::Policy::local;
  const mm::MemoryRequest request{StreamArrays::arena_bytes(bytes), group.pages, policy, group.node, -1};
  const json conditions{{"mode", "processes"}, {"threads", count}};
  try {
    if (request.bytes * cpus.size() > mm::memory_available())
      throw mm::Absent("memory too small for " + std::to_string(cpus.size()) + " processes", "a smaller --footprint");
    const auto processes =
        std::make_shared<mm::ProcessTeam>(cpus, [&](int) { return mm::stream::serve(request, bytes); });
    std::vector<mm::Point> points;
    add_points(run, points, sweep, group, count, {}, processes);
    return run.measure(std::move(points));
  } catch (const mm::Absent& error) {
    run.absent("bandwidth_net", conditions, error.what(), error.enable);
  } catch (const mm::Failure& error) {  // an allocation failure in a process arrives as text
    run.absent("bandwidth_net", conditions, error.what());
  }
  return {};
}

void measure(mm::Run& run) {
  const auto reported = reported_rates(run);
  const std::string fill = run.text("fill");
  const std::vector<int> order = mm::fill_order(fill, run.cpus());
  const auto threads = run.team_sizes("threads", order);
  const StreamSweep sweep{fill,
                          order,
                          threads,
                          isas_of(run),
                          kernels_of(run, reported),
                          run.choices("store"),
                          run.sizes("footprint_bytes")};
  const std::vector<int> nodes = run.placed_nodes();
  std::vector<MemoryGroup> groups;
  for (const mm::Pages pages : run.pages())
    for (const int node : nodes) groups.push_back({pages, node});

  const auto modes = run.choices("mode");
  const bool in_threads = std::find(modes.begin(), modes.end(), "threads") != modes.end();
  const bool in_processes = std::find(modes.begin(), modes.end(), "processes") != modes.end();
  // All teams of threads are measured together, each team of processes alone.
  std::size_t slices = groups.size() * ((in_threads ? 1 : 0) + (in_processes ? threads.size() : 0));
  std::vector<mm::Outcome> outcomes;
  const auto take = [&](std::vector<mm::Outcome> group_outcomes) {
    for (mm::Outcome& o : group_outcomes) outcomes.push_back(std::move(o));
    --slices;
  };
  for (MemoryGroup& group : groups) {
    const double share = 1.0 / static_cast<double>(slices);
    run.allot(share);
    group.largest = affordable_footprint(run, sweep, group.pages, share);
    if (in_threads) take(measure_threads(run, sweep, group));
    for (std::size_t i = 0; in_processes && i < threads.size(); ++i) {
      run.allot(1.0 / static_cast<double>(slices));
      take(measure_processes(run, sweep, group, threads[i]));
    }
  }
  derive_saturation(run, outcomes);
  diagnose(run, reported, outcomes);
}

const mm::Instrument bandwidth{kBandwidth, measure};

}  // namespace

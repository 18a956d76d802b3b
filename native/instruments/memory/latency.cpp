/// latency: the cost of a dependent load, over footprint and stride, page size, memory node and co-running chasers.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/harness/stats.hpp"
#include "base/topology/topology.hpp"
#include "instruments/memory/memory_levels.hpp"
#include "kernels/chase.hpp"

namespace {

using mm::json;

constexpr std::size_t kNursery = std::size_t{64} << 20;   // memory in which small rings move between samples
constexpr double kPreparing = 0.5;                        // maximum share of the budget for touching memory
constexpr std::size_t kSmallRing = std::size_t{1} << 20;  // rings up to this size are rebuilt elsewhere for each sample
constexpr double kBurst_s = 4e-3;
constexpr int kCacheLevels = 4;  // the most that any machine has

const mm::Description kLatency{
    .name = "latency",
    .summary = "load-to-use latency of dependent loads over footprint and stride",
    .detail =
        "A pointer chase over one ring of all slots of the footprint; each load waits for the one before it. Levels of "
        "the memory hierarchy are detected as plateaus of the curve.\n"
        "example: meshmark-probe latency --footprint 4KiB..1GiB --pages 4KiB,thp --cpus 0",
    .source = "McVoy, Staelin: lmbench (USENIX 1996), section 6.2; GS1280 study (2003), figures 4, 5 and 13",
    .spoils = {"other processes that share a cache, a memory controller or the core",
               "a page size other than the requested one",
               "prefetchers, if the order of slots is predictable (pattern stride, a small locality)",
               "the page tables of a virtual machine: with 4 KiB pages they are part of the latency"},
    .needs = {},
    .parameters = {{"footprint_bytes", "memory the ring spans", "B", mm::Kind::sizes, "2KiB..1GiB", 128, {}},
                   {"stride_bytes", "distance between slots", "B", mm::Kind::sizes, "64", 8, 1 << 30},
                   mm::choices("pattern", "order of slots: one random cycle, or constant stride", "random",
                               {"random", "stride"}),
                   {"locality_bytes",
                    "size of the blocks that the random cycle completes one after the other; 0: one block, the whole "
                    "footprint. With 8KiB, loads stay in an open DRAM page; with 0, almost every load opens another "
                    "page",
                    "B",
                    mm::Kind::size,
                    "0",
                    0,
                    {}},
                   {"processes",
                    "number of CPUs that chase at the same time, each along its own ring. With 1, the CPUs of --cpus "
                    "(default: the first allowed CPU) are measured one after the other",
                    "", mm::Kind::integers, "1", 1, 4096}},
    .metrics = {{"load_latency", "time per dependent load", "s", mm::Better::lower},
                {"level_latency", "latency of a plateau of the curve", "s", mm::Better::lower},
                {"level_capacity", "largest footprint of a plateau", "B", mm::Better::none}},
    .identity = {"footprint_bytes", "stride_bytes", "pattern", "locality_bytes", "page_bytes", "pages", "cpu",
                 "memory_node", "processes"},
    .bytes_per_iteration = 8,
};

/// The ring of one chaser and its current position.
struct Chaser {
  std::byte* region = nullptr;  // the chaser's part of an arena
  std::size_t region_bytes = 0;
  mm::Link* at = nullptr;
};

struct RingShape {
  std::size_t footprint, stride, locality;
  bool random;
};

/// Makes a random cycle of blocks, each a random path through all slots of the block: makes a random ring of every
/// block, then cuts and joins the rings. Returns the first link.
mm::Link* make_local_ring(std::byte* base, const RingShape& s, std::uint64_t seed) {
  const std::size_t per_block = std::max<std::size_t>(2, s.locality / s.stride);
  const std::size_t blocks = s.footprint / s.stride / per_block;
  if (blocks < 2) return mm::make_random_ring(base, s.footprint / s.stride, s.stride, seed);
  std::vector<std::size_t> order(blocks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  mm::SplitMix random{seed};
  for (std::size_t i = blocks - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  mm::Link *first = nullptr, *tail = nullptr;
  for (std::size_t block : order) {
    mm::Link* head = mm::make_random_ring(base + block * per_block * s.stride, per_block, s.stride, random());
    mm::Link* last = head;
    while (last->next != head) last = last->next;
    if (tail != nullptr) tail->next = head;
    if (first == nullptr) first = head;
    tail = last;
  }
  tail->next = first;
  return first;
}

mm::Link* make_ring(std::byte* base, const RingShape& s, std::uint64_t seed) {
  const std::size_t slots = s.footprint / s.stride;
  if (!s.random) return mm::make_stride_ring(base, slots, s.stride);
  if (s.locality > 0) return make_local_ring(base, s, seed);
  return mm::make_random_ring(base, slots, s.stride, seed);
}

/// Builds the ring on first use, and brings the caches to the state after a long pointer chase. Small rings are rebuilt
/// every time at another place in their region, so that samples cover many page colourings.
void warm(Chaser& c, const RingShape& s, std::uint64_t seed, std::size_t last_level) {
  const std::size_t slots = s.footprint / s.stride;
  if (c.at == nullptr || (s.footprint <= kSmallRing && c.region_bytes > s.footprint)) {
    mm::SplitMix random{seed};
    const std::size_t room = (c.region_bytes - s.footprint) / 4096 + 1;
    std::byte* base = c.region + (s.footprint <= kSmallRing ? random.below(room) * 4096 : 0);
    c.at = make_ring(base, s, random());
  }
  // If the ring may fit into a cache, chase it once completely. If it is larger, load as many lines as the last-level
  // cache holds: as after a long chase, the caches then hold only lines that the chase reaches again after nearly a
  // full turn. The time is limited, because reported cache sizes can be wrong.
  const std::size_t loads = s.footprint <= 4 * last_level ? slots : last_level / 64;
  const double end = mm::wall_s() + 0.15;
  for (std::size_t first = 0; first < loads && mm::wall_s() < end; first += 4096)
    c.at = mm::walk(c.at, std::min<std::size_t>(4096, loads - first));
}

struct ChaserGroup {
  mm::Pages pages;
  int node;
  std::vector<std::vector<int>> teams;  // the CPUs of the chasers of each team
};

/// The parameters that are swept in each group.
struct ChaseSweep {
  std::vector<std::size_t> footprints, strides;
  std::vector<std::string> patterns;
  std::size_t locality;
};

/// The memory of a team's chasers: a nursery for the small rings of each chaser, and an arena for every large
/// footprint, so that all rings exist while the rounds visit them.
class Arenas {
 public:
  /// Touches memory from small to large footprints, and skips the footprints that could not be touched before
  /// `until_s`.
  Arenas(mm::Run& run, const ChaserGroup& group, const std::vector<int>& cpus, const ChaseSweep& sweep, double until_s)
      : run_(run), group_(group), cpus_(cpus), begun_s_(mm::wall_s()), until_s_(until_s) {
    make(kSmallRing, kNursery);
    if (missing(kSmallRing)) return;
    for (const std::size_t f : sweep.footprints)
      if (f > kSmallRing) make(f, f * sweep.strides.size() * sweep.patterns.size());
  }

  /// Returns why there is no memory for a footprint, or nullopt if there is memory.
  std::optional<mm::Absent> missing(std::size_t footprint) const {
    const auto entry = missing_.find(footprint);
    return entry == missing_.end() ? std::nullopt : std::optional(entry->second);
  }
  const std::vector<std::shared_ptr<mm::Arena>>& of(std::size_t footprint) { return arenas_[key(footprint)]; }
  /// Returns one chaser per CPU, with memory for its ring. Rings of a large footprint get the next unused part of its
  /// arena in each call; small rings get the whole nursery, since they are rebuilt for each sample.
  std::shared_ptr<std::vector<Chaser>> chasers(std::size_t footprint) {
    auto chasers = std::make_shared<std::vector<Chaser>>(cpus_.size());
    const bool small = footprint <= kSmallRing;
    const auto& arenas = of(footprint);
    for (std::size_t i = 0; i < arenas.size(); ++i) {
      (*chasers)[i].region = arenas[i]->data() + (small ? 0 : used_[footprint]);
      (*chasers)[i].region_bytes = small ? kNursery : footprint;
    }
    used_[footprint] += footprint;
    return chasers;
  }

 private:
  static std::size_t key(std::size_t footprint) { return std::max(footprint, kSmallRing); }

  void make(std::size_t footprint, std::size_t bytes) {
    const double rate = static_cast<double>(touched_) / std::max(mm::wall_s() - begun_s_, 1e-6);
    const std::size_t needed_bytes = bytes * cpus_.size();
    // The nursery and the first other arena are always allocated, so that there is a result.
    if (arenas_.size() > 1 && mm::wall_s() + static_cast<double>(needed_bytes) / rate > until_s_) {
      missing_.emplace(footprint, run_.out_of_budget());
      return;
    }
    try {
      std::vector<std::shared_ptr<mm::Arena>> team_arenas;
      const mm::Policy policy = group_.node >= 0 ? mm::Policy::node : run_.policy();
      for (const int cpu : cpus_)
        team_arenas.push_back(mm::Arena::make({bytes, group_.pages, policy, group_.node, cpu}));
      arenas_[footprint] = std::move(team_arenas);
      touched_ += needed_bytes;
    } catch (const mm::Absent& error) {
      missing_.emplace(footprint, error);
    }
  }

  const mm::Run& run_;
  const ChaserGroup& group_;
  const std::vector<int>& cpus_;
  const double begun_s_, until_s_;
  std::map<std::size_t, std::vector<std::shared_ptr<mm::Arena>>> arenas_;  ///< by footprint; kSmallRing: the nursery
  std::map<std::size_t, mm::Absent> missing_;
  std::map<std::size_t, std::size_t> used_;  ///< bytes used of the arena of a footprint
  std::size_t touched_ = 0;
};

/// Follows `loads` links with all chasers of a team. Returns the time per load in s, as the mean over the chasers.
double chase(mm::Team& team, std::vector<Chaser>& chasers, std::uint64_t loads) {
  std::vector<double> times_s(chasers.size());
  team.run([&](int rank) {
    auto& c = chasers[static_cast<std::size_t>(rank)];
    mm::Link* link = c.at;
    const mm::Ticks begin = mm::ticks();
    link = mm::walk(link, loads);
    mm::keep(link);
    times_s[static_cast<std::size_t>(rank)] = mm::seconds(mm::ticks() - begin);
    c.at = link;
  });
  return std::accumulate(times_s.begin(), times_s.end(), 0.0) / static_cast<double>(times_s.size()) /
         static_cast<double>(loads);
}

/// Returns the point of a shape. The point holds the arenas, so that no chaser outlives its ring.
mm::Point point_of(const std::shared_ptr<mm::Team>& team, const std::shared_ptr<std::vector<Chaser>>& chasers,
                   const std::vector<std::shared_ptr<mm::Arena>>& arenas, const RingShape& shape,
                   std::uint64_t first_seed) {
  const std::size_t last_level = std::max<std::size_t>(mm::topology().last_level_bytes(), std::size_t{8} << 20);
  const auto loads = std::make_shared<std::uint64_t>(0), seed = std::make_shared<std::uint64_t>(first_seed);
  mm::Point p;
  p.metrics = {"load_latency"};
  p.team = team;
  p.arenas = arenas;
  p.prepare = [=] {
    const std::uint64_t visit_seed = (*seed)++ * 1000;
    team->run([&](int rank) {
      warm((*chasers)[static_cast<std::size_t>(rank)], shape, visit_seed + static_cast<std::uint64_t>(rank),
           last_level);
    });
    const auto batch_s = [&](std::uint64_t n) {
      chase(*team, *chasers, n);
      return team->elapsed_s();
    };
    if (*loads == 0) *loads = (2 * mm::iterations_for(kBurst_s / 2, batch_s, 1024) + 15) / 16 * 16;
  };
  p.burst = [team, chasers, arenas, loads] {
    const double latency = chase(*team, *chasers, *loads);
    const double clock_s = 0.15e-9;  // no core clocks above 6.7 GHz
    if (latency < clock_s) throw mm::Failure("a load took less than one clock cycle: the walk was not performed");
    return mm::Values{latency};
  };
  return p;
}

/// Adds the points of one team.
void add_points(mm::Run& run, std::vector<mm::Point>& points, const ChaseSweep& sweep, const ChaserGroup& group,
                const std::vector<int>& cpus, double until_s) {
  const auto team = run.team(cpus);
  Arenas arenas(run, group, cpus, sweep, until_s);
  if (const auto error = arenas.missing(kSmallRing)) {
    run.absent(
        "load_latency",
        {{"pages", mm::name(group.pages)}, {"memory_node", run.memory_node(group.node)}, {"processes", cpus.size()}},
        error->what(), error->enable);
    return;
  }
  for (auto f = sweep.footprints.rbegin(); f != sweep.footprints.rend(); ++f)
    for (const std::size_t stride : sweep.strides)
      for (const std::string& pattern : sweep.patterns) {
        const RingShape shape{*f / stride * stride, stride, sweep.locality, pattern == "random"};
        const auto error = arenas.missing(*f);
        if (stride % sizeof(mm::Link) != 0)
          run.refuse("stride_bytes", "found " + std::to_string(stride), "multiples of 8");
        if (shape.footprint / stride < 2) continue;  // a ring needs two slots
        if (shape.footprint / stride > std::uint64_t{1} << 32 && !error)
          run.refuse("footprint_bytes", "found " + std::to_string(*f), "at most 2^32 strides");
        mm::Point p = point_of(team, arenas.chasers(*f), arenas.of(*f), shape, run.seed());
        p.conditions = {{"footprint_bytes", shape.footprint},
                        {"stride_bytes", stride},
                        {"pattern", pattern},
                        {"locality_bytes", sweep.locality},
                        {"page_bytes", mm::page_bytes(group.pages)},
                        {"pages", mm::name(group.pages)},
                        {"cpu", cpus[0]},
                        {"memory_node", run.memory_node(group.node)},
                        {"processes", cpus.size()},
                        {"state", "clean"}};
        p.bytes_each = shape.footprint;
        p.missing = error;
        points.push_back(std::move(p));
      }
}

/// Measures one group. `share` is the part of the remaining budget that the group may use.
std::vector<mm::Outcome> measure_group(mm::Run& run, const ChaserGroup& group, double share) {
  const ChaseSweep sweep{run.sizes("footprint_bytes"), run.sizes("stride_bytes"), run.choices("pattern"),
                         run.bytes("locality_bytes")};
  std::vector<mm::Point> points;
  for (const std::vector<int>& cpus : group.teams) {
    const double until_s = mm::wall_s() + kPreparing * share * run.left_s();
    add_points(run, points, sweep, group, cpus, until_s);
  }
  return run.measure(std::move(points));
}

/// Derives the levels, from small to large, of the curve of a single chaser in random order.
void derive_levels(mm::Run& run, std::vector<mm::Outcome>& outcomes) {
  std::map<std::string, std::vector<const mm::Outcome*>> curves;
  for (const mm::Outcome& o : outcomes) {
    if (o.conditions["processes"] != 1 || o.conditions["pattern"] != "random" || o.conditions["locality_bytes"] != 0)
      continue;
    std::string curve;
    for (const char* key : {"pages", "memory_node", "stride_bytes", "cpu"}) curve += o.conditions[key].dump() + '|';
    curves[curve].push_back(&o);
  }
  for (auto& [name, curve] : curves) {
    if (curve.size() < 6) continue;  // too few footprints to detect levels
    std::sort(curve.begin(), curve.end(),
              [](auto* a, auto* b) { return a->conditions["footprint_bytes"] < b->conditions["footprint_bytes"]; });
    std::vector<std::size_t> footprints, caches;
    std::vector<double> latencies;
    for (const mm::Outcome* o : curve) {
      footprints.push_back(o->conditions["footprint_bytes"].get<std::size_t>());
      latencies.push_back(o->value);
    }
    for (int level = 1; level <= kCacheLevels; ++level) caches.push_back(mm::topology().cache_bytes(level));
    for (const auto& [plateau, level, memory, end_is_seen] : mm::memory_levels(footprints, latencies, caches)) {
      json c;
      for (const char* key : {"stride_bytes", "pattern", "page_bytes", "pages", "cpu", "memory_node"})
        c[key] = curve[0]->conditions[key];
      c["level"] = level;
      c["kind"] = memory ? "memory" : "cache";
      c["from_bytes"] = footprints[plateau.first];
      c["to_bytes"] = footprints[plateau.last];
      const std::size_t reported = memory ? 0 : mm::topology().cache_bytes(level);
      c["claimed_bytes"] = reported > 0 ? json(reported) : json(nullptr);
      std::vector<double> samples;
      std::vector<std::string> flags;
      for (std::size_t i = plateau.first; i <= plateau.last; ++i) {
        samples.insert(samples.end(), curve[i]->samples.begin(), curve[i]->samples.end());
        flags.insert(flags.end(), curve[i]->flags.begin(), curve[i]->flags.end());
      }
      const std::string source = "load_latency of " + std::to_string(plateau.last - plateau.first + 1) + " footprints";
      run.derive("level_latency", samples, c, flags, source);
      if (end_is_seen) {
        c["next_bytes"] = footprints[plateau.last + 1];  // the knee is between the two
        run.derive("level_capacity", {static_cast<double>(footprints[plateau.last])}, c, flags, source);
      }
    }
  }
}

/// Returns sets of teams of chasers. The teams of a set are measured in the same rounds, so all their memory exists at
/// the same time. Sets are measured one after the other, which limits the memory. For --processes 1, each CPU of
/// --cpus gets a team of one chaser, so that one command measures every CPU with every node.
std::vector<std::vector<std::vector<int>>> team_sets(const mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  std::vector<std::vector<std::vector<int>>> sets(1);
  bool single = false;
  for (const int processes : run.team_sizes("processes", order)) {
    sets[0].emplace_back(order.begin(), order.begin() + processes);
    single = single || processes == 1;
  }
  if (single && run.given("cpus"))
    for (std::size_t i = 1; i < order.size(); ++i) sets.push_back({{order[i]}});
  return sets;
}

void measure(mm::Run& run) {
  std::vector<int> nodes = run.memory_nodes();
  if (nodes.empty()) {
    if (run.policy() == mm::Policy::interleave)
      nodes = {-1};
    else
      nodes = mm::topology().memory_nodes;
  }
  const auto sets = team_sets(run);
  std::vector<ChaserGroup> groups;
  for (mm::Pages pages : run.pages())
    for (int node : nodes)
      for (const auto& teams : sets) groups.push_back({pages, node, teams});
  std::vector<mm::Outcome> outcomes;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double share = 1.0 / static_cast<double>(groups.size() - i);
    run.allot(share);
    for (mm::Outcome& o : measure_group(run, groups[i], share)) outcomes.push_back(std::move(o));
  }
  derive_levels(run, outcomes);
}

const mm::Instrument latency{kLatency, measure};

}  // namespace

/// prefetch: the time to read lines in order or at random, by the distance of a software prefetch.
#include <algorithm>
#include <numeric>
#include <random>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"

namespace {

using mm::json;

const mm::Description kPrefetch{
    .name = "prefetch",
    .summary = "time to read a cache line in order or at random, by the distance of a software prefetch",
    .detail =
        "Each access reads a whole line of 64 B. sequence: one line after the other; gather: in a random order that is "
        "known in advance, as with an index array, which is read too (4 B per access). Before each access, the line "
        "that is read `distance` accesses later is prefetched into all caches; 0: none. Addresses do not depend on "
        "data, so the processor already overlaps accesses as far as its out-of-order window reaches: the best distance "
        "shows "
        "what a prefetch adds. Every thread reads its own part of the memory.\n"
        "example: meshmark-probe prefetch --access gather --distance 0,4,16,64 --threads 1,all",
    .source = "Lee, Kim, Vuduc, When Prefetching Works, When It Doesn't, and Why, ACM TACO 9 (2012)",
    .spoils = {"other traffic on the memory controller", "pages: with 4 KiB pages most random accesses miss the TLB"},
    .needs = {},
    .parameters = {{"footprint_bytes",
                    "memory of all threads; memory: four times all last-level caches, at least 512 MiB",
                    "B",
                    mm::Kind::sizes,
                    "memory",
                    65536,
                    {}},
                   mm::choices("access", "order of the lines", "sequence,gather", {"sequence", "gather"}),
                   {"distance", "accesses from a prefetch to its use, a list; 0: no prefetch", "", mm::Kind::integers,
                    "0,1,2,4,8,16,32,64", 0, 1024},
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"access_time", "time per access and thread", "s", mm::Better::lower},
                {"bandwidth", "bytes of lines over time, of all threads", "B/s", mm::Better::higher}},
    .identity = {"footprint_bytes", "access", "distance", "threads", "pages", "memory_node"},
    .bytes_per_iteration = 64,
};

constexpr std::size_t kWords = 8, kFarthest = 1024;  // words per line; longest distance of a prefetch
constexpr std::size_t kVerified = 1 << 16;           // accesses verified per thread

/// Returns the sum of the words of `count` lines from position `first` of an order.
template <bool kGather, bool kAhead>
[[gnu::noinline]] std::uint64_t sum(const std::uint64_t* words, const std::uint32_t* order, std::size_t first,
                                    std::size_t count, std::size_t distance) {
  const auto line = [=](std::size_t i) { return words + kWords * (kGather ? order[i] : i); };
  std::uint64_t total = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    if (kAhead) __builtin_prefetch(line(i + distance));
    const std::uint64_t* const w = line(i);
    for (std::size_t k = 0; k < kWords; ++k) total += w[k];
  }
  return total;
}

/// The memory of one footprint, page size and node. Word i has the value i.
struct LineArray {
  std::shared_ptr<mm::Arena> arena;
  std::uint64_t* words;
  std::size_t lines;
};

/// A random order of the lines of each thread, one thread after the other. The entries after the last line repeat the
/// first ones.
using Order = std::vector<std::uint32_t>;

Order random_order(std::size_t lines, mm::Team& team, std::uint64_t seed) {
  Order order(lines + kFarthest);
  std::iota(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(lines), 0);
  const auto threads = static_cast<std::size_t>(team.size());
  team.run([&](int rank) {  // each thread shuffles its own part, since a large order takes seconds
    const auto t = static_cast<std::size_t>(rank);
    std::mt19937_64 random(seed * threads + t);
    std::shuffle(order.begin() + static_cast<std::ptrdiff_t>(lines * t / threads),
                 order.begin() + static_cast<std::ptrdiff_t>(lines * (t + 1) / threads), random);
  });
  for (std::size_t i = 0; i < kFarthest; ++i) order[lines + i] = order[i % lines];
  return order;
}

struct AccessSetup {
  std::string access;
  std::size_t distance;
  std::vector<int> cpus;
};

void add_point(mm::Run& run, std::vector<mm::Point>& points, const LineArray& memory,
               const std::shared_ptr<const Order>& order, const AccessSetup& s, const json& memory_node) {
  const auto team = run.team(s.cpus);
  const std::size_t threads = s.cpus.size();
  const bool gather = s.access == "gather", ahead = s.distance > 0;
  const auto f = gather ? (ahead ? sum<true, true> : sum<true, false>) : (ahead ? sum<false, true> : sum<false, false>);
  struct SumState {
    std::size_t each = 0, cursor = 0;
    bool wrong = false;
  };
  const auto state = std::make_shared<SumState>();
  const std::uint32_t* const indices = order->data();
  const std::uint64_t* const words = memory.words;
  const std::size_t lines = memory.lines, min_lines = lines / threads;
  // Makes `accesses` on every thread, starting where the last ones ended.
  const auto work = [=](std::size_t accesses) {
    team->run([&](int rank) {
      const std::size_t part = lines * static_cast<std::size_t>(rank) / threads;
      for (std::size_t remaining = accesses, position = state->cursor; remaining > 0; position = 0) {
        const std::size_t n = std::min(remaining, min_lines - position);
        mm::keep(f(words, indices, part + position, n, s.distance));
        remaining -= n;
      }
    });
    state->cursor = (state->cursor + accesses) % min_lines;
    return team->elapsed_s();
  };
  mm::Point p;
  p.conditions = {{"footprint_bytes", lines * kWords * 8},
                  {"access", s.access},
                  {"distance", s.distance},
                  {"threads", threads},
                  {"pages", mm::name(memory.arena->request().pages)},
                  {"page_bytes", mm::page_bytes(memory.arena->request().pages)},
                  {"memory_node", memory_node}};
  p.metrics = {"access_time", "bandwidth"};
  p.team = team;
  p.arenas = {memory.arena};
  p.width_of_first_only = true;
  p.prepare = [=] {
    if (state->each == 0) state->each = mm::iterations_for(8e-3, [=](std::uint64_t n) { return work(n); }, 64);
  };
  p.burst = [=] {
    const double each_s = work(state->each) / static_cast<double>(state->each);
    return mm::Values{each_s, 8.0 * kWords * static_cast<double>(threads) / each_s};
  };
  // Only the start of every thread's part is verified, since a pass over all of a large footprint would take longer
  // than its samples.
  p.check = [=, owned_order = order]() -> std::vector<std::string> {
    std::vector<char> correct(threads);
    team->run([&](int rank) {
      const auto t = static_cast<std::size_t>(rank);
      const std::size_t first = lines * t / threads;
      const std::size_t count = std::min(lines * (t + 1) / threads - first, kVerified);
      std::uint64_t expected = 0;
      for (std::size_t i = first; i < first + count; ++i)
        expected += kWords * kWords * (gather ? (*owned_order)[i] : i) + kWords * (kWords - 1) / 2;
      correct[t] = f(words, owned_order->data(), first, count, s.distance) == expected ? 1 : 0;
    });
    const bool all_correct = std::all_of(correct.begin(), correct.end(), [](char flag) { return flag != 0; });
    return all_correct ? std::vector<std::string>{} : std::vector<std::string>{"unverified"};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> fill = mm::fill_order("cores", run.cpus());
  const auto threads = run.team_sizes("threads", fill);
  const auto distances = run.integers("distance", 1024);
  const std::vector<int> nodes = run.placed_nodes();
  std::vector<mm::Point> points;
  for (const std::size_t bytes : run.sizes("footprint_bytes"))
    for (const mm::Pages pages : run.pages())
      for (const int node : nodes) {
        const std::size_t lines = bytes / (8 * kWords);
        const json memory_node = run.memory_node(node);
        const auto arena = run.arena((lines + kFarthest) * 8 * kWords, pages, node, fill[0], "access_time",
                                     {{"footprint_bytes", bytes}, {"pages", mm::name(pages)}});
        if (!arena) continue;
        const LineArray memory{arena, arena->as<std::uint64_t>().data(), lines};
        for (std::size_t i = 0; i < (lines + kFarthest) * kWords; ++i) memory.words[i] = i;
        for (const int t : threads) {
          const auto order = std::make_shared<const Order>(
              random_order(lines, *run.team({fill.begin(), fill.begin() + t}), run.seed()));
          run.beat("order of accesses");
          for (const std::string& access : run.choices("access"))
            for (const int distance : distances)
              add_point(run, points, memory, order,
                        {access, static_cast<std::size_t>(distance), {fill.begin(), fill.begin() + t}}, memory_node);
        }
      }
  run.measure(std::move(points));
}

const mm::Instrument prefetch{kPrefetch, measure};

}  // namespace

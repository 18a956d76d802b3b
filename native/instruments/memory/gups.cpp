/// gups: random updates of a table, by its size, page size and number of threads.
#include <algorithm>
#include <bit>

#include "base/clock.hpp"
#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "kernels/gups.hpp"

namespace {

using mm::json;

const mm::Description kGups{
    .name = "gups",
    .summary = "rate of random updates of a table of 64-bit words",
    .detail =
        "table[x & mask] ^= x over HPCC's random stream, each thread from a different position. plain: one update "
        "after the other; ahead: the same with the lines of the next 32 updates prefetched. At the end all updates are "
        "repeated, which must restore the initial table. Any wrong word with one thread, or more than 1 % with several "
        "(the benchmark's rules permit races between threads), sets the flag unverified.\n"
        "example: meshmark-probe gups --table 1GiB --pages 4KiB,thp --threads 1,all",
    .source =
        "HPC Challenge RandomAccess: Koester, Lucas; Luszczek et al., Introduction to the HPC Challenge Benchmark "
        "Suite (2005); GS1280 study (2003), GUPS",
    .spoils = {"pages: with 4 KiB pages most updates miss the TLB", "other traffic on the memory controller"},
    .needs = {},
    .parameters = {{"table_bytes",
                    "size of the table, rounded down to a power of two",
                    "B",
                    mm::Kind::sizes,
                    "256MiB",
                    65536,
                    {}},
                   mm::choices("kernel", "plain, or with the lines of the next updates prefetched", "plain,ahead",
                               {"plain", "ahead"}),
                   {"threads", "numbers of threads on one table: a list, a range, all", "", mm::Kind::integers, "1,all",
                    1, 65536}},
    .metrics = {{"update_rate", "updates of all threads per second", "op/s", mm::Better::higher}},
    .identity = {"table_bytes", "kernel", "threads", "pages", "memory_node"},
    .bytes_per_iteration = 16,
};

struct UpdateTable {
  std::shared_ptr<mm::Arena> arena;
  std::uint64_t* words;
  std::uint64_t count;
};

void add_point(mm::Run& run, std::vector<mm::Point>& points, const std::shared_ptr<UpdateTable>& table,
               std::uint64_t count, const std::string& kernel, const std::vector<int>& cpus, int node) {
  const auto team = run.team(cpus);
  const auto f = kernel == "plain" ? mm::update_plain : mm::update_ahead;
  const auto threads = cpus.size();
  auto updates = std::make_shared<std::uint64_t>(0);
  auto error = std::make_shared<double>(0);
  std::uint64_t* const words = table->words;
  const auto work = [=](std::uint64_t n) {
    team->run([&](int rank) {
      // Each thread has a separate section of the stream. The sections are as far apart as the sections of the
      // benchmark's processes.
      const std::uint64_t start = mm::random_at(static_cast<std::uint64_t>(rank) * (std::uint64_t{1} << 50));
      mm::keep(f(words, count - 1, start, n));
    });
    return team->elapsed_s();
  };
  mm::Point p;
  p.conditions = {{"table_bytes", count * 8},
                  {"kernel", kernel},
                  {"threads", threads},
                  {"pages", mm::name(table->arena->request().pages)},
                  {"page_bytes", mm::page_bytes(table->arena->request().pages)},
                  {"lookahead", kernel == "plain" ? 0 : mm::kLookahead},
                  {"memory_node", run.memory_node(node)}};
  p.metrics = {"update_rate"};
  p.bytes_each = count * 8 / threads;
  p.team = team;
  p.arenas = {table->arena};
  p.prepare = [=] {
    if (*updates == 0)
      *updates =
          (mm::iterations_for(8e-3, [=](std::uint64_t n) { return work(n / 64 * 64 + 64); }, 1 << 14) / 64 + 1) * 64;
    for (std::uint64_t i = 0; i < count; ++i) words[i] = i;
  };
  p.burst = [=] {
    const double elapsed_s = work(*updates);
    return mm::Values{static_cast<double>(*updates * threads) / elapsed_s};
  };
  p.check = [=]() -> std::vector<std::string> {
    // Repeating the same updates after a fresh start must restore the table.
    for (std::uint64_t i = 0; i < count; ++i) words[i] = i;
    work(*updates);
    for (std::size_t rank = 0; rank < threads; ++rank)
      mm::keep(mm::update_plain(words, count - 1, mm::random_at(rank * (std::uint64_t{1} << 50)), *updates));
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < count; ++i) wrong += words[i] != i;
    *error = static_cast<double>(wrong) / static_cast<double>(std::min(count, *updates * threads));
    return *error > (threads == 1 ? 0.0 : 0.01) ? std::vector<std::string>{"unverified"} : std::vector<std::string>{};
  };
  p.observe = [=] { return json{{"updates", *updates * threads}}; };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  const auto threads = run.team_sizes("threads", order);
  const auto sizes = run.sizes("table_bytes");
  const auto kernels = run.choices("kernel");
  const std::vector<int> nodes = run.placed_nodes();
  std::vector<mm::Point> points;
  for (mm::Pages pages : run.pages())
    for (int node : nodes) {
      auto arena = run.arena(std::bit_floor(sizes.back()), pages, node, order[0], "update_rate",
                             {{"table_bytes", sizes.back()}, {"pages", mm::name(pages)}});
      if (!arena) continue;
      const auto table = std::make_shared<UpdateTable>(UpdateTable{arena, arena->as<std::uint64_t>().data(), 0});
      for (std::size_t bytes : sizes)
        for (const std::string& kernel : kernels)
          for (int t : threads)
            add_point(run, points, table, std::bit_floor(bytes) / 8, kernel, {order.begin(), order.begin() + t}, node);
    }
  run.measure(std::move(points));
}

const mm::Instrument gups{kGups, measure};

}  // namespace

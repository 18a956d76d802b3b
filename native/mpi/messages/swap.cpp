/// swap: pairs of ranks exchange a message, at every distance, one pair at a time and all pairs at once.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "mpi/harness/batch.hpp"
#include "mpi/messages/message.hpp"

namespace mm::mpi {
namespace {

const Description& swap_description() {
  static const Description d{
      .name = "swap",
      .summary = "pairs of ranks exchange a message: by distance, one pair alone and all at once, with contention",
      .detail =
          "At distance j, rank i and rank i + j send to each other simultaneously. alone: one pair, all others wait. "
          "together: as many pairs as do not share a rank; the time is that of the slowest pair. Contention is the "
          "time together over that of the slowest of these pairs alone, among those measured.\n"
          "example: mpirun -n 8 meshmark-comm swap --bytes 8,64KiB,1MiB",
      .source = "SWAP benchmark of the Cray X1 evaluation at Oak Ridge (2005)",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {message_parameter("8,1KiB,64KiB,1MiB"),
                     {"distance", "distance between the ranks of a pair; all: every one", "", Kind::integers, "all", 1},
                     {"pairs",
                      "pairs measured alone: the first of each distance, or all (a whole matrix)",
                      "",
                      Kind::choice,
                      "first",
                      {},
                      {},
                      {"first", "all"}}},
      .metrics = {{"exchange_time", "time of one exchange, of the slowest pair", "s", Better::lower},
                  {"bandwidth_net", "bytes per second that arrive at all ranks of the pairs", "B/s", Better::higher},
                  {"contention", "time of all pairs at once over that of the slowest of them alone", "1",
                   Better::lower}},
      .identity = {"message_bytes", "distance", "mode", "from_rank", "to_rank", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// Returns the partner of this rank at that distance if pairs are formed from rank 0 upwards, or -1.
int partner_of(int rank, int distance, int ranks) {
  if (rank / distance % 2 == 1) return rank - distance;
  return rank + distance < ranks ? rank + distance : -1;
}

Case make_case(std::size_t bytes, int distance, const json& more, int pairs) {
  Case c;
  c.conditions = {{"message_bytes", bytes}, {"distance", distance}, {"pairs_at_once", pairs}};
  c.conditions.update(more);
  c.metric = "exchange_time";
  c.bytes = 2.0 * static_cast<double>(bytes) * pairs;
  return c;
}

Case swap_case(const Case& what, std::size_t bytes, int other) {
  Case c = what;
  if (other < 0) return c;
  const int rank = World::get().rank();
  const auto store = std::make_shared<Store>(2 * bytes + 8192);
  const Message out(store->memory.get(), bytes), in(store->memory.get() + (bytes + 4095) / 4096 * 4096, bytes);
  const MPI_Comm comm = World::get().all();
  c.run = [=](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Sendrecv(out.data(), out.bytes(), MPI_BYTE, other, 2, in.data(), in.bytes(), MPI_BYTE, other, 2, comm,
                   MPI_STATUS_IGNORE);
  };
  c.fill = [=, keep = store](std::uint32_t tag, bool whole) { out.fill(tag, rank, whole); };
  c.defects = [=, keep = store](std::uint32_t tag, bool whole) { return in.defects(tag, other, whole, "message"); };
  return c;
}

void measure_swap(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const int ranks = world.size(), rank = world.rank();
  if (ranks < 2) throw Absent("needs at least 2 ranks, found 1", "--ranks 2");
  const bool all_pairs = run.text("pairs") == "all";
  std::vector<int> distances;
  if (run.text("distance") == "all")
    for (int j = 1; j < ranks; ++j) distances.push_back(j);
  else
    distances = run.integers("distance", ranks - 1);
  for (const int j : distances)
    if (j >= ranks) throw UsageError("distance", "found " + std::to_string(j), "1 to " + std::to_string(ranks - 1));
  const auto sizes = message_sizes(run);

  CaseBatch batch(run, sizes.size() * distances.size());
  for (const std::size_t bytes : sizes)
    for (const int j : distances) {
      const auto add = [&](const Case& plan, int other) {
        batch.add(plan, 2.0 * static_cast<double>(bytes), [&] { return swap_case(plan, bytes, other); });
      };
      for (int i = 0; i + j < ranks && (all_pairs || i == 0); ++i) {
        const int other = rank == i ? i + j : rank == i + j ? i : -1;
        add(make_case(bytes, j, {{"mode", "alone"}, {"from_rank", i}, {"to_rank", i + j}}, 1), other);
      }
      int pairs = 0;
      std::vector<bool> is_in_group;  // whether a pair measured alone is also one of the pairs measured together
      for (int i = 0; i < ranks; ++i) {
        const bool is_pair = partner_of(i, j, ranks) > i;
        pairs += is_pair;
        if (i + j < ranks && (all_pairs || i == 0)) is_in_group.push_back(is_pair);
      }
      if (pairs > 1) add(make_case(bytes, j, {{"mode", "together"}}, pairs), partner_of(rank, j, ranks));
      const auto medians = batch.done();
      if (pairs <= 1) continue;
      // Pairs differ in their connection, so the comparison is with the slowest pair alone, whose own time is not
      // contention.
      const double together_s = medians.back();
      double alone_s = 0;
      for (std::size_t i = 0; i < is_in_group.size(); ++i)
        if (is_in_group[i] && std::isfinite(medians[i])) alone_s = std::max(alone_s, medians[i]);
      if (alone_s == 0 || !std::isfinite(together_s)) continue;
      json conditions = world.lasting_conditions();
      conditions.update({{"message_bytes", bytes}, {"distance", j}, {"mode", "together"}, {"pairs_at_once", pairs}});
      run.derive("contention", {together_s / alone_s}, conditions, batch.flags(), "exchange_time");
    }
}

const Instrument swap{swap_description(), measure_swap};

}  // namespace
}  // namespace mm::mpi

/// halo: rows exchanged with the neighbours on a torus of ranks, by every protocol of every paradigm.
#include "mpi/protocols/halo.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "mpi/harness/batch.hpp"

namespace mm::mpi {
namespace {

const Description& halo_description() {
  static const Description d{
      .name = "halo",
      .summary = "rows exchanged with the neighbours on a grid of ranks, by every protocol: which one is fastest here",
      .detail =
          "Each rank of a 2-D or 3-D torus exchanges N words of 8 bytes with each neighbour: north and south first, "
          "then east and west, then up and down. The result is the time of an exchange on the slowest rank. In a "
          "dimension of one rank, a rank is its own neighbour.\n"
          "example: mpirun -n 4 meshmark-comm halo --words 1..1000 --protocol mpi",
      .source = "HALO benchmark (Wallcraft), as in the Cray X1 evaluation at Oak Ridge (2005); protocols by name",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs", "ranks bound to one CPU",
                 "a launcher that assumes shared memory between hosts without it"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {{"words", "words of 8 bytes sent to each neighbour", "", Kind::integers, "1..65536", 1, 1 << 24},
                     {"dimensions", "dimensions of the grid of ranks", "", Kind::integer, "2", 1, 3},
                     {"protocol",
                      "halo protocols: all, the protocols of a paradigm (mpi, shmem, caf), or names",
                      "",
                      Kind::choices,
                      "all",
                      {},
                      {},
                      halo_choices()}},
      .metrics = {{"exchange_time", "time of one exchange with all neighbours, on the slowest rank", "s",
                   Better::lower},
                  {"bandwidth_net", "bytes per second that arrive at all ranks", "B/s", Better::higher}},
      .identity = {"paradigm", "protocol", "words", "ranks", "grid", "mpi"},
      .ranks = true,
  };
  return d;
}

Case make_case(const HaloProtocol& protocol, const RankGrid& grid, std::size_t words) {
  Case c;
  c.conditions = {{"paradigm", protocol.paradigm},   {"protocol", protocol.name}, {"words", words}, {"word_bytes", 8},
                  {"dimensions", grid.dimensions()}, {"grid", grid.name()}};
  c.metric = "exchange_time";
  return c;
}

Case halo_case(const HaloProtocol& protocol, const RankGrid& grid, std::size_t words) {
  const std::shared_ptr<Halo> halo = protocol.make(grid, words);
  World& world = World::get();
  const int rank = world.rank();
  Case c = make_case(protocol, grid, words);
  c.bytes = 8.0 * static_cast<double>(words) * grid.sides() * world.size();
  c.run = [halo](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) halo->exchange();
  };
  const int sides = grid.sides();
  c.fill = [=](std::uint32_t tag, bool whole) {
    for (int side = 0; side < sides; ++side) {
      const Row row = halo->out(side);
      each_word(words, whole, [&](std::size_t i) { row[i] = payload(tag, rank, side, i); });
    }
  };
  const std::vector<int> neighbour = grid.neighbour;
  c.defects = [=](std::uint32_t tag, bool whole) {
    static const char* const kSides[] = {"south", "north", "west", "east", "down", "up"};
    std::vector<Defect> defects;
    for (int side = 0; side < sides && defects.empty(); ++side) {
      const Row row = halo->in(side);
      const int sender = neighbour[static_cast<std::size_t>(side)];
      each_word(words, whole, [&](std::size_t i) {
        const std::uint64_t expected = payload(tag, sender, opposite(side), i);
        if (row[i] != expected && defects.empty()) defects.push_back({kSides[side], i, expected, row[i]});
      });
    }
    return defects;
  };
  return c;
}

void measure_halo(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const auto sizes = run.integers("words", 65536);
  const RankGrid grid = RankGrid::make(static_cast<int>(run.integer("dimensions")));
  const std::vector<HaloProtocol> protocols = requested_halos(run, "exchange_time");
  CaseBatch batch(run, sizes.size());
  for (const int size : sizes) {
    const auto words = static_cast<std::size_t>(size);
    for (const HaloProtocol& p : protocols)
      batch.add(make_case(p, grid, words), p.rows * 8 * static_cast<double>(words) * grid.sides(),
                [&] { return halo_case(p, grid, words); });
    batch.done();
  }
}

const Instrument halo{halo_description(), measure_halo};

}  // namespace

}  // namespace mm::mpi

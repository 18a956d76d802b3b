/// barrier, exchange, bcast, reduce, allreduce, alltoall: collective operations by the library and, for allreduce, by
/// three further algorithms.
#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "mpi/harness/batch.hpp"
#include "mpi/messages/message.hpp"

namespace mm::mpi {
namespace {

using Word = std::uint64_t;

constexpr const char* kSource =
    "Intel (Pallas) and OSU MPI benchmarks; algorithms as in Thakur, Rabenseifner and Gropp, Optimization of "
    "Collective Communication Operations in MPICH (2005)";

Description described(const std::string& name, const std::string& summary, const std::string& detail,
                      const std::string& sizes, const std::vector<std::string>& algorithms) {
  Description d{
      .name = name,
      .summary = summary,
      .detail = detail + "\nexample: mpirun -n 4 meshmark-comm " + name + (sizes.empty() ? "" : " --bytes 8..1MiB"),
      .source = kSource,
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {},
      .metrics = {{"collective_time", "time of one operation, on the slowest rank", "s", Better::lower}},
      .identity = {"operation", "algorithm", "message_bytes", "ranks", "mpi"},
      .ranks = true,
  };
  if (!sizes.empty()) d.parameters.push_back(message_parameter(sizes));
  if (algorithms.size() > 1)
    d.parameters.push_back({"algorithm", "algorithm of the operation", "", Kind::choices, "all", {}, {}, algorithms});
  if (name == "exchange")
    d.metrics.push_back(
        {"bandwidth_net", "bytes that a rank sends and receives per second, in four messages", "B/s", Better::higher});
  if (name == "alltoall") {
    d.metrics.push_back({"bandwidth_net", "bytes per second that arrive at all ranks", "B/s", Better::higher});
    d.metrics.push_back({"bisection_share",
                         "rate between the two halves of the ranks, relative to that of pairwise swaps between the "
                         "halves",
                         "1", Better::higher});
  }
  return d;
}

Case make_case(const std::string& operation, const std::string& algorithm, std::size_t bytes) {
  Case c;
  c.conditions = {{"operation", operation}, {"algorithm", algorithm}, {"message_bytes", bytes}};
  c.metric = "collective_time";
  return c;
}

// ---------------------------------------------------------------- sums of vectors

/// Returns what rank r adds at index i. The values are small, so that sums over many ranks and iterations are exact.
Word addend(std::uint32_t tag, int rank, std::size_t i) {
  return (std::uint64_t{tag} << 20) + static_cast<Word>(rank + 1) * 1000 + i % 997;
}
Word total(std::uint32_t tag, int ranks, std::size_t i) {
  const auto n = static_cast<Word>(ranks);
  return n * (std::uint64_t{tag} << 20) + 1000 * n * (n + 1) / 2 + n * (i % 997);
}

/// Sums vectors over all ranks.
class Adder {
 public:
  explicit Adder(std::size_t words) : out(words), in(words) {}
  virtual ~Adder() = default;
  virtual void operator()() = 0;
  Words out, in;

 protected:
  int words() const { return static_cast<int>(out.size()); }
};

class LibraryAllreduce : public Adder {
 public:
  using Adder::Adder;
  void operator()() override {
    MPI_Allreduce(out.data(), in.data(), words(), MPI_UINT64_T, MPI_SUM, World::get().all());
  }
};

class LibraryReduce : public Adder {
 public:
  using Adder::Adder;
  void operator()() override {
    MPI_Reduce(out.data(), in.data(), words(), MPI_UINT64_T, MPI_SUM, 0, World::get().all());
  }
};

/// Each rank exchanges its vector with the rank that is a power of two away, in log2(ranks) steps. Ranks beyond a power
/// of two send their vectors first, and receive the sum at the end.
class RecursiveDoubling : public Adder {
 public:
  explicit RecursiveDoubling(std::size_t words) : Adder(words), got_(words) {}
  void operator()() override {
    const MPI_Comm comm = World::get().all();
    const int ranks = World::get().size(), rank = World::get().rank();
    int power = 1;
    while (2 * power <= ranks) power *= 2;
    const int extra = ranks - power;
    std::copy(out.begin(), out.end(), in.begin());
    if (rank >= power) {
      MPI_Send(in.data(), words(), MPI_UINT64_T, rank - power, 3, comm);
      MPI_Recv(in.data(), words(), MPI_UINT64_T, rank - power, 3, comm, MPI_STATUS_IGNORE);
      return;
    }
    if (rank < extra) {
      MPI_Recv(got_.data(), words(), MPI_UINT64_T, rank + power, 3, comm, MPI_STATUS_IGNORE);
      add();
    }
    for (int distance = 1; distance < power; distance *= 2) {
      MPI_Sendrecv(in.data(), words(), MPI_UINT64_T, rank ^ distance, 3, got_.data(), words(), MPI_UINT64_T,
                   rank ^ distance, 3, comm, MPI_STATUS_IGNORE);
      add();
    }
    if (rank < extra) MPI_Send(in.data(), words(), MPI_UINT64_T, rank + power, 3, comm);
  }

 private:
  void add() {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] += got_[i];
  }
  Words got_;
};

/// Sums along a binomial tree to rank 0, and returns the sum along the same tree.
class BinomialTree : public Adder {
 public:
  explicit BinomialTree(std::size_t words) : Adder(words), got_(words) {}
  void operator()() override {
    const MPI_Comm comm = World::get().all();
    const int ranks = World::get().size(), rank = World::get().rank();
    std::copy(out.begin(), out.end(), in.begin());
    int distance = 1;
    for (; distance < ranks && rank % (2 * distance) == 0; distance *= 2)
      if (rank + distance < ranks) {
        MPI_Recv(got_.data(), words(), MPI_UINT64_T, rank + distance, 4, comm, MPI_STATUS_IGNORE);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] += got_[i];
      }
    if (rank != 0) {
      MPI_Send(in.data(), words(), MPI_UINT64_T, rank - distance, 4, comm);
      MPI_Recv(in.data(), words(), MPI_UINT64_T, rank - distance, 4, comm, MPI_STATUS_IGNORE);
    }
    for (distance /= 2; distance >= 1; distance /= 2)
      if (rank + distance < ranks) MPI_Send(in.data(), words(), MPI_UINT64_T, rank + distance, 4, comm);
  }

 private:
  Words got_;
};

/// Each rank puts its vector into its own slot on every other rank, and sums the vectors that it received. There are
/// two sets of slots, because a rank may be one operation ahead.
class OneSided : public Adder {
 public:
  explicit OneSided(std::size_t words) : Adder(words) {
    World& world = World::get();
    const std::size_t total_words = 2 * static_cast<std::size_t>(world.size()) * words + 8;
    World::get().check_all(MPI_Win_allocate(static_cast<MPI_Aint>(total_words * 8), 8, MPI_INFO_NULL, world.all(),
                                            static_cast<void*>(&memory_), &window_),
                           "MPI_Win_allocate");
    std::fill(memory_, memory_ + total_words, Word{0});
    MPI_Barrier(world.all());
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  ~OneSided() override {
    MPI_Barrier(World::get().all());
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  OneSided(const OneSided&) = delete;
  OneSided& operator=(const OneSided&) = delete;
  void operator()() override {
    World& world = World::get();
    const int ranks = world.size(), rank = world.rank();
    ++count_;
    for (int step = 1; step < ranks; ++step) {
      const int target = (rank + step) % ranks;
      MPI_Put(out.data(), words(), MPI_UINT64_T, target, static_cast<MPI_Aint>(place(rank)), words(), MPI_UINT64_T,
              window_);
      MPI_Win_flush(target, window_);
      MPI_Accumulate(&one_, 1, MPI_UINT64_T, target, static_cast<MPI_Aint>(counter()), 1, MPI_UINT64_T, MPI_SUM,
                     window_);
      MPI_Win_flush(target, window_);
    }
    const auto expected = static_cast<Word>(ranks - 1) * ((count_ + 1) / 2);
    const std::size_t index = counter();
    wait_in_window(window_,
                   [&] { return std::atomic_ref<Word>(memory_[index]).load(std::memory_order_acquire) >= expected; });
    std::copy(out.begin(), out.end(), in.begin());
    for (int r = 0; r < ranks; ++r)
      if (r != rank)
        for (std::size_t i = 0; i < in.size(); ++i) in[i] += memory_[place(r) + i];
  }

 private:
  std::size_t place(int rank) const {
    const auto ranks = static_cast<std::size_t>(World::get().size());
    return ((count_ & 1) * ranks + static_cast<std::size_t>(rank)) * out.size();
  }
  // Odd and even operations have separate counters, because a rank that is ahead must not be counted in place of a late
  // one.
  std::size_t counter() const {
    return 2 * static_cast<std::size_t>(World::get().size()) * out.size() + 4 * (count_ & 1);
  }
  Word* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  Word count_ = 0, one_ = 1;
};

Case sum_case(const std::string& operation, const std::string& algorithm, std::size_t bytes,
              std::shared_ptr<Adder> adder) {
  Case c = make_case(operation, algorithm, bytes);
  const World& world = World::get();
  const int rank = world.rank(), ranks = world.size();
  const std::size_t words = adder->out.size();
  c.run = [adder](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) (*adder)();
  };
  c.fill = [=](std::uint32_t tag, bool whole) {
    each_word(words, whole, [&](std::size_t i) { adder->out[i] = addend(tag, rank, i); });
  };
  const bool root_only = operation == "reduce";
  c.defects = [=](std::uint32_t tag, bool whole) {
    std::vector<Defect> defects;
    if (root_only && rank != 0) return defects;
    each_word(words, whole, [&](std::size_t i) {
      const Word expected = total(tag, ranks, i);
      if (adder->in[i] != expected && defects.empty()) defects.push_back({"sum", i, expected, adder->in[i]});
    });
    return defects;
  };
  return c;
}

std::size_t words_of(const Run& run, std::size_t bytes) {
  if (bytes == 0 || bytes % 8 != 0)
    throw UsageError("bytes", "found " + quote(run.text("message")), "multiples of 8 B, because words are summed");
  return bytes / 8;
}

// ---------------------------------------------------------------- operations

struct Operation {
  Description description;
  void (*add)(const Run& run, CaseBatch& batch, std::size_t bytes);
};

void barriers(const Run&, CaseBatch& batch, std::size_t) {
  Case c = make_case("barrier", "library", 0);
  c.run = [](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) MPI_Barrier(World::get().all());
  };
  batch.add(c, 0, [&] { return c; });
}

/// Each rank sends to the previous and to the next rank in a ring, and receives from both.
Case ring_case(std::size_t bytes) {
  const int rank = World::get().rank(), ranks = World::get().size();
  const int before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
  const std::size_t room = (bytes / 4096 + 1) * 4096;
  const auto store = std::make_shared<Store>(4 * room);
  const auto message = [=](std::size_t i) { return Message(store->memory.get() + i * room, bytes); };
  const Message down = message(0), up = message(1), from_before = message(2), from_after = message(3);
  Case c = make_case("exchange", "library", bytes);
  c.bytes = 4.0 * static_cast<double>(bytes);
  c.run = [=, keep = store](std::uint64_t iterations) {
    const MPI_Comm comm = World::get().all();
    MPI_Request requests[2];
    for (std::uint64_t i = 0; i < iterations; ++i) {
      MPI_Isend(up.data(), up.bytes(), MPI_BYTE, after, 6, comm, requests);
      MPI_Isend(down.data(), down.bytes(), MPI_BYTE, before, 7, comm, requests + 1);
      MPI_Recv(from_before.data(), from_before.bytes(), MPI_BYTE, before, 6, comm, MPI_STATUS_IGNORE);
      MPI_Recv(from_after.data(), from_after.bytes(), MPI_BYTE, after, 7, comm, MPI_STATUS_IGNORE);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
  };
  // With two ranks, both messages have the same owner; a different tag distinguishes their directions.
  constexpr std::uint32_t kDown = 1u << 15;
  c.fill = [=](std::uint32_t tag, bool whole) {
    up.fill(tag, rank, whole);
    down.fill(tag ^ kDown, rank, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) {
    auto defects = from_before.defects(tag, before, whole, "from before");
    return defects.empty() ? from_after.defects(tag ^ kDown, after, whole, "from after") : defects;
  };
  return c;
}

void rings(const Run&, CaseBatch& batch, std::size_t bytes) {
  batch.add(make_case("exchange", "library", bytes), 4.0 * static_cast<double>(bytes),
            [&] { return ring_case(bytes); });
}

Case bcast_case(std::size_t bytes) {
  Case c = make_case("bcast", "library", bytes);
  const int rank = World::get().rank();
  const auto store = std::make_shared<Store>(bytes + 8);
  const Message message(store->memory.get(), bytes);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Bcast(message.data(), message.bytes(), MPI_BYTE, 0, World::get().all());
  };
  c.fill = [=](std::uint32_t tag, bool whole) {
    if (rank == 0) message.fill(tag, 0, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) { return message.defects(tag, 0, whole, "message"); };
  return c;
}

void broadcasts(const Run&, CaseBatch& batch, std::size_t bytes) {
  batch.add(make_case("bcast", "library", bytes), static_cast<double>(bytes), [&] { return bcast_case(bytes); });
}

void reduces(const Run& run, CaseBatch& batch, std::size_t bytes) {
  const std::size_t words = words_of(run, bytes);
  batch.add(make_case("reduce", "library", bytes), 2.0 * static_cast<double>(bytes),
            [&] { return sum_case("reduce", "library", bytes, std::make_shared<LibraryReduce>(words)); });
}

void allreduces(const Run& run, CaseBatch& batch, std::size_t bytes) {
  const std::size_t words = words_of(run, bytes);
  const auto add = [&](const char* name, const auto& make, double vectors = 3) {
    if (!run.selects("algorithm", {name})) return;
    batch.add(make_case("allreduce", name, bytes), vectors * static_cast<double>(bytes),
              [&] { return sum_case("allreduce", name, bytes, make()); });
  };
  add("library", [&] { return std::make_shared<LibraryAllreduce>(words); });
  add("recursive_doubling", [&] { return std::make_shared<RecursiveDoubling>(words); });
  add("tree", [&] { return std::make_shared<BinomialTree>(words); });
  // Every rank has two slots for each other rank, which is unsuitable for long vectors.
  if (words * static_cast<std::size_t>(World::get().size()) <= 1 << 22)
    add("one_sided", [&] { return std::make_shared<OneSided>(words); }, 2.0 + 2 * World::get().size());
}

/// Each rank sends `bytes` to each rank, including itself.
Case alltoall_case(const std::shared_ptr<Store>& store, std::size_t bytes) {
  const int rank = World::get().rank(), ranks = World::get().size();
  std::uint8_t* const out = store->memory.get();
  std::uint8_t* const in = out + (bytes * static_cast<std::size_t>(ranks) + 4095) / 4096 * 4096;
  const auto part = [=](std::uint8_t* buffer, int r) {
    return Message(buffer + bytes * static_cast<std::size_t>(r), bytes);
  };
  Case c = make_case("alltoall", "library", bytes);
  c.bytes = static_cast<double>(bytes) * ranks * (ranks - 1);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Alltoall(out, static_cast<int>(bytes), MPI_BYTE, in, static_cast<int>(bytes), MPI_BYTE, World::get().all());
  };
  // The tag and the owner identify the target and the source.
  c.fill = [=](std::uint32_t tag, bool whole) {
    for (int s = 0; s < ranks; ++s) part(out, s).fill(tag + static_cast<std::uint32_t>(s), rank, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) {
    for (int r = 0; r < ranks; ++r) {
      auto defects = part(in, r).defects(tag + static_cast<std::uint32_t>(rank), r, whole, "part " + std::to_string(r));
      if (!defects.empty()) return defects;
    }
    return std::vector<Defect>{};
  };
  return c;
}

/// Pairs of ranks, one from each half, swap the bytes that an alltoall moves between the halves.
Case bisection_case(const std::shared_ptr<Store>& store, std::size_t crossing) {
  const int rank = World::get().rank(), half = World::get().size() / 2;
  const int other = rank < half ? rank + half : rank < 2 * half ? rank - half : -1;
  Case c = make_case("bisection", "pairs", crossing);
  c.bytes = 2.0 * static_cast<double>(crossing) * half;
  if (other < 0) return c;
  if (!store) throw Absent("the corresponding alltoall is absent");
  if (crossing > 1u << 30) throw Absent("the message exceeds 1 GiB");
  const Message outgoing(store->memory.get(), crossing),
      incoming(outgoing.data() + (crossing + 4095) / 4096 * 4096, crossing);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Sendrecv(outgoing.data(), outgoing.bytes(), MPI_BYTE, other, 5, incoming.data(), incoming.bytes(), MPI_BYTE,
                   other, 5, World::get().all(), MPI_STATUS_IGNORE);
  };
  c.fill = [=](std::uint32_t tag, bool whole) { outgoing.fill(tag, rank, whole); };
  c.defects = [=](std::uint32_t tag, bool whole) { return incoming.defects(tag, other, whole, "message"); };
  return c;
}

void alltoalls(const Run&, CaseBatch& batch, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(World::get().size());
  const std::size_t store_bytes = 2 * bytes * ranks + 8192, crossing = bytes * (ranks / 2);
  std::shared_ptr<Store> store;
  batch.add(make_case("alltoall", "library", bytes), static_cast<double>(store_bytes), [&] {
    store = std::make_shared<Store>(store_bytes);
    return alltoall_case(store, bytes);
  });
  if (bytes > 0)
    batch.add(make_case("bisection", "pairs", crossing), 0, [&] { return bisection_case(store, crossing); });
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> list = {
      {described("barrier", "synchronisation of all ranks", "MPI_Barrier.", "", {}), barriers},
      {described("bcast", "one rank's message to all", "MPI_Bcast from rank 0.", "8..4MiB", {}), broadcasts},
      {described("reduce", "sums of all ranks' words, on one rank", "MPI_Reduce of 64-bit integers to rank 0.",
                 "8..4MiB", {}),
       reduces},
      {described("allreduce", "sums of all ranks' words, on all ranks, by four algorithms",
                 "Sums of 64-bit integers. library: MPI_Allreduce. recursive_doubling, tree: by sends and receives. "
                 "one_sided: each rank puts its words to every other one, and sums what it received.",
                 "8..1MiB", {"all", "library", "recursive_doubling", "tree", "one_sided"}),
       allreduces},
      {described(
           "alltoall", "a message from every rank to every rank, and its share of the bisection bandwidth",
           "MPI_Alltoall with the given bytes from each rank to each. bisection: ranks of the lower and the upper half "
           "swap in pairs the bytes that an alltoall moves between the halves.",
           "8..256KiB", {}),
       alltoalls},
      {described("exchange", "messages between each rank and both its neighbours in a ring",
                 "MPI_Isend to the next rank and to the one before, MPI_Recv from both, MPI_Waitall. A message of X "
                 "bytes counts as 4 X, as in Intel's (Pallas's) Exchange.",
                 "0,8..4MiB", {}),
       rings},
  };
  return list;
}

template <std::size_t at>
void measure_collective(Run& run) {
  World& world = World::get();
  world.check_request(run);
  const Operation& operation = operations()[at];
  if (world.size() < 2) throw Absent("needs at least 2 ranks, found 1", "--ranks 2");
  const std::vector<std::size_t> sizes =
      operation.description.name == "barrier" ? std::vector<std::size_t>{0} : message_sizes(run);
  CaseBatch batch(run, sizes.size());
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    operation.add(run, batch, sizes[s]);
    const auto medians = batch.done();
    if (operation.description.name != "alltoall" || medians.size() < 2 || !(medians[0] > 0) || !(medians[1] > 0))
      continue;
    json conditions = world.lasting_conditions();
    conditions.update({{"operation", "alltoall"}, {"algorithm", "library"}, {"message_bytes", sizes[s]}});
    // Both operations move bytes x half x half each way between the halves; with an odd number of ranks alltoall moves
    // slightly more.
    run.derive("bisection_share", {medians[1] / medians[0]}, conditions, batch.flags(), "collective_time");
  }
}

const Instrument barrier{operations()[0].description, measure_collective<0>};
const Instrument bcast{operations()[1].description, measure_collective<1>};
const Instrument reduce{operations()[2].description, measure_collective<2>};
const Instrument allreduce{operations()[3].description, measure_collective<3>};
const Instrument alltoall{operations()[4].description, measure_collective<4>};
const Instrument exchange{operations()[5].description, measure_collective<5>};

}  // namespace
}  // namespace mm::mpi

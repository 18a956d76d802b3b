/// barrier, exchange, bcast, reduce, allreduce, alltoall: what all ranks do together, the library's way and, for
/// allreduce, three others.
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
    "Collective "
    "Communication Operations in MPICH (2005)";

Description described(const std::string& name, const std::string& summary, const std::string& detail,
                      const std::string& sizes, const std::vector<std::string>& algorithms) {
  Description d{
      .name = name,
      .summary = summary,
      .detail = detail + "\nexample: mpirun -n 4 meshmark-comm " + name + (sizes.empty() ? "" : " --bytes 8..1MiB"),
      .source = kSource,
      .spoils = {"a neighbour on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {},
      .metrics = {{"collective_time", "time of one operation, the slowest rank's", "s", Better::lower}},
      .identity = {"operation", "algorithm", "message_bytes", "ranks", "mpi"},
      .ranks = true,
  };
  if (!sizes.empty()) d.parameters.push_back(message_parameter(sizes));
  if (algorithms.size() > 1)
    d.parameters.push_back({"algorithm", "how it is done", "", Kind::choices, "all", {}, {}, algorithms});
  if (name == "exchange")
    d.metrics.push_back(
        {"bandwidth_net", "bytes that a rank sends and receives, four messages, a second", "B/s", Better::higher});
  if (name == "alltoall") {
    d.metrics.push_back({"bandwidth_net", "bytes that arrive at all ranks, a second", "B/s", Better::higher});
    d.metrics.push_back({"bisection_share",
                         "rate at which it crosses from one half of the ranks to the other, over that of ranks of "
                         "the halves that swap in pairs",
                         "1", Better::higher});
  }
  return d;
}

Case named(const std::string& operation, const std::string& algorithm, std::size_t bytes) {
  Case c;
  c.conditions = {{"operation", operation}, {"algorithm", algorithm}, {"message_bytes", bytes}};
  c.metric = "collective_time";
  return c;
}

// ---------------------------------------------------------------- vectors that are added up

/// What rank r adds at index i; small, so that sums of many ranks and many iterations stay exact.
Word addend(std::uint32_t tag, int rank, std::size_t i) {
  return (std::uint64_t{tag} << 20) + static_cast<Word>(rank + 1) * 1000 + i % 997;
}
Word total(std::uint32_t tag, int ranks, std::size_t i) {
  const auto n = static_cast<Word>(ranks);
  return n * (std::uint64_t{tag} << 20) + 1000 * n * (n + 1) / 2 + n * (i % 997);
}

/// Adds up vectors of all ranks.
class Adder {
 public:
  explicit Adder(std::size_t words) : out(words), in(words) {}
  virtual ~Adder() = default;
  virtual void operator()() = 0;
  Words out, in;

 protected:
  int words() const { return static_cast<int>(out.size()); }
};

class LibraryAll : public Adder {
 public:
  using Adder::Adder;
  void operator()() override {
    MPI_Allreduce(out.data(), in.data(), words(), MPI_UINT64_T, MPI_SUM, World::get().all());
  }
};

class LibraryRoot : public Adder {
 public:
  using Adder::Adder;
  void operator()() override {
    MPI_Reduce(out.data(), in.data(), words(), MPI_UINT64_T, MPI_SUM, 0, World::get().all());
  }
};

/// Each rank exchanges with the one a power of two away, in as many steps as the number of ranks has bits; ranks beyond
/// a power of two hand theirs over before, and get the sum afterwards.
class RecursiveDoubling : public Adder {
 public:
  explicit RecursiveDoubling(std::size_t words) : Adder(words), got_(words) {}
  void operator()() override {
    const MPI_Comm all = World::get().all();
    const int ranks = World::get().size(), rank = World::get().rank();
    int power = 1;
    while (2 * power <= ranks) power *= 2;
    const int extra = ranks - power;
    std::copy(out.begin(), out.end(), in.begin());
    if (rank >= power) {
      MPI_Send(in.data(), words(), MPI_UINT64_T, rank - power, 3, all);
      MPI_Recv(in.data(), words(), MPI_UINT64_T, rank - power, 3, all, MPI_STATUS_IGNORE);
      return;
    }
    if (rank < extra) {
      MPI_Recv(got_.data(), words(), MPI_UINT64_T, rank + power, 3, all, MPI_STATUS_IGNORE);
      add();
    }
    for (int away = 1; away < power; away *= 2) {
      MPI_Sendrecv(in.data(), words(), MPI_UINT64_T, rank ^ away, 3, got_.data(), words(), MPI_UINT64_T, rank ^ away, 3,
                   all, MPI_STATUS_IGNORE);
      add();
    }
    if (rank < extra) MPI_Send(in.data(), words(), MPI_UINT64_T, rank + power, 3, all);
  }

 private:
  void add() {
    for (std::size_t i = 0; i < in.size(); ++i) in[i] += got_[i];
  }
  Words got_;
};

/// A binomial tree to rank 0 and back.
class Tree : public Adder {
 public:
  explicit Tree(std::size_t words) : Adder(words), got_(words) {}
  void operator()() override {
    const MPI_Comm all = World::get().all();
    const int ranks = World::get().size(), rank = World::get().rank();
    std::copy(out.begin(), out.end(), in.begin());
    int away = 1;
    for (; away < ranks && rank % (2 * away) == 0; away *= 2)
      if (rank + away < ranks) {
        MPI_Recv(got_.data(), words(), MPI_UINT64_T, rank + away, 4, all, MPI_STATUS_IGNORE);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] += got_[i];
      }
    if (rank != 0) {
      MPI_Send(in.data(), words(), MPI_UINT64_T, rank - away, 4, all);
      MPI_Recv(in.data(), words(), MPI_UINT64_T, rank - away, 4, all, MPI_STATUS_IGNORE);
    }
    for (away /= 2; away >= 1; away /= 2)
      if (rank + away < ranks) MPI_Send(in.data(), words(), MPI_UINT64_T, rank + away, 4, all);
  }

 private:
  Words got_;
};

/// Each rank puts its vector into a place of its own at every other one, and adds up what it was given. A rank may be
/// one operation ahead: two sets of places.
class OneSided : public Adder {
 public:
  explicit OneSided(std::size_t words) : Adder(words) {
    World& world = World::get();
    const std::size_t all = 2 * static_cast<std::size_t>(world.size()) * words + 8;
    World::get().check_all(MPI_Win_allocate(static_cast<MPI_Aint>(all * 8), 8, MPI_INFO_NULL, world.all(),
                                            static_cast<void*>(&memory_), &window_),
                           "MPI_Win_allocate");
    std::fill(memory_, memory_ + all, Word{0});
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
      const int to = (rank + step) % ranks;
      MPI_Put(out.data(), words(), MPI_UINT64_T, to, static_cast<MPI_Aint>(place(rank)), words(), MPI_UINT64_T,
              window_);
      MPI_Win_flush(to, window_);
      MPI_Accumulate(&one_, 1, MPI_UINT64_T, to, static_cast<MPI_Aint>(counter()), 1, MPI_UINT64_T, MPI_SUM, window_);
      MPI_Win_flush(to, window_);
    }
    const auto due = static_cast<Word>(ranks - 1) * ((count_ + 1) / 2);
    const std::size_t mine = counter();
    wait_in(window_, [&] { return std::atomic_ref<Word>(memory_[mine]).load(std::memory_order_acquire) >= due; });
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
  // One for odd operations and one for even ones: a rank that is ahead must not stand for one that is late.
  std::size_t counter() const {
    return 2 * static_cast<std::size_t>(World::get().size()) * out.size() + 4 * (count_ & 1);
  }
  Word* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  Word count_ = 0, one_ = 1;
};

Case adding(const std::string& operation, const std::string& algorithm, std::size_t bytes,
            std::shared_ptr<Adder> adder) {
  Case c = named(operation, algorithm, bytes);
  const World& world = World::get();
  const int rank = world.rank(), ranks = world.size();
  const std::size_t words = adder->out.size();
  c.run = [adder](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) (*adder)();
  };
  c.mark = [=](std::uint32_t tag, bool whole) {
    each_word(words, whole, [&](std::size_t i) { adder->out[i] = addend(tag, rank, i); });
  };
  const bool root_only = operation == "reduce";
  c.defects = [=](std::uint32_t tag, bool whole) {
    std::vector<Defect> found;
    if (root_only && rank != 0) return found;
    each_word(words, whole, [&](std::size_t i) {
      const Word due = total(tag, ranks, i);
      if (adder->in[i] != due && found.empty()) found.push_back({"sum", i, due, adder->in[i]});
    });
    return found;
  };
  return c;
}

std::size_t words_of(const Run& run, std::size_t bytes) {
  if (bytes == 0 || bytes % 8 != 0)
    throw UsageError("bytes", "found " + quote(run.text("message")), "multiples of 8 B: words are added up");
  return bytes / 8;
}

// ---------------------------------------------------------------- the operations

struct Operation {
  Description description;
  void (*add)(const Run& run, Batch& batch, std::size_t bytes);
};

void barriers(const Run&, Batch& batch, std::size_t) {
  Case c = named("barrier", "library", 0);
  c.run = [](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) MPI_Barrier(World::get().all());
  };
  batch.add(c, 0, [&] { return c; });
}

/// Each rank sends to the one before and the one after it in a ring, and receives from both.
Case in_a_ring(std::size_t bytes) {
  const int rank = World::get().rank(), ranks = World::get().size();
  const int before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
  const std::size_t room = (bytes / 4096 + 1) * 4096;
  const auto store = std::make_shared<Store>(4 * room);
  const auto message = [=](std::size_t i) { return Message(store->memory.get() + i * room, bytes); };
  const Message down = message(0), up = message(1), from_before = message(2), from_after = message(3);
  Case c = named("exchange", "library", bytes);
  c.bytes = 4.0 * static_cast<double>(bytes);
  c.run = [=, keep = store](std::uint64_t iterations) {
    const MPI_Comm all = World::get().all();
    MPI_Request sent[2];
    for (std::uint64_t i = 0; i < iterations; ++i) {
      MPI_Isend(up.data(), up.bytes(), MPI_BYTE, after, 6, all, sent);
      MPI_Isend(down.data(), down.bytes(), MPI_BYTE, before, 7, all, sent + 1);
      MPI_Recv(from_before.data(), from_before.bytes(), MPI_BYTE, before, 6, all, MPI_STATUS_IGNORE);
      MPI_Recv(from_after.data(), from_after.bytes(), MPI_BYTE, after, 7, all, MPI_STATUS_IGNORE);
      MPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
    }
  };
  // With two ranks both messages are of one owner: those that go down are marked by another tag.
  constexpr std::uint32_t kDown = 1u << 15;
  c.mark = [=](std::uint32_t tag, bool whole) {
    up.mark(tag, rank, whole);
    down.mark(tag ^ kDown, rank, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) {
    auto found = from_before.defects(tag, before, whole, "from before");
    return found.empty() ? from_after.defects(tag ^ kDown, after, whole, "from after") : found;
  };
  return c;
}

void rings(const Run&, Batch& batch, std::size_t bytes) {
  batch.add(named("exchange", "library", bytes), 4.0 * static_cast<double>(bytes), [&] { return in_a_ring(bytes); });
}

Case broadcast(std::size_t bytes) {
  Case c = named("bcast", "library", bytes);
  const int rank = World::get().rank();
  const auto store = std::make_shared<Store>(bytes + 8);
  const Message message(store->memory.get(), bytes);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Bcast(message.data(), message.bytes(), MPI_BYTE, 0, World::get().all());
  };
  c.mark = [=](std::uint32_t tag, bool whole) {
    if (rank == 0) message.mark(tag, 0, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) { return message.defects(tag, 0, whole, "message"); };
  return c;
}

void broadcasts(const Run&, Batch& batch, std::size_t bytes) {
  batch.add(named("bcast", "library", bytes), static_cast<double>(bytes), [&] { return broadcast(bytes); });
}

void reductions(const Run& run, Batch& batch, std::size_t bytes) {
  const std::size_t words = words_of(run, bytes);
  batch.add(named("reduce", "library", bytes), 2.0 * static_cast<double>(bytes),
            [&] { return adding("reduce", "library", bytes, std::make_shared<LibraryRoot>(words)); });
}

void sums(const Run& run, Batch& batch, std::size_t bytes) {
  const std::size_t words = words_of(run, bytes);
  const auto add = [&](const char* name, const auto& make, double vectors = 3) {
    if (!run.asks("algorithm", {name})) return;
    batch.add(named("allreduce", name, bytes), vectors * static_cast<double>(bytes),
              [&] { return adding("allreduce", name, bytes, make()); });
  };
  add("library", [&] { return std::make_shared<LibraryAll>(words); });
  add("recursive_doubling", [&] { return std::make_shared<RecursiveDoubling>(words); });
  add("tree", [&] { return std::make_shared<Tree>(words); });
  // Every rank holds a vector of every other one, twice: no algorithm for long ones.
  if (words * static_cast<std::size_t>(World::get().size()) <= 1 << 22)
    add("one_sided", [&] { return std::make_shared<OneSided>(words); }, 2.0 + 2 * World::get().size());
}

/// Each rank sends `bytes` to each, itself included.
Case to_all(const std::shared_ptr<Store>& store, std::size_t bytes) {
  const int rank = World::get().rank(), ranks = World::get().size();
  std::uint8_t* const out = store->memory.get();
  std::uint8_t* const in = out + (bytes * static_cast<std::size_t>(ranks) + 4095) / 4096 * 4096;
  const auto part = [=](std::uint8_t* all, int r) { return Message(all + bytes * static_cast<std::size_t>(r), bytes); };
  Case c = named("alltoall", "library", bytes);
  c.bytes = static_cast<double>(bytes) * ranks * (ranks - 1);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Alltoall(out, static_cast<int>(bytes), MPI_BYTE, in, static_cast<int>(bytes), MPI_BYTE, World::get().all());
  };
  // What goes from r to s is marked with both.
  c.mark = [=](std::uint32_t tag, bool whole) {
    for (int s = 0; s < ranks; ++s) part(out, s).mark(tag + static_cast<std::uint32_t>(s), rank, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) {
    for (int r = 0; r < ranks; ++r) {
      auto found = part(in, r).defects(tag + static_cast<std::uint32_t>(rank), r, whole, "part " + std::to_string(r));
      if (!found.empty()) return found;
    }
    return std::vector<Defect>{};
  };
  return c;
}

/// What the halves of the ranks can send each other, in pairs, of what an exchange brings across.
Case bisection(const std::shared_ptr<Store>& store, std::size_t crossing) {
  const int rank = World::get().rank(), half = World::get().size() / 2;
  const int other = rank < half ? rank + half : rank < 2 * half ? rank - half : -1;
  Case c = named("bisection", "pairs", crossing);
  c.bytes = 2.0 * static_cast<double>(crossing) * half;
  if (other < 0) return c;
  if (!store) throw Absent("the exchange that it belongs to cannot be had");
  if (crossing > 1u << 30) throw Absent("a message of more than 1 GiB");
  const Message to(store->memory.get(), crossing), from(to.data() + (crossing + 4095) / 4096 * 4096, crossing);
  c.run = [=, keep = store](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Sendrecv(to.data(), to.bytes(), MPI_BYTE, other, 5, from.data(), from.bytes(), MPI_BYTE, other, 5,
                   World::get().all(), MPI_STATUS_IGNORE);
  };
  c.mark = [=](std::uint32_t tag, bool whole) { to.mark(tag, rank, whole); };
  c.defects = [=](std::uint32_t tag, bool whole) { return from.defects(tag, other, whole, "message"); };
  return c;
}

void transposes(const Run&, Batch& batch, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(World::get().size());
  const std::size_t all = 2 * bytes * ranks + 8192, crossing = bytes * (ranks / 2);
  std::shared_ptr<Store> store;
  batch.add(named("alltoall", "library", bytes), static_cast<double>(all), [&] {
    store = std::make_shared<Store>(all);
    return to_all(store, bytes);
  });
  if (bytes > 0) batch.add(named("bisection", "pairs", crossing), 0, [&] { return bisection(store, crossing); });
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {described("barrier", "ranks wait for one another", "MPI_Barrier.", "", {}), barriers},
      {described("bcast", "one rank's message to all", "MPI_Bcast from rank 0.", "8..4MiB", {}), broadcasts},
      {described("reduce", "sums of all ranks' words, at one of them", "MPI_Reduce of 64-bit integers to rank 0.",
                 "8..4MiB", {}),
       reductions},
      {described("allreduce", "sums of all ranks' words, at all of them, by four algorithms",
                 "Sums of 64-bit integers. library: MPI_Allreduce. recursive_doubling, tree: by sends and receives. "
                 "one_sided: each rank puts its words at every other one, and adds up.",
                 "8..1MiB", {"all", "library", "recursive_doubling", "tree", "one_sided"}),
       sums},
      {described(
           "alltoall", "every rank's message to every other one, and its share of the bisection",
           "MPI_Alltoall of so many bytes from each rank to each. bisection: ranks of the lower and the upper half "
           "swap in pairs what an alltoall brings across.",
           "8..256KiB", {}),
       transposes},
      {described("exchange", "each rank's messages to both its neighbours in a ring, and theirs to it",
                 "MPI_Isend to the next rank and to the one before, MPI_Recv from both, MPI_Waitall. Of a message of X "
                 "bytes 4 X are counted, as Intel's (Pallas's) Exchange does.",
                 "0,8..4MiB", {}),
       rings},
  };
  return all;
}

template <std::size_t at>
void measure_collective(Run& run) {
  World& world = World::get();
  world.expect(run);
  const Operation& operation = operations()[at];
  if (world.size() < 2) throw Absent("one rank has nobody to work with", "--ranks 2");
  const std::vector<std::size_t> sizes =
      operation.description.name == "barrier" ? std::vector<std::size_t>{0} : message_sizes(run);
  Batch batch(run, sizes.size());
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    operation.add(run, batch, sizes[s]);
    const auto medians = batch.done();
    if (operation.description.name != "alltoall" || medians.size() < 2 || !(medians[0] > 0) || !(medians[1] > 0))
      continue;
    json conditions = world.lasting_conditions();
    conditions.update({{"operation", "alltoall"}, {"algorithm", "library"}, {"message_bytes", sizes[s]}});
    // Across the middle go bytes x half x half each way, in both cases; with an odd number of ranks a little more.
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

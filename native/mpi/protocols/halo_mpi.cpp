/// The halo exchange by MPI: five two-sided protocols, neighbour collectives, three one-sided protocols, shared memory,
/// and strided rows by datatype or packing.
#include <mpi.h>

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.hpp"
#include "mpi/protocols/halo.hpp"

namespace mm::mpi {
namespace {

constexpr std::size_t kStride = 8;  // words: each word of a strided row is in a separate cache line

int words_of(std::size_t words) {
  if (words > 1u << 30) throw Absent("a message of more than 2^30 words exceeds MPI's count");
  return static_cast<int>(words);
}

/// A halo whose rows are in memory of this process.
class PrivateHalo : public Halo {
 public:
  PrivateHalo(const RankGrid& grid, std::size_t words) : Halo(grid, words), n_(words_of(words)) {
    const auto sides = static_cast<std::size_t>(grid.sides());
    out_.resize(sides * words);
    in_.resize(sides * words);
  }
  Row out(int side) override { return {out_.data() + static_cast<std::size_t>(side) * words_}; }
  Row in(int side) override { return {in_.data() + static_cast<std::size_t>(side) * words_}; }

 protected:
  int peer(int side) const { return grid_.neighbour[static_cast<std::size_t>(side)]; }
  int n_;
  Words out_, in_;
};

class SendRecv : public PrivateHalo {
 public:
  using PrivateHalo::PrivateHalo;
  void along(int low) override {
    for (const int side : {low + 1, low})
      MPI_Sendrecv(out(side).first, n_, MPI_UINT64_T, peer(side), side, in(opposite(side)).first, n_, MPI_UINT64_T,
                   peer(opposite(side)), side, World::get().all(), MPI_STATUS_IGNORE);
  }
};

/// Two sends and two receives per dimension, in either order.
template <bool receive_first>
class Immediate : public PrivateHalo {
 public:
  using PrivateHalo::PrivateHalo;
  void along(int low) override {
    const MPI_Comm comm = World::get().all();
    MPI_Request requests[4];
    MPI_Request* r = requests;
    const auto send = [&](int side) { MPI_Isend(out(side).first, n_, MPI_UINT64_T, peer(side), side, comm, r++); };
    // A message from one side was sent to the opposite side.
    const auto receive = [&](int side) {
      MPI_Irecv(in(side).first, n_, MPI_UINT64_T, peer(side), opposite(side), comm, r++);
    };
    if (receive_first)
      receive(low), receive(low + 1), send(low), send(low + 1);
    else
      send(low), send(low + 1), receive(low), receive(low + 1);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  }
};

template <bool receive_first>
class Persistent : public PrivateHalo {
 public:
  Persistent(const RankGrid& grid, std::size_t words) : PrivateHalo(grid, words) {
    const MPI_Comm comm = World::get().all();
    for (int low = 0; low < grid.sides(); low += 2) {
      const auto send = [&](int side) {
        requests_.emplace_back();
        check(MPI_Send_init(out(side).first, n_, MPI_UINT64_T, peer(side), side, comm, &requests_.back()),
              "MPI_Send_init");
      };
      const auto receive = [&](int side) {
        requests_.emplace_back();
        check(MPI_Recv_init(in(side).first, n_, MPI_UINT64_T, peer(side), opposite(side), comm, &requests_.back()),
              "MPI_Recv_init");
      };
      if (receive_first)
        receive(low), receive(low + 1), send(low), send(low + 1);
      else
        send(low), send(low + 1), receive(low), receive(low + 1);
    }
  }
  ~Persistent() override {
    for (MPI_Request& r : requests_) MPI_Request_free(&r);
  }
  void along(int low) override {
    MPI_Startall(4, requests_.data() + 2 * low);
    MPI_Waitall(4, requests_.data() + 2 * low, MPI_STATUSES_IGNORE);
  }

 private:
  std::vector<MPI_Request> requests_;
};

/// Uses one ring per dimension instead of the grid, because for a ring the standard defines the order of the
/// neighbours' data even if both are the same rank.
class Neighbours : public PrivateHalo {
 public:
  Neighbours(const RankGrid& grid, std::size_t words) : PrivateHalo(grid, words) {
    const std::vector<int> periods(grid.extent.size(), 1);
    MPI_Comm torus = MPI_COMM_NULL;
    check(MPI_Cart_create(World::get().all(), grid.dimensions(), grid.extent.data(), periods.data(), 0, &torus),
          "MPI_Cart_create");
    for (int d = 0; d < grid.dimensions(); ++d) {
      std::vector<int> selection(grid.extent.size(), 0);
      selection[static_cast<std::size_t>(d)] = 1;
      rings_.push_back(MPI_COMM_NULL);
      check(MPI_Cart_sub(torus, selection.data(), &rings_.back()), "MPI_Cart_sub");
    }
    MPI_Comm_free(&torus);
  }
  ~Neighbours() override {
    for (MPI_Comm& ring : rings_) MPI_Comm_free(&ring);
  }
  void along(int low) override {
    const auto side = static_cast<std::size_t>(low);
    MPI_Neighbor_alltoall(out_.data() + side * words_, n_, MPI_UINT64_T, in_.data() + side * words_, n_, MPI_UINT64_T,
                          rings_[side / 2]);
  }

 protected:
  std::vector<MPI_Comm> rings_;
};

#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define MM_PERSISTENT_NEIGHBOURS 1
class PersistentNeighbours : public Neighbours {
 public:
  PersistentNeighbours(const RankGrid& grid, std::size_t words) : Neighbours(grid, words) {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 6
    if (std::any_of(grid.extent.begin(), grid.extent.end(), [](int ranks) { return ranks <= 2; }))
      throw Absent("Open MPI confuses the two neighbours in a ring of one or two ranks (open-mpi/ompi#14416)");
#endif
    for (std::size_t d = 0; d < rings_.size(); ++d) {
      requests_.emplace_back();
#if MPI_VERSION >= 4
      const auto init = MPI_Neighbor_alltoall_init;
#else
      const auto init = MPIX_Neighbor_alltoall_init;
#endif
      check(init(out_.data() + 2 * d * words_, n_, MPI_UINT64_T, in_.data() + 2 * d * words_, n_, MPI_UINT64_T,
                 rings_[d], MPI_INFO_NULL, &requests_.back()),
            "MPI_Neighbor_alltoall_init");
    }
  }
  ~PersistentNeighbours() override {
    for (MPI_Request& r : requests_) MPI_Request_free(&r);
  }
  void along(int low) override {
    MPI_Request& r = requests_[static_cast<std::size_t>(low / 2)];
    MPI_Start(&r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
  }

 private:
  std::vector<MPI_Request> requests_;
};
#endif

/// Rows in a window, into which neighbours put their rows: by side, in one or two copies.
class Window : public Halo {
 public:
  Window(const RankGrid& grid, std::size_t words, std::size_t copies) : Window(grid, words, copies, grid.sides()) {}
  ~Window() override { MPI_Win_free(&window_); }
  Row out(int side) override { return {out_.data() + place(side)}; }
  Row in(int side) override { return {memory_ + place(side)}; }

 protected:
  /// `sides` is the number of all sides, or 2 for the sides of any one dimension.
  Window(const RankGrid& grid, std::size_t words, std::size_t copies, int sides)
      : Halo(grid, words), n_(words_of(words)), sides_(static_cast<std::size_t>(sides)) {
    out_.resize(sides_ * words);
    const std::size_t total_words = copies * sides_ * words + sides_ * kStride;
    World::get().check_all(MPI_Win_allocate(static_cast<MPI_Aint>(total_words * 8), 8, MPI_INFO_NULL,
                                            World::get().all(), static_cast<void*>(&memory_), &window_),
                           "MPI_Win_allocate");
    std::memset(memory_, 0, total_words * 8);
    MPI_Barrier(World::get().all());
  }
  int peer(int side) const { return grid_.neighbour[static_cast<std::size_t>(side)]; }
  std::size_t place(int side, std::size_t copy = 0) const {
    return (copy * sides_ + static_cast<std::size_t>(side) % sides_) * words_;
  }
  void put(int to, std::size_t copy = 0) {
    MPI_Put(out(to).first, n_, MPI_UINT64_T, peer(to), static_cast<MPI_Aint>(place(opposite(to), copy)), n_,
            MPI_UINT64_T, window_);
  }
  int n_;
  std::size_t sides_;
  std::uint64_t* memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  Words out_;
};

class Fence : public Window {
 public:
  Fence(const RankGrid& grid, std::size_t words) : Window(grid, words, 1) { MPI_Win_fence(0, window_); }
  ~Fence() override { MPI_Win_fence(MPI_MODE_NOSUCCEED, window_); }
  void along(int low) override {
    put(low);
    put(low + 1);
    MPI_Win_fence(0, window_);
  }
};

/// Post, start, complete, wait: only neighbours synchronise. Each dimension needs a separate window, since MPICH counts
/// posts per window regardless of the origin: posts of a neighbour in the other dimension, which may be ahead, would
/// start an epoch too early, or never (MPICH 4.0.2 over TCP hangs).
class PostStart : public Halo {
 public:
  PostStart(const RankGrid& grid, std::size_t words) : Halo(grid, words) {
    for (int low = 0; low < grid.sides(); low += 2)
      dimensions_.push_back(std::make_unique<Dimension>(grid, words, low));
  }
  void along(int low) override { of(low).along(low); }
  Row out(int side) override { return of(side).out(side); }
  Row in(int side) override { return of(side).in(side); }

 private:
  class Dimension : public Window {
   public:
    Dimension(const RankGrid& grid, std::size_t words, int low) : Window(grid, words, 1, 2) {
      MPI_Group world_group = MPI_GROUP_NULL;
      MPI_Comm_group(World::get().all(), &world_group);
      const int peers[2] = {peer(low), peer(low + 1)};
      check(MPI_Group_incl(world_group, peers[0] == peers[1] ? 1 : 2, peers, &group_), "MPI_Group_incl");
      MPI_Group_free(&world_group);
    }
    ~Dimension() override { MPI_Group_free(&group_); }
    void along(int low) override {
      MPI_Win_post(group_, 0, window_);
      MPI_Win_start(group_, 0, window_);
      put(low);
      put(low + 1);
      MPI_Win_complete(window_);
      MPI_Win_wait(window_);
    }

   private:
    MPI_Group group_ = MPI_GROUP_NULL;
  };
  Dimension& of(int side) { return *dimensions_[static_cast<std::size_t>(side / 2)]; }

  std::vector<std::unique_ptr<Dimension>> dimensions_;
};

/// Passive target: puts, flushes, and increments a counter at the target. There are two copies of incoming rows,
/// because a neighbour may be one exchange ahead, but never two.
class LockAll : public Window {
 public:
  LockAll(const RankGrid& grid, std::size_t words) : Window(grid, words, 2) {
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  ~LockAll() override {
    MPI_Barrier(World::get().all());
    MPI_Win_unlock_all(window_);
  }
  void begin() override { ++count_; }
  void along(int low) override {
    put(low, count_ & 1);
    put(low + 1, count_ & 1);
    for (const int side : {low, low + 1}) {
      MPI_Win_flush(peer(side), window_);
      MPI_Accumulate(&one_, 1, MPI_UINT64_T, peer(side), static_cast<MPI_Aint>(counter(opposite(side))), 1,
                     MPI_UINT64_T, MPI_SUM, window_);
      MPI_Win_flush(peer(side), window_);
    }
    wait_in_window(window_, [&] {
      const auto has_arrived = [&](int side) {
        return std::atomic_ref<std::uint64_t>(memory_[counter(side)]).load(std::memory_order_acquire) >= count_;
      };
      return has_arrived(low) && has_arrived(low + 1);
    });
  }
  Row in(int side) override { return {memory_ + place(side, count_ & 1)}; }

 private:
  std::size_t counter(int side) const { return place(0, 2) + static_cast<std::size_t>(side) * kStride; }
  std::uint64_t count_ = 0, one_ = 1;
};

/// Stores into the neighbour's memory, if all ranks share memory: first rows, then a counter.
class SharedMemoryHalo : public Halo {
 public:
  SharedMemoryHalo(const RankGrid& grid, std::size_t words) : Halo(grid, words) {
    World& world = World::get();
    for (const Member& m : world.members())
      if (m.node != world.members().front().node) throw Absent("not all ranks share memory", "ranks of one host");
    out_.resize(static_cast<std::size_t>(grid.sides()) * words);
    const std::size_t total_words = place(0, 2) + static_cast<std::size_t>(grid.sides()) * kStride;
    std::uint64_t* local_memory = nullptr;
    World::get().check_all(MPI_Win_allocate_shared(static_cast<MPI_Aint>(total_words * 8), 8, MPI_INFO_NULL,
                                                   world.all(), static_cast<void*>(&local_memory), &window_),
                           "MPI_Win_allocate_shared");
    std::memset(local_memory, 0, total_words * 8);
    for (int side = 0; side <= grid.sides(); ++side) {
      const int owner = side == grid.sides() ? world.rank() : grid.neighbour[static_cast<std::size_t>(side)];
      MPI_Aint bytes = 0;
      int unit = 0;
      memory_.push_back(nullptr);
      check(MPI_Win_shared_query(window_, owner, &bytes, &unit, static_cast<void*>(&memory_.back())),
            "MPI_Win_shared_query");
    }
    MPI_Barrier(world.all());
  }
  ~SharedMemoryHalo() override { MPI_Win_free(&window_); }
  void begin() override { ++count_; }
  void along(int low) override {
    for (const int side : {low, low + 1}) {
      std::uint64_t* const remote = memory_[static_cast<std::size_t>(side)];
      std::memcpy(remote + place(opposite(side), count_ & 1), out(side).first, words_ * 8);
      std::atomic_ref<std::uint64_t>(remote[counter(opposite(side))]).store(count_, std::memory_order_release);
    }
    for (const int side : {low, low + 1})
      wait_until([&] {
        return std::atomic_ref<std::uint64_t>(memory_.back()[counter(side)]).load(std::memory_order_acquire) >= count_;
      });
  }
  Row out(int side) override { return {out_.data() + static_cast<std::size_t>(side) * words_}; }
  Row in(int side) override { return {memory_.back() + place(side, count_ & 1)}; }

 private:
  std::size_t place(int side, std::size_t copy) const {
    return (copy * static_cast<std::size_t>(grid_.sides()) + static_cast<std::size_t>(side)) * words_;
  }
  std::size_t counter(int side) const { return place(0, 2) + static_cast<std::size_t>(side) * kStride; }
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::uint64_t*> memory_;  // of each neighbour, then of this rank
  Words out_;
  std::uint64_t count_ = 0;
};

/// Rows of every second dimension are strided, like the columns of a field. They are gathered by an MPI datatype, or by
/// packing.
template <bool copies>
class ColumnHalo : public Halo {
 public:
  ColumnHalo(const RankGrid& grid, std::size_t words) : Halo(grid, words), n_(words_of(words)) {
    const auto sides = static_cast<std::size_t>(grid.sides());
    out_.resize(sides * words * kStride);
    in_.resize(sides * words * kStride);
    if (copies) {
      packed_.resize(4 * words);
    } else {
      check(MPI_Type_vector(n_, 1, static_cast<int>(kStride), MPI_UINT64_T, &column_), "MPI_Type_vector");
      check(MPI_Type_commit(&column_), "MPI_Type_commit");
    }
  }
  ~ColumnHalo() override {
    if (column_ != MPI_DATATYPE_NULL) MPI_Type_free(&column_);
  }
  Row out(int side) override { return {out_.data() + static_cast<std::size_t>(side) * words_ * kStride, stride(side)}; }
  Row in(int side) override { return {in_.data() + static_cast<std::size_t>(side) * words_ * kStride, stride(side)}; }
  void along(int low) override {
    const MPI_Comm comm = World::get().all();
    MPI_Request requests[4];
    const bool strided = stride(low) > 1;
    const auto peer = [&](int side) { return grid_.neighbour[static_cast<std::size_t>(side)]; };
    if (strided && copies) {
      std::uint64_t* const buffer = packed_.data();
      for (int k = 0; k < 2; ++k) {
        const Row row = out(low + k);
        std::uint64_t* const target = buffer + static_cast<std::size_t>(k) * words_;
        for (std::size_t i = 0; i < words_; ++i) target[i] = row[i];
      }
      for (int k = 0; k < 2; ++k)
        MPI_Irecv(buffer + static_cast<std::size_t>(2 + k) * words_, n_, MPI_UINT64_T, peer(low + k), opposite(low + k),
                  comm, requests + k);
      for (int k = 0; k < 2; ++k)
        MPI_Isend(buffer + static_cast<std::size_t>(k) * words_, n_, MPI_UINT64_T, peer(low + k), low + k, comm,
                  requests + 2 + k);
      MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
      for (int k = 0; k < 2; ++k) {
        const Row row = in(low + k);
        const std::uint64_t* const source = buffer + static_cast<std::size_t>(2 + k) * words_;
        for (std::size_t i = 0; i < words_; ++i) row[i] = source[i];
      }
      return;
    }
    const MPI_Datatype type = strided ? column_ : MPI_UINT64_T;
    const int count = strided ? 1 : n_;
    for (int k = 0; k < 2; ++k)
      MPI_Irecv(in(low + k).first, count, type, peer(low + k), opposite(low + k), comm, requests + k);
    for (int k = 0; k < 2; ++k)
      MPI_Isend(out(low + k).first, count, type, peer(low + k), low + k, comm, requests + 2 + k);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  }

 private:
  static std::size_t stride(int side) { return side / 2 % 2 == 1 ? kStride : 1; }
  int n_;
  MPI_Datatype column_ = MPI_DATATYPE_NULL;
  Words out_, in_, packed_;
};

template <class T>
std::unique_ptr<Halo> make_halo(const RankGrid& grid, std::size_t words) {
  return std::make_unique<T>(grid, words);
}

}  // namespace

std::vector<HaloProtocol> mpi_halos() {
  return {
      {"sendrecv", "mpi", "MPI_Sendrecv", make_halo<SendRecv>},
      {"isend_irecv", "mpi", "MPI_Isend, then MPI_Irecv", make_halo<Immediate<false>>},
      {"irecv_isend", "mpi", "MPI_Irecv, then MPI_Isend", make_halo<Immediate<true>>},
      {"persistent_isend_irecv", "mpi", "the same with persistent requests", make_halo<Persistent<false>>},
      {"persistent_irecv_isend", "mpi", "the same with persistent requests", make_halo<Persistent<true>>},
      {"neighbour", "mpi", "MPI_Neighbor_alltoall, a ring per dimension", make_halo<Neighbours>},
#ifdef MM_PERSISTENT_NEIGHBOURS
      {"neighbour_persistent", "mpi", "MPI_Neighbor_alltoall_init", make_halo<PersistentNeighbours>},
#else
      {"neighbour_persistent", "mpi", "MPI_Neighbor_alltoall_init", nullptr, "this library is older than MPI 4"},
#endif
      {"rma_fence", "mpi", "MPI_Put between fences", make_halo<Fence>},
      {"rma_pscw", "mpi", "MPI_Put between post, start, complete and wait", make_halo<PostStart>},
      {"rma_lock_all", "mpi", "MPI_Put, flush, and a counter at the target", make_halo<LockAll>, "", 3},
      {"shared", "mpi", "stores into a window that ranks of a host share", make_halo<SharedMemoryHalo>, "", 3},
      {"datatype", "mpi", "irecv_isend, every second dimension strided, by MPI_Type_vector",
       make_halo<ColumnHalo<false>>, "", 2 * kStride},
      {"packed", "mpi", "irecv_isend, every second dimension strided, packed by the program",
       make_halo<ColumnHalo<true>>, "", 2 * kStride + 1},
  };
}

#ifndef MM_SHMEM
std::vector<HaloProtocol> shmem_halos() {
  return {{"shmem_put", "shmem", "shmem_put, fence, flag", nullptr, "this build has no OpenSHMEM"}};
}
#endif
#ifndef MM_CAF
std::vector<HaloProtocol> caf_halos() {
  const char* const reason = "this build has no co-arrays";
  return {{"caf_sync", "caf", "co-array put, sync images", nullptr, reason},
          {"caf_events", "caf", "co-array put, event post and wait", nullptr, reason}};
}
#endif

}  // namespace mm::mpi

#include "mpi/reductions/reduction.hpp"

#include <atomic>
#include <cstring>

#include "base/error.hpp"

namespace mm::mpi {
namespace {

class LibraryReduction : public Reduction {
 public:
  void add(double* numbers, int n) override {
    MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, World::get().all());
  }
};

/// Each rank writes its numbers and a counter where all ranks can read them, and sums the numbers of all ranks in
/// order. There are two copies, because a rank may be one sum ahead, but never two.
class SharedReduction : public Reduction {
 public:
  explicit SharedReduction(int max_numbers) : stride_((static_cast<std::size_t>(max_numbers) / 8 + 1) * 8) {
    World& world = World::get();
    for (const Member& m : world.members())
      if (m.node != world.members().front().node) throw Absent("not all ranks share memory", "ranks of one host");
    std::uint64_t* local_memory = nullptr;
    const std::size_t bytes = 2 * stride_ * 8;
    check(MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 8, MPI_INFO_NULL, world.all(),
                                  static_cast<void*>(&local_memory), &window_),
          "MPI_Win_allocate_shared");
    std::memset(local_memory, 0, bytes);
    for (int r = 0; r < world.size(); ++r) {
      MPI_Aint size = 0;
      int unit = 0;
      memory_.push_back(nullptr);
      check(MPI_Win_shared_query(window_, r, &size, &unit, static_cast<void*>(&memory_.back())),
            "MPI_Win_shared_query");
    }
    check(MPI_Barrier(world.all()), "MPI_Barrier");
  }
  ~SharedReduction() override { MPI_Win_free(&window_); }
  void add(double* numbers, int n) override {
    ++count_;
    const std::size_t offset = (count_ & 1) * stride_;
    std::uint64_t* const local = memory_[static_cast<std::size_t>(World::get().rank())] + offset;
    std::memcpy(local + 1, numbers, static_cast<std::size_t>(n) * 8);
    std::atomic_ref<std::uint64_t>(*local).store(count_, std::memory_order_release);
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      std::uint64_t* const remote = memory_[r] + offset;
      wait_until([&] { return std::atomic_ref<std::uint64_t>(*remote).load(std::memory_order_acquire) >= count_; });
      for (int i = 0; i < n; ++i) {
        double number = 0;
        std::memcpy(&number, remote + 1 + i, 8);
        numbers[i] = r == 0 ? number : numbers[i] + number;
      }
    }
  }

 private:
  std::size_t stride_;  // words: a counter and numbers, in separate cache lines
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::uint64_t*> memory_;  // by rank
  std::uint64_t count_ = 0;
};

}  // namespace

std::string reduction_name(const HaloProtocol& protocol) {
  if (protocol.name == "shared") return "shared";
  if (protocol.paradigm == "shmem") return "shmem_put";
  return protocol.paradigm == "caf" ? "co_sum" : "allreduce";
}

std::unique_ptr<Reduction> make_reduction(const HaloProtocol& protocol, int max_numbers) {
  const std::string name = reduction_name(protocol);
  if (name == "shared") return std::make_unique<SharedReduction>(max_numbers);
#ifdef MM_SHMEM
  if (name == "shmem_put") return make_shmem_reduction(max_numbers);
#endif
#ifdef MM_CAF
  if (name == "co_sum") return make_caf_reduction(max_numbers);
#endif
  return std::make_unique<LibraryReduction>();
}

}  // namespace mm::mpi

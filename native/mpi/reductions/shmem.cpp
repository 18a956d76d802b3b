/// Global sums by OpenSHMEM: each rank puts its numbers, then a counter, to every other rank, and sums in order.
#include <shmem.h>

#include <cstring>

#include "mpi/protocols/shmem.hpp"
#include "mpi/reductions/reduction.hpp"

namespace mm::mpi {
namespace {

class ShmemReduction : public Reduction {
 public:
  explicit ShmemReduction(int max_numbers)
      : stride_((static_cast<std::size_t>(max_numbers) / 8 + 1) * 8),
        ranks_(static_cast<std::size_t>(World::get().size())) {
    const std::size_t total_words = 2 * ranks_ * stride_;
    memory_ = shmem_words(total_words);
    std::memset(memory_, 0, total_words * 8);
    shmem_barrier_all();
  }
  ~ShmemReduction() override {
    shmem_barrier_all();
    shmem_free(memory_);
  }
  void add(double* numbers, int n) override {
    ++count_;
    const auto rank = static_cast<std::size_t>(World::get().rank());
    for (std::size_t step = 1; step < ranks_; ++step)
      shmem_put64(place(rank) + 1, numbers, static_cast<std::size_t>(n), static_cast<int>((rank + step) % ranks_));
    shmem_fence();  // orders numbers before counters, for each rank
    for (std::size_t step = 1; step < ranks_; ++step)
      shmem_uint64_p(place(rank), count_, static_cast<int>((rank + step) % ranks_));
    std::memcpy(place(rank) + 1, numbers, static_cast<std::size_t>(n) * 8);
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r != rank) shmem_uint64_wait_until(place(r), SHMEM_CMP_GE, count_);
      for (int i = 0; i < n; ++i) {
        double number = 0;
        std::memcpy(&number, place(r) + 1 + i, 8);
        numbers[i] = r == 0 ? number : numbers[i] + number;
      }
    }
  }

 private:
  // There are two copies, because a rank may be one sum ahead.
  std::uint64_t* place(std::size_t rank) const { return memory_ + ((count_ & 1) * ranks_ + rank) * stride_; }
  std::size_t stride_, ranks_;  // words: a counter and numbers
  std::uint64_t* memory_ = nullptr;
  std::uint64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Reduction> make_shmem_reduction(int max_numbers) {
  return std::make_unique<ShmemReduction>(max_numbers);
}

}  // namespace mm::mpi

/// The halo exchange by OpenSHMEM: puts a row, fences, puts a flag, and waits for the flags of both neighbours.
#include <shmem.h>

#include <cstring>

#include "base/error.hpp"
#include "mpi/protocols/halo.hpp"
#include "mpi/protocols/shmem.hpp"

namespace mm::mpi {
namespace {

class ShmemPut : public Halo {
 public:
  ShmemPut(const RankGrid& grid, std::size_t words)
      : Halo(grid, words), sides_(static_cast<std::size_t>(grid.sides())) {
    const std::size_t total_words = 2 * sides_ * words + sides_ * kLine;
    memory_ = shmem_words(total_words);
    out_.resize(sides_ * words);
    std::memset(memory_, 0, total_words * 8);
    shmem_barrier_all();
  }
  ~ShmemPut() override {
    shmem_barrier_all();
    shmem_free(memory_);
  }
  void begin() override { ++count_; }
  void along(int low) override {
    for (const int side : {low, low + 1})
      shmem_put64(memory_ + place(opposite(side)), out(side).first, words_, peer(side));
    shmem_fence();  // orders rows before flags, for each neighbour
    for (const int side : {low, low + 1}) shmem_uint64_p(flag(opposite(side)), count_, peer(side));
    for (const int side : {low, low + 1}) shmem_uint64_wait_until(flag(side), SHMEM_CMP_GE, count_);
  }
  Row out(int side) override { return {out_.data() + static_cast<std::size_t>(side) * words_}; }
  Row in(int side) override { return {memory_ + place(side)}; }

 private:
  static constexpr std::size_t kLine = 8;
  int peer(int side) const { return grid_.neighbour[static_cast<std::size_t>(side)]; }
  // There are two copies, because a neighbour may be one exchange ahead.
  std::size_t place(int side) const { return ((count_ & 1) * sides_ + static_cast<std::size_t>(side)) * words_; }
  std::uint64_t* flag(int side) const { return memory_ + 2 * sides_ * words_ + static_cast<std::size_t>(side) * kLine; }
  std::size_t sides_;
  std::uint64_t* memory_ = nullptr;
  std::uint64_t count_ = 0;
  Words out_;
};

}  // namespace

std::vector<HaloProtocol> shmem_halos() {
  return {{"shmem_put", "shmem", "shmem_put, fence, flag",
           [](const RankGrid& grid, std::size_t words) -> std::unique_ptr<Halo> {
             return std::make_unique<ShmemPut>(grid, words);
           },
           "", 3}};
}

}  // namespace mm::mpi

/// The halo exchange by co-arrays: two protocols on top of halo_caf.f90.
#include <stdexcept>

#include "base/error.hpp"
#include "mpi/protocols/caf.hpp"
#include "mpi/protocols/halo.hpp"

extern "C" {
int mm_caf_open(std::size_t words, int sides);
int mm_caf_images();
void mm_caf_close();
void* mm_caf_in(int side);
void mm_caf_next();
void mm_caf_exchange(std::size_t words, int low, const std::uint64_t* to_low, const std::uint64_t* to_high,
                     int image_low, int image_high, int by_events);
}

namespace mm::mpi {
namespace {

/// The module has one set of co-arrays, which all protocols of one size share.
class Caf : public Halo {
 public:
  Caf(const RankGrid& grid, std::size_t words, bool events) : Halo(grid, words), events_(events) {
    start_coarrays();
    World& world = World::get();
    if (mm_caf_images() != world.size())
      throw Absent("the co-array library has " + std::to_string(mm_caf_images()) + " images, MPI " +
                   std::to_string(world.size()) + " ranks");
    if (users_ > 0 && (open_words_ != words || open_sides_ != grid.sides()))
      throw std::logic_error("co-arrays of two sizes at the same time");
    if (users_ == 0) {
      const int image = mm_caf_open(words, grid.sides());
      if (image < 0) throw Absent("co-arrays of " + std::to_string(words) + " words: out of memory");
      if (image != world.rank() + 1) throw Absent("image numbers do not correspond to ranks");
      open_words_ = words;
      open_sides_ = grid.sides();
    }
    ++users_;
    out_.resize(static_cast<std::size_t>(grid.sides()) * words);
  }
  ~Caf() override {
    if (--users_ == 0) mm_caf_close();
  }
  void begin() override { mm_caf_next(); }
  void along(int low) override {
    mm_caf_exchange(words_, low, out(low).first, out(low + 1).first, image(low), image(low + 1), events_ ? 1 : 0);
  }
  Row out(int side) override { return {out_.data() + static_cast<std::size_t>(side) * words_}; }
  Row in(int side) override { return {static_cast<std::uint64_t*>(mm_caf_in(side))}; }

 private:
  int image(int side) const { return grid_.neighbour[static_cast<std::size_t>(side)] + 1; }
  static inline int users_ = 0, open_sides_ = 0;
  static inline std::size_t open_words_ = 0;
  bool events_;
  Words out_;
};

template <bool events>
std::unique_ptr<Halo> make_halo(const RankGrid& grid, std::size_t words) {
  return std::make_unique<Caf>(grid, words, events);
}

}  // namespace

std::vector<HaloProtocol> caf_halos() {
  return {{"caf_sync", "caf", "co-array put, sync images", make_halo<false>, "", 3},
          {"caf_events", "caf", "co-array put, event post and wait", make_halo<true>, "", 3}};
}

}  // namespace mm::mpi

#include "mpi/protocols/shmem.hpp"

#include <shmem.h>

#include <string>

#include "base/error.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {

std::uint64_t* shmem_words(std::size_t words) {
  static const bool started = [] {
    shmem_init();
    World::get().at_end(shmem_finalize);
    return true;
  }();
  (void)started;
  World& world = World::get();
  if (shmem_n_pes() != world.size() || shmem_my_pe() != world.rank())
    throw Absent("OpenSHMEM has " + std::to_string(shmem_n_pes()) + " PEs, numbered differently from the " +
                     std::to_string(world.size()) + " ranks of MPI",
                 "the launcher of the library that provides both");
  void* const memory = shmem_malloc(words * sizeof(std::uint64_t));
  if (memory == nullptr)
    throw Absent("the symmetric heap does not hold " + std::to_string(words * 8) + " bytes",
                 "a larger SHMEM_SYMMETRIC_SIZE in the environment");
  return static_cast<std::uint64_t*>(memory);
}

}  // namespace mm::mpi

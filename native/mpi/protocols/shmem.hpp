#pragma once
/// OpenSHMEM next to MPI in one process: PEs are ranks.
#include <cstddef>
#include <cstdint>

namespace mm::mpi {

/// Allocates symmetric memory, starting OpenSHMEM on the first call. Collective; Absent if the heap is too small.
std::uint64_t* shmem_words(std::size_t words);

}  // namespace mm::mpi

#pragma once
/// OpenSHMEM beside MPI in one process. PEs are ranks.
#include <cstddef>
#include <cstdint>

namespace mm::mpi {

/// Allocates symmetric memory, and starts OpenSHMEM on the first call. Throws Absent if the heap is too small.
/// Collective.
std::uint64_t* shmem_words(std::size_t words);

}  // namespace mm::mpi

#pragma once
/// OpenSHMEM beside MPI in one process: PEs are ranks.
#include <cstddef>
#include <cstdint>

namespace mm::mpi {

/// Starts OpenSHMEM at its first call. Symmetric memory of so many words. Collective; Absent where there is none.
std::uint64_t* shmem_words(std::size_t words);

}  // namespace mm::mpi

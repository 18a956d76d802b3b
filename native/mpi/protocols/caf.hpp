#pragma once
/// Co-arrays beside MPI in one process: images are ranks, numbered from one.

namespace mm::mpi {

/// Starts the co-array library at its first call. Collective.
void start_coarrays();

}  // namespace mm::mpi

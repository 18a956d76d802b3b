#pragma once
/// Co-arrays beside MPI in one process. Images are ranks, numbered from 1.

namespace mm::mpi {

/// Starts the co-array library on the first call. Collective.
void start_coarrays();

}  // namespace mm::mpi

#pragma once
/// Co-arrays next to MPI in one process: images are ranks, numbered from 1.

namespace mm::mpi {

/// Starts the co-array library on the first call. Collective.
void start_coarrays();

}  // namespace mm::mpi

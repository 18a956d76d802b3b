#pragma once
/// Global sums of a few numbers, in the paradigm of an application's halo.
#include <memory>
#include <string>

#include "mpi/protocols/halo.hpp"

namespace mm::mpi {

class Reduction {
 public:
  Reduction() = default;
  virtual ~Reduction() = default;
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;
  /// Replaces each number by its sum over all ranks, with the same bits on all ranks.
  virtual void add(double* numbers, int n) = 0;
};

/// Returns the name of the reduction that corresponds to a halo protocol: "allreduce", "shared", "shmem_put", "co_sum".
std::string reduction_name(const HaloProtocol& protocol);
/// Creates a reduction of up to `max_numbers`. Throws Absent if it is not available. Collective.
std::unique_ptr<Reduction> make_reduction(const HaloProtocol& protocol, int max_numbers);

std::unique_ptr<Reduction> make_shmem_reduction(int max_numbers);
std::unique_ptr<Reduction> make_caf_reduction(int max_numbers);

}  // namespace mm::mpi

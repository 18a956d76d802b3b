#pragma once
/// Sums of a few numbers over all ranks, in the paradigm of a program's halo.
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
  /// Each number becomes the sum of all ranks', the same bits on all.
  virtual void add(double* numbers, int n) = 0;
};

/// "allreduce", "shared", "shmem_put", "co_sum": how sums go beside that protocol.
std::string reduction_name(const HaloProtocol& how);
/// Of at most so many numbers. Collective; Absent where it cannot be had.
std::unique_ptr<Reduction> make_reduction(const HaloProtocol& how, int most);

std::unique_ptr<Reduction> make_shmem_reduction(int most);
std::unique_ptr<Reduction> make_caf_reduction(int most);

}  // namespace mm::mpi

#pragma once
/// Sums of a few numbers over all ranks, in the paradigm of a program's halo.
#include <memory>
#include <string>

#include "halo.hpp"

namespace mm::comm {

class Sum {
 public:
  Sum() = default;
  virtual ~Sum() = default;
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;
  /// Each number becomes the sum of all ranks', the same bits on all.
  virtual void add(double* numbers, int n) = 0;
};

/// "allreduce", "shared", "shmem_put", "co_sum": how sums go beside that protocol.
std::string sum_name(const HaloProtocol& how);
/// Of at most so many numbers. Collective; Absent where it cannot be had.
std::unique_ptr<Sum> make_sum(const HaloProtocol& how, int most);

std::unique_ptr<Sum> make_shmem_sum(int most);
std::unique_ptr<Sum> make_caf_sum(int most);

}  // namespace mm::comm

/// Global sums by co-arrays: co_sum in caf.f90.
#include "mpi/reductions/reduction.hpp"

extern "C" void mm_caf_sum(double* numbers, int n);

namespace mm::mpi {
namespace {

class CafReduction : public Reduction {
 public:
  void add(double* numbers, int n) override { mm_caf_sum(numbers, n); }
};

}  // namespace

/// Requires that a halo by co-arrays exists, which has started their library.
std::unique_ptr<Reduction> make_caf_reduction(int) { return std::make_unique<CafReduction>(); }

}  // namespace mm::mpi

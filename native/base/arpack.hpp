#pragma once
/// The largest eigenvalues of a symmetric matrix through the installed ARPACK library, loaded at run time.
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mm {

class Arpack {
 public:
  /// Loads the library. The linear algebra library under it has `threads` threads, as far as it obeys the usual
  /// variables. Throws Absent, with the packages to install, if there is none.
  static std::shared_ptr<const Arpack> load(int threads);

  struct Problem {
    int rows, values, basis;
    double tolerance;                                      ///< of a residual, relative to the eigenvalue
    std::function<void(const double*, double*)> multiply;  ///< y = A x
  };
  /// Numbers that `solve` needs: the start vector, work vectors, and the basis with a stride of `rows`.
  static std::size_t words(std::size_t rows, int basis);

  struct Solution {
    std::vector<double> values;  ///< descending; empty if the library did not converge
    std::vector<const double*> vectors;
    int products = 0, info = 0;
  };
  /// Implicitly restarted Lanczos (dsaupd, dseupd). The first `rows` numbers of `memory` are the vector to start with,
  /// which becomes the residual.
  Solution solve(const Problem& problem, double* memory) const;

  std::string path, blas_path;

 private:
  using Step = void (*)(int*, const char*, const int*, const char*, const int*, const double*, double*, const int*,
                        double*, const int*, int*, int*, double*, double*, const int*, int*, std::size_t, std::size_t);
  using Extract = void (*)(const int*, const char*, int*, double*, double*, const int*, const double*, const char*,
                           const int*, const char*, const int*, const double*, double*, const int*, double*, const int*,
                           int*, int*, double*, double*, const int*, int*, std::size_t, std::size_t, std::size_t);
  Step step_ = nullptr;
  Extract extract_ = nullptr;
};

}  // namespace mm

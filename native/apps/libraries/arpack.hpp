#pragma once
/// The largest eigenvalues of a symmetric matrix through the installed ARPACK library, loaded at run time.
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mm {

class Arpack {
 public:
  /// Loads the library. The linear algebra library that it calls uses `threads` threads, as far as it obeys the usual
  /// environment variables. Throws Absent, with the packages to install, if ARPACK is not installed.
  static std::shared_ptr<const Arpack> load(int threads);

  struct Problem {
    int rows, values, basis;
    double tolerance;                                      ///< largest residual, relative to the eigenvalue
    std::function<void(const double*, double*)> multiply;  ///< y = A x
  };
  /// Returns how many numbers `solve` needs for the start vector, the work vectors, and the basis with a stride of
  /// `rows`.
  static std::size_t words(std::size_t rows, int basis);

  struct Solution {
    std::vector<double> values;  ///< descending; empty if the library did not converge
    std::vector<const double*> vectors;
    int products = 0, info = 0;
  };
  /// Runs the implicitly restarted Lanczos method (dsaupd, dseupd). The first `rows` numbers of `memory` are the start
  /// vector, which the residual overwrites.
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

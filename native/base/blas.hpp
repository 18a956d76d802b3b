#pragma once
/// Linear algebra through whichever BLAS is installed, chosen at run time.
#include <memory>
#include <string>
#include <vector>

namespace mm {

/// One loaded library. Matrices are column-major, integers are 32 bits wide (LP64).
class Blas {
 public:
  /// `which`: auto, openblas, mkl, blis, flexiblas, reference, or a path. Binds nothing: the calling thread's affinity
  /// is what the library's own threads inherit. `kernel`: for OpenBLAS a core name, or "auto" for the fastest of those
  /// that this processor can run, by a short trial of each in a child process. Absent: none is installed (with the
  /// packages to install); UsageError: no such library.
  static std::unique_ptr<Blas> load(const std::string& which, const std::string& kernel, int threads);
  virtual ~Blas() = default;

  /// C = A · B, all n × n.
  virtual void multiply(int n, const double* a, const double* b, double* c) const = 0;
  /// Solves A x = b in place by LU with partial pivoting: A becomes its factors, b becomes x. Returns LAPACK's info.
  virtual int solve(int n, double* a, int* pivots, double* b) const = 0;
  virtual bool can_solve() const = 0;

  struct Trial {
    std::string kernel;
    double flop_rate;
  };
  std::string name;       ///< "OpenBLAS", "BLIS" …
  std::string version;    ///< as the library says
  std::string kernel;     ///< the kernel it runs, "" where it does not say
  std::string chosen_by;  ///< "library", "trial", "user" or "environment": who chose the kernel
  std::string path;
  std::vector<Trial> trials;
};

}  // namespace mm

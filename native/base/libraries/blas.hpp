#pragma once
/// Linear algebra through the installed BLAS library, selected at run time.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mm {

/// Sets the environment variables from which libraries take the number of their threads when they are loaded.
void limit_library_threads(int threads);

/// A loaded library. Matrices are column-major. The library's integers have 32 or 64 bits (LP64 or ILP64).
class Blas {
 public:
  /// Loads a library. `which` is openblas, mkl, blis, flexiblas, reference, a path, or "auto" for the fastest installed
  /// library. `kernel` is a core name of OpenBLAS, or "auto" for the fastest kernel on this processor. Short trials in
  /// child processes, whose products are verified, decide both. If the system has no optimised library, the libraries
  /// that the environment variable MESHMARK_BLAS names are tried, too: those that Python packages contain. With
  /// `solve`, a library that does not contain LAPACK is not chosen. Does not bind threads: the library's threads
  /// inherit the affinity of the calling thread. Throws Absent (with the packages to install) if no library is
  /// installed, and UsageError for an unknown library.
  static std::unique_ptr<Blas> load(const std::string& which, const std::string& kernel, int threads, bool solve);
  virtual ~Blas() = default;

  /// Computes C = A · B. All matrices are n × n.
  virtual void multiply(int n, const double* a, const double* b, double* c) const = 0;
  /// Solves A x = b in place by LU with partial pivoting: the factors overwrite A, and x overwrites b. `pivots` is
  /// memory for n integers of the library. Returns LAPACK's info.
  virtual int solve(int n, double* a, std::int64_t* pivots, double* b) const = 0;
  virtual bool can_solve() const = 0;
  /// Work memory of `eigen`.
  struct EigenWork {
    std::vector<double> numbers;
    std::vector<std::int64_t> integers;  ///< memory for as many integers of the library
  };
  /// Computes the eigenvalues, ascending, and the eigenvectors of a symmetric matrix by divide and conquer (dsyevd).
  /// The eigenvectors overwrite the columns of A. `work` keeps its memory between calls. Returns LAPACK's info.
  virtual int eigen(int n, double* a, double* values, EigenWork& work) const = 0;
  virtual bool can_eigen() const = 0;

  struct Trial {
    std::string name;  ///< name of OpenBLAS's kernel, or of the library
    double flop_rate;  ///< flop/s; 0 if it crashed or its product was wrong
  };
  std::string name;       ///< "OpenBLAS", "BLIS", "OpenBLAS of NumPy" …
  std::string version;    ///< as the library reports it
  std::string kernel;     ///< the kernel in use; "" if the library does not report it
  std::string chosen_by;  ///< "library", "trial", "user" or "environment"
  std::string path;
  std::vector<Trial> trials;
  std::vector<std::string> missing;  ///< optimised libraries that were looked for and are not installed
};

}  // namespace mm

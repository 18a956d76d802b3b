#pragma once
/// A sparse symmetric matrix whose spectrum is known, and its largest eigenvalues by the Lanczos method, with rows
/// divided over threads.
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.hpp"

namespace mm::workloads {

/// Differences on a cube of edge³ points with another coefficient in each direction, so that its eigenvalues are
/// distinct: the sum over directions of c (2 - 2 cos(pi i / (edge + 1))). Compressed rows with columns of 32 bits.
class GridMatrix {
 public:
  static constexpr int kMinEdge = 4, kMaxEdge = 400;

  /// If `scattered`, the points are numbered at random, so that a product gathers from all of its vector.
  GridMatrix(int edge, bool scattered, std::uint64_t seed);

  std::size_t rows() const { return n_; }
  std::size_t entries() const { return starts_.back(); }
  std::size_t bytes() const;
  /// Sets the memory of the matrix: `bytes()` bytes, which must outlive it. Afterwards each thread calls `fill` for
  /// rows of its own.
  void place(std::byte* memory);
  void fill(std::size_t first, std::size_t end);
  /// Computes rows first … end - 1 of y = A x.
  void multiply(std::size_t first, std::size_t end, const double* x, double* y) const;
  /// Returns the largest eigenvalues by their formula, in descending order.
  std::vector<double> largest(int count) const;

 private:
  std::size_t neighbours(std::size_t point, std::size_t* of, double* coefficients) const;

  std::size_t edge_, n_;
  std::vector<std::uint32_t> point_of_, row_of_;  ///< empty if rows are points
  std::vector<std::size_t> starts_;
  double* entries_ = nullptr;
  std::uint32_t *columns_ = nullptr, *row_starts_ = nullptr;
};

/// Solves the symmetric eigenproblem of a small matrix by Jacobi rotations. `a`, n × n, becomes diagonal, and row i of
/// the result is the eigenvector of diagonal entry i.
std::vector<double> jacobi(std::vector<double>& a, int n);

/// The Lanczos method with a basis of fixed size, full reorthogonalisation and thick restarts. All threads call `solve`
/// together. For a given number of threads and kind of vector instructions, every bit is the same each time.
class Lanczos {
 public:
  static constexpr int kMaxRestarts = 1000;
  static std::size_t bytes(std::size_t rows, int basis) {
    return stride(rows) * (static_cast<std::size_t>(basis) + 1) * sizeof(double);
  }

  /// `memory` has `bytes()` bytes, aligned to 64 B. The method computes `values` eigenvalues with residuals below
  /// `tolerance` times their magnitude. `isa` is a kind of vector instructions, as `best_isa` names it.
  Lanczos(const GridMatrix& matrix, int values, int basis, double tolerance, std::size_t threads, std::byte* memory,
          std::string_view isa);

  /// Sets rows of the vector to start with: random numbers by row and seed.
  static void random_rows(std::size_t first, std::size_t end, std::uint64_t seed, double* v);
  /// Returns the first row of a thread. The rows of a thread end at the first row of the next thread.
  static std::size_t first_row(std::size_t rows, std::size_t threads, std::size_t thread);
  /// Touches the rows of a thread in the basis first. Called on every thread.
  void touch(std::size_t thread);
  /// Solves the eigenproblem. Called on every thread.
  void solve(std::size_t thread, std::uint64_t seed);

  /// Return the eigenvalues in descending order, and their vectors, after `solve`.
  const std::vector<double>& values() const { return found_; }
  const double* vector(int which) const { return basis_ + static_cast<std::size_t>(which) * stride(n_); }
  bool converged() const { return converged_; }
  int products() const { return products_; }
  double product_s() const { return product_s_; }  ///< time of all products
  double flops() const { return flops_; }

 private:
  static std::size_t stride(std::size_t rows) { return (rows + 7) / 8 * 8 + 8; }  // not a power of two
  struct alignas(64) Sums {
    std::vector<double> of[2];  ///< two in alternation: one is added up while the next is written
  };
  /// The state that each thread keeps for itself. The numbers are the same on all threads.
  struct Own {
    std::size_t thread, first, end;
    std::vector<double> projected;  ///< basis × basis
    std::vector<double> sums;
    int turn = 0, products = 0;
    double product_s = 0, flops = 0;
  };
  struct Loops;
  double* column(int j) const { return basis_ + static_cast<std::size_t>(j) * stride(n_); }
  void start(Own& own, std::uint64_t seed);
  double extend(Own& own, int j);
  double normalise(Own& own, double* w, double square);
  void reduce(Own& own, int count);
  void combine(const Own& own, const std::vector<double>& vectors, const std::vector<int>& order, int kept);

  const GridMatrix& matrix_;
  std::size_t n_;
  int wanted_, size_;
  double tolerance_;
  double* basis_;
  std::shared_ptr<const Loops> loops_;
  std::vector<Sums> sums_;
  std::barrier<> meeting_;
  std::vector<double> found_;
  bool converged_ = false;
  int products_ = 0;
  double product_s_ = 0, flops_ = 0;
};

}  // namespace mm::workloads

/// The sparse matrix of mod2e, and its eigenvalues by Lanczos.
#include "apps/models/sparse.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/isa.hpp"

namespace {

using mm::workloads::GridMatrix;
using mm::workloads::jacobi;
using mm::workloads::Lanczos;

using Numbers = std::vector<double>;

/// A matrix in memory of its own.
class GridProblem {
 public:
  GridProblem(int edge, bool scattered) : matrix_(edge, scattered, 5), memory_(matrix_.bytes() / sizeof(double) + 1) {
    matrix_.place(reinterpret_cast<std::byte*>(memory_.data()));
    matrix_.fill(0, matrix_.rows());
  }
  const GridMatrix& matrix() const { return matrix_; }
  Numbers times(const Numbers& x) const {
    Numbers y(x.size());
    matrix_.multiply(0, x.size(), x.data(), y.data());
    return y;
  }
  /// Row-major.
  Numbers dense() const {
    const std::size_t n = matrix_.rows();
    Numbers all(n * n);
    for (std::size_t j = 0; j < n; ++j) {
      Numbers unit(n);
      unit[j] = 1;
      const Numbers column = times(unit);
      for (std::size_t i = 0; i < n; ++i) all[i * n + j] = column[i];
    }
    return all;
  }

 private:
  GridMatrix matrix_;
  Numbers memory_;
};

/// A solver on threads of its own.
struct Solved {
  Solved(const GridMatrix& matrix, std::size_t threads, double tolerance = 1e-10,
         std::string_view isa = mm::best_fixed_isa())
      : memory(Lanczos::bytes(matrix.rows(), 24) / sizeof(double)),
        lanczos(matrix, 6, 24, tolerance, threads, reinterpret_cast<std::byte*>(memory.data()), isa) {
    std::vector<std::jthread> all;
    for (std::size_t t = 0; t < threads; ++t)
      all.emplace_back([this, t] {
        lanczos.touch(t);
        lanczos.solve(t, 3);
      });
  }
  Numbers memory;
  Lanczos lanczos;
};

TEST(Jacobi, FindsTheSpectrumOfAMatrixWithAFormula) {
  constexpr int n = 24;
  Numbers a(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    a[i * n + i] = 2;
    if (i > 0) a[i * n + i - 1] = a[(i - 1) * n + i] = -1;
  }
  const Numbers before = a, vectors = jacobi(a, n);
  for (std::size_t k = 0; k < n; ++k) {
    double nearest = 1;
    for (int i = 1; i <= n; ++i) nearest = std::min(nearest, std::fabs(a[k * n + k] - 2 + 2 * std::cos(i * M_PI / 25)));
    EXPECT_LT(nearest, 1e-13);
    for (std::size_t i = 0; i < n; ++i) {
      double product = 0;
      for (std::size_t j = 0; j < n; ++j) product += before[i * n + j] * vectors[k * n + j];
      EXPECT_NEAR(product, a[k * n + k] * vectors[k * n + i], 1e-13);
    }
  }
}

TEST(GridMatrix, IsSymmetricWithTheSpectrumOfItsFormula) {
  for (const bool scattered : {false, true}) {
    const GridProblem made(5, scattered);
    const std::size_t n = made.matrix().rows();
    ASSERT_EQ(n, 125);
    EXPECT_EQ(made.matrix().entries(), 7 * 125 - 6 * 25) << "each face lacks a neighbour of each of its points";
    Numbers all = made.dense();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < i; ++j) ASSERT_EQ(all[i * n + j], all[j * n + i]);
    jacobi(all, static_cast<int>(n));
    Numbers values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(all[i * n + i]);
    std::sort(values.rbegin(), values.rend());
    const Numbers expected = made.matrix().largest(20);
    for (std::size_t k = 0; k < 20; ++k) EXPECT_NEAR(values[k], expected[k], 1e-12) << k;
  }
}

TEST(GridMatrix, IsScatteredByRandomNumbersOfTheSameMatrix) {
  const GridProblem straight(6, false), scattered(6, true);
  std::size_t far = 0;
  for (std::size_t i = 0; i < 216; ++i) {
    Numbers unit(216);
    unit[i] = 1;
    const Numbers column = scattered.times(unit);
    for (std::size_t j = 0; j < 216; ++j) far += column[j] != 0 && (i > j ? i - j : j - i) > 36;
  }
  EXPECT_GT(far, 300) << "most neighbours have distant numbers";
  EXPECT_EQ(straight.matrix().entries(), scattered.matrix().entries());
}

TEST(Lanczos, FindsTheLargestEigenvaluesOnAnyNumberOfThreads) {
  for (const bool scattered : {false, true}) {
    const GridProblem made(14, scattered);
    const Numbers expected = made.matrix().largest(6);
    for (const std::size_t threads : {1U, 2U, 5U}) {
      const Solved solved(made.matrix(), threads);
      ASSERT_TRUE(solved.lanczos.converged());
      for (std::size_t k = 0; k < 6; ++k) {
        EXPECT_NEAR(solved.lanczos.values()[k] / expected[k], 1, 1e-12);
        const double* const x = solved.lanczos.vector(static_cast<int>(k));
        const Numbers vector(x, x + made.matrix().rows()), product = made.times(vector);
        double residual = 0, square = 0;
        for (std::size_t i = 0; i < vector.size(); ++i) {
          residual += std::pow(product[i] - expected[k] * x[i], 2);
          square += x[i] * x[i];
        }
        EXPECT_LT(std::sqrt(residual), 1e-9 * expected[k]);
        EXPECT_NEAR(square, 1, 1e-12);
      }
    }
  }
}

TEST(Lanczos, FindsThemWithAllInstructions) {
  const GridProblem made(9, false);
  const Numbers expected = made.matrix().largest(6);
  for (const std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa)) continue;
    const Solved solved(made.matrix(), 2, 1e-10, isa);
    for (std::size_t k = 0; k < 6; ++k) EXPECT_NEAR(solved.lanczos.values()[k] / expected[k], 1, 1e-12) << isa;
  }
}

TEST(Lanczos, RepeatsItsBits) {
  const GridProblem made(12, true);
  const Solved one(made.matrix(), 3), other(made.matrix(), 3);
  EXPECT_EQ(one.lanczos.values(), other.lanczos.values());
  EXPECT_EQ(one.lanczos.products(), other.lanczos.products());
  EXPECT_EQ(one.memory, other.memory);
}

TEST(Lanczos, CountsItsOperations) {
  const GridProblem made(8, false);
  const Solved solved(made.matrix(), 2, 1);  // any vectors will do, so it ends with the first basis
  const double rows = 512, entries = 7 * 512 - 6 * 64;
  EXPECT_EQ(solved.lanczos.products(), 24);
  double vectors = 0;
  for (int j = 1; j <= 24; ++j) vectors += 8 * j + 3;
  EXPECT_EQ(solved.lanczos.flops(), 24 * 2 * entries + rows * (vectors + 2 * 24 * 6));
}

}  // namespace

/// cg: the smallest eigenvalue of a random sparse matrix, by inverse iteration with conjugate gradients.
///
/// Ranks form a grid of R rows and f R columns. Rank (i, j) holds block (i, j) of the matrix and part j of every
/// vector. A product is reduced and scattered along a row of ranks, so that R ranks hold each of its parts, and then
/// swapped with the rank across the diagonal.
#include <algorithm>
#include <cmath>

#include "apps/npb/npb.hpp"

namespace mm::mpi::npb {
namespace {

struct SparseMatrixClass {
  const char* name;
  int rows, nonzeros;  ///< of the random vectors that form the matrix
  int iterations;
  double shift, zeta;  ///< from the report
};
constexpr SparseMatrixClass kClasses[] = {{"S", 1400, 7, 15, 10, 8.5971775078648},
                                          {"W", 7000, 8, 15, 12, 10.362595087124},
                                          {"A", 14000, 11, 15, 20, 17.130235054029},
                                          {"B", 75000, 13, 75, 60, 22.712745482631},
                                          {"C", 150000, 15, 75, 110, 28.973605592845}};
constexpr int kInner = 25;
constexpr double kCondition = 0.1, kTolerance = 1e-10;

struct Nonzero {
  int at;
  double value;
};

/// Returns the random vectors whose outer products form the matrix: each has few nonzeros, and the value 0.5 at its own
/// index.
std::vector<std::vector<Nonzero>> random_vectors(const SparseMatrixClass& problem) {
  Random random(kSeed, 1);  // the reference program draws one number first
  std::uint64_t power = 1;
  while (power < static_cast<std::uint64_t>(problem.rows)) power *= 2;
  std::vector<std::vector<Nonzero>> vectors(static_cast<std::size_t>(problem.rows));
  for (int row = 0; row < problem.rows; ++row) {
    auto& vector = vectors[static_cast<std::size_t>(row)];
    const auto find = [&](int index) {
      return std::find_if(vector.begin(), vector.end(), [index](const Nonzero& e) { return e.at == index; });
    };
    while (vector.size() < static_cast<std::size_t>(problem.nonzeros)) {
      const double value = random.next();
      const int index = static_cast<int>(random.bits() * power >> 46);
      if (index < problem.rows && find(index) == vector.end()) vector.push_back({index, value});
    }
    if (const auto entry = find(row); entry != vector.end())
      entry->value = 0.5;
    else
      vector.push_back({row, 0.5});
  }
  return vectors;
}

/// A block of the matrix in compressed sparse rows.
struct Sparse {
  std::vector<std::size_t> begin;  ///< begin of each row, and the end of the last row
  Array<int> column;               ///< within the block
  Array<double> value;

  Sparse(const SparseMatrixClass& problem, std::size_t row0, std::size_t row1, std::size_t column0,
         std::size_t column1) {
    const auto vectors = random_vectors(problem);
    const auto inside = [](int index, std::size_t from, std::size_t to) {
      return static_cast<std::size_t>(index) >= from && static_cast<std::size_t>(index) < to;
    };
    std::vector<std::vector<Nonzero>> rows(row1 - row0);
    const double ratio = std::pow(kCondition, 1.0 / problem.rows);
    double scale = 1;
    for (int v = 0; v < problem.rows; ++v, scale *= ratio) {
      const auto& vector = vectors[static_cast<std::size_t>(v)];
      for (const Nonzero& left : vector) {
        if (!inside(left.at, row0, row1)) continue;
        auto& row = rows[static_cast<std::size_t>(left.at) - row0];
        for (const Nonzero& right : vector) {
          if (!inside(right.at, column0, column1)) continue;
          double product = right.value * (scale * left.value);
          if (left.at == v && right.at == v) product += kCondition - problem.shift;
          row.push_back({right.at - static_cast<int>(column0), product});
        }
      }
    }
    in_parts(rows.size(), [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) merge(rows[i]);
    });
    begin.push_back(0);
    for (const auto& row : rows) begin.push_back(begin.back() + row.size());
    column = Array<int>(begin.back());
    value = Array<double>(begin.back());
    in_parts(rows.size(), [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        for (std::size_t k = 0; k < rows[i].size(); ++k) {
          column[begin[i] + k] = rows[i][k].at;
          value[begin[i] + k] = rows[i][k].value;
        }
        rows[i] = {};
      }
    });
  }

  void times(const double* x, double* y) const {
    in_parts(begin.size() - 1, [&](std::size_t first, std::size_t last) {
      for (std::size_t row = first; row < last; ++row) {
        const double* const v = value.data() + begin[row];
        const int* const c = column.data() + begin[row];
        y[row] = in_fours(begin[row + 1] - begin[row], [=](std::size_t k) { return v[k] * x[c[k]]; });
      }
    });
  }

 private:
  /// Orders a row by column, and adds the entries that belong to the same column.
  static void merge(std::vector<Nonzero>& row) {
    std::stable_sort(row.begin(), row.end(), [](const Nonzero& a, const Nonzero& b) { return a.at < b.at; });
    std::size_t size = 0;
    for (const Nonzero& e : row)
      if (size > 0 && row[size - 1].at == e.at)
        row[size - 1].value += e.value;
      else
        row[size++] = e;
    row.resize(size);
  }
};

class Gradients final : public NpbKernel {
 public:
  explicit Gradients(const SparseMatrixClass& problem)
      : problem_(problem),
        matrix_(problem, start(row_ * factor_), start((row_ + 1) * factor_), start(column_), start(column_ + 1)),
        x_(zeros<double>(start(column_ + 1) - start(column_))),
        z_(zeros<double>(x_.size())),
        p_(zeros<double>(x_.size())),
        r_(zeros<double>(x_.size())),
        q_(zeros<double>(x_.size())),
        sums_(zeros<double>(matrix_.begin.size() - 1)),
        piece_(zeros<double>(length(row_ * factor_ + slot_))) {
    for (int s = 0; s < factor_; ++s) lengths_.push_back(static_cast<int>(length(row_ * factor_ + s)));
  }

  void prepare() override {
    near_.split(row_ * side_ + place_, slot_);
    across_.split(row_ * factor_ + slot_, place_);
    row_of_ranks_.split(row_, column_);
  }
  void reset() override { fill(x_, 1.0); }

  void solve() override {
    for (int i = 0; i < problem_.iterations; ++i) {
      approximate();
      double products[2] = {dot(x_, z_), dot(z_, z_)};
      sum(products, 2, row_of_ranks_.get());
      zeta_ = problem_.shift + 1 / products[0];
      const double scale = 1 / std::sqrt(products[1]);
      each([&](std::size_t k) { x_[k] = scale * z_[k]; });
    }
  }

  std::string verify() override { return differs("zeta", problem_.zeta, zeta_, kTolerance); }
  json observed() const override { return {{"zeta", zeta_}, {"residual_norm", residual_}}; }

 private:
  static int side_of(int ranks) {
    int side = 1;
    for (int s = 2; s * s <= ranks; ++s)
      if (ranks % (s * s) == 0) side = s;
    return side;
  }
  std::size_t start(int segment) const {
    return part(static_cast<std::size_t>(problem_.rows),
                static_cast<std::size_t>(side_) * static_cast<std::size_t>(factor_), static_cast<std::size_t>(segment));
  }
  std::size_t length(int segment) const { return start(segment + 1) - start(segment); }

  static double dot(const Array<double>& a, const Array<double>& b) {
    return sum_in_parts(a.size(), [&](std::size_t first, std::size_t last) {
      const double *const from_a = a.data() + first, *const from_b = b.data() + first;
      return in_fours(last - first, [=](std::size_t k) { return from_a[k] * from_b[k]; });
    });
  }
  /// Calls work(k) for all elements of a vector.
  template <class Work>
  void each(const Work& work) {
    in_parts(x_.size(), [&](std::size_t first, std::size_t last) {
      for (std::size_t k = first; k < last; ++k) work(k);
    });
  }
  double total(double number) {
    sum(&number, 1, row_of_ranks_.get());
    return number;
  }

  /// Computes y = A x, on each rank its part.
  void product(const Array<double>& x, Array<double>& y) {
    if (ranks_ == 1) return matrix_.times(x.data(), y.data());
    matrix_.times(x.data(), sums_.data());
    Array<double>& target = side_ == 1 ? y : piece_;
    if (factor_ == 1)
      target.swap(sums_);
    else
      library([&] {
        check(MPI_Reduce_scatter(sums_.data(), target.data(), lengths_.data(), MPI_DOUBLE, MPI_SUM, near_.get()),
              "MPI_Reduce_scatter");
      });
    if (side_ == 1) return;
    sum(target.data(), static_cast<int>(target.size()), across_.get());
    const int partner = place_ * side_ * factor_ + row_ * factor_ + slot_;
    if (partner == rank_)
      std::copy(target.begin(), target.end(), y.begin());
    else
      library([&] {
        check(MPI_Sendrecv(target.data(), static_cast<int>(target.size()), MPI_DOUBLE, partner, 0, y.data(),
                           static_cast<int>(y.size()), MPI_DOUBLE, partner, 0, all_, MPI_STATUS_IGNORE),
              "MPI_Sendrecv");
      });
  }

  /// Computes z, approximately x / A, by a fixed number of steps, and the norm of the residual.
  void approximate() {
    each([&](std::size_t k) {
      z_[k] = 0;
      r_[k] = p_[k] = x_[k];
    });
    double rho = total(dot(r_, r_));
    for (int i = 0; i < kInner; ++i) {
      product(p_, q_);
      const double alpha = rho / total(dot(p_, q_));
      each([&](std::size_t k) {
        z_[k] += alpha * p_[k];
        r_[k] -= alpha * q_[k];
      });
      const double next = total(dot(r_, r_));
      const double beta = next / rho;
      rho = next;
      each([&](std::size_t k) { p_[k] = r_[k] + beta * p_[k]; });
    }
    product(z_, q_);
    each([&](std::size_t k) { r_[k] = x_[k] - q_[k]; });
    residual_ = std::sqrt(total(dot(r_, r_)));
  }

  const SparseMatrixClass& problem_;
  const int side_ = side_of(ranks_), factor_ = ranks_ / (side_ * side_);
  const int row_ = rank_ / (side_ * factor_), column_ = rank_ % (side_ * factor_);
  const int place_ = column_ / factor_, slot_ = column_ % factor_;  // column = place × factor + slot
  Communicator near_, across_, row_of_ranks_;
  const Sparse matrix_;
  Array<double> x_, z_, p_, r_, q_, sums_, piece_;
  std::vector<int> lengths_;  // lengths of the parts of this row's product
  double zeta_ = 0, residual_ = 0;
};

}  // namespace

std::vector<Problem> cg_problems() {
  std::vector<Problem> problems;
  for (const SparseMatrixClass& c : kClasses) {
    const double products = c.nonzeros * (c.nonzeros + 1);
    problems.push_back(
        {.kernel = "cg",
         .class_name = c.name,
         .size = std::to_string(c.rows) + " rows",
         .operations = 2.0 * c.iterations * c.rows * (3 + products + kInner * (5 + products) + 3),
         .bytes = 28.0 * c.rows * (products + c.nonzeros + 1),  // two formats of the matrix during construction
         .max_ranks = c.rows / 10,
         .make = [&c](bool) { return std::make_shared<Gradients>(c); }});
  }
  return problems;
}

}  // namespace mm::mpi::npb

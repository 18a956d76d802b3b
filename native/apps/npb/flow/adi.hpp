#pragma once
/// The common part of bt and sp: an implicit step solves once along each direction of the cube.
#include <array>

#include "apps/npb/flow/flow.hpp"

namespace mm::mpi::npb {

constexpr std::size_t kLanes = 4;
/// One number of each of several adjacent lines, which are solved at once.
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

/// Lines along one direction. There are `lanes` times `outers` lines.
struct GridLines {
  const double* u[kUnknowns];  ///< end of the first line, on the surface
  double* rhs[kUnknowns];
  std::size_t along, lane, outer;  ///< distances of points, of adjacent lines, and of groups of `lanes`
  std::size_t lanes, outers;
};

/// Up to kLanes adjacent lines. If there are fewer, the last line stands in for the missing ones.
class LineBatch {
 public:
  LineBatch(const GridLines& lines, std::size_t outer, std::size_t first) : lines_(lines) {
    for (std::size_t k = 0; k < kLanes; ++k)
      at_[k] = outer * lines.outer + (first + k < lines.lanes ? first + k : lines.lanes - 1) * lines.lane;
  }
  void load_rhs(std::size_t i, Lanes* values) const {
    for (std::size_t m = 0; m < kUnknowns; ++m) load(lines_.rhs[m] + i * lines_.along, values[m]);
  }
  void store_rhs(std::size_t i, const Lanes* values) const {
    for (std::size_t m = 0; m < kUnknowns; ++m)
      for (std::size_t k = 0; k < kLanes; ++k) lines_.rhs[m][i * lines_.along + at_[k]] = values[m][k];
  }
  void load_point(std::size_t i, FlowState<Lanes>& p) const {
    Lanes u[kUnknowns];
    for (std::size_t m = 0; m < kUnknowns; ++m) load(lines_.u[m] + i * lines_.along, u[m]);
    p.set(u[1], u[2], u[3], u[4], 1.0 / u[0]);
  }

 private:
  void load(const double* from, Lanes& values) const {
    for (std::size_t k = 0; k < kLanes; ++k) values[k] = from[at_[k]];
  }

  const GridLines& lines_;
  std::size_t at_[kLanes];
};

class AlternatingDirections : public Flow {
 public:
  explicit AlternatingDirections(const FlowClass& problem);
  void solve() override;

 protected:
  /// Solves along x, y, or z: rhs becomes the change of u, in the form that the next direction needs. Threads call this
  /// function.
  virtual void solve_batch(int direction, const LineBatch& batch) = 0;

 private:
  void solve_lines(int direction, const GridLines& lines);
  void find_residual() override;
  void solve_z();
  void solve_z_across_slabs();

  struct Rows {
    std::size_t first, count;
  };
  /// Return the inner rows along y that a rank holds while it solves along z, and its planes.
  Rows rows_of(int rank) const;
  Rows planes_of(int rank) const;

  std::vector<double> give_, take_;      ///< buffers for the exchange between ranks
  std::array<Array<double>, 10> whole_;  ///< u and rhs of this rank's rows, from the bottom to the top
};

}  // namespace mm::mpi::npb

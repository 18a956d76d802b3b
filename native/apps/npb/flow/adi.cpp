#include "apps/npb/flow/adi.hpp"

#include <algorithm>

namespace mm::mpi::npb {

AlternatingDirections::AlternatingDirections(const FlowClass& problem) : Flow(problem) {
  if (ranks_ == 1) return;
  const std::size_t rows = rows_of(rank_).count;
  for (auto& field : whole_) field = zeros<double>(n_ * rows * n_);
  give_.resize(whole_.size() * std::max(planes_ * (n_ - 2), n_ * rows) * n_);
  take_.resize(give_.size());
}

AlternatingDirections::Rows AlternatingDirections::rows_of(int rank) const {
  const auto ranks = static_cast<std::size_t>(ranks_), r = static_cast<std::size_t>(rank);
  const std::size_t first = part(n_ - 2, ranks, r);
  return {first + 1, part(n_ - 2, ranks, r + 1) - first};
}

AlternatingDirections::Rows AlternatingDirections::planes_of(int rank) const {
  const auto ranks = static_cast<std::size_t>(ranks_), r = static_cast<std::size_t>(rank);
  const std::size_t first = part(n_, ranks, r);
  return {first, part(n_, ranks, r + 1) - first};
}

void AlternatingDirections::solve() {
  const std::size_t planes = static_cast<std::size_t>(end() - begin()), inner = n_ - 2;
  for (int i = 0; i < problem_.steps; ++i) {
    compute_rhs(problem_.step);
    GridLines lines{.u = {}, .rhs = {}, .along = 1, .lane = n_, .outer = n_ * n_, .lanes = inner, .outers = planes};
    const auto set_start = [&](std::size_t first) {
      for (std::size_t m = 0; m < kUnknowns; ++m) lines.u[m] = u_.at[m] + first, lines.rhs[m] = rhs_.at[m] + first;
    };
    set_start(at(begin(), 1, 0));
    solve_lines(0, lines);
    std::swap(lines.along, lines.lane);
    set_start(at(begin(), 0, 1));
    solve_lines(1, lines);
    solve_z();
    add_rhs(1);
  }
}

void AlternatingDirections::solve_lines(int direction, const GridLines& lines) {
  const std::size_t batches = (lines.lanes + kLanes - 1) / kLanes;
  in_parts(lines.outers * batches, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i)
      solve_batch(direction, LineBatch(lines, i / batches, i % batches * kLanes));
  });
}

void AlternatingDirections::find_residual() {
  compute_rhs(1);
  norms(rhs_.at, residual_);
}

void AlternatingDirections::solve_z() {
  if (ranks_ > 1) return solve_z_across_slabs();
  GridLines lines{.u = {}, .rhs = {}, .along = n_ * n_, .lane = 1, .outer = n_, .lanes = n_ - 2, .outers = n_ - 2};
  for (std::size_t m = 0; m < kUnknowns; ++m)
    lines.u[m] = u_.at[m] + at(0, 1, 1), lines.rhs[m] = rhs_.at[m] + at(0, 1, 1);
  solve_lines(2, lines);
}

void AlternatingDirections::solve_z_across_slabs() {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const Rows local = rows_of(rank_);
  std::vector<int> slabs(ranks), slabs_at(ranks), rows(ranks), rows_at(ranks);  // counts and offsets of one field
  for (int r = 0, slab = 0, row = 0; r < ranks_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    slabs_at[i] = slab;
    rows_at[i] = row;
    slabs[i] = static_cast<int>(planes_ * rows_of(r).count * n_);
    rows[i] = static_cast<int>(planes_of(r).count * local.count * n_);
    slab += slabs[i];
    row += rows[i];
  }
  const auto times = [](std::vector<int> counts, std::size_t fields) {
    for (int& count : counts) count *= static_cast<int>(fields);
    return counts;
  };
  const auto swap = [&](std::size_t fields, bool back) {
    const auto& out = back ? rows : slabs;
    const auto& out_at = back ? rows_at : slabs_at;
    const auto& in = back ? slabs : rows;
    const auto& in_at = back ? slabs_at : rows_at;
    library([&] {
      check(MPI_Alltoallv(give_.data(), times(out, fields).data(), times(out_at, fields).data(), MPI_DOUBLE,
                          take_.data(), times(in, fields).data(), times(in_at, fields).data(), MPI_DOUBLE, all_),
            "MPI_Alltoallv");
    });
  };

  double* give = give_.data();
  for (int r = 0; r < ranks_; ++r) {
    const Rows remote = rows_of(r);
    for (std::size_t f = 0; f < whole_.size(); ++f)
      for (std::size_t z = 0; z < planes_; ++z)
        give = std::copy_n(
            (f < kUnknowns ? u_.at[f] : rhs_.at[f - kUnknowns]) + at(static_cast<std::ptrdiff_t>(z), remote.first, 0),
            remote.count * n_, give);
  }
  swap(whole_.size(), false);
  const double* take = take_.data();
  for (int r = 0; r < ranks_; ++r) {
    const Rows planes = planes_of(r);
    const std::size_t count = planes.count * local.count * n_;
    for (auto& field : whole_) {
      std::copy_n(take, count, field.data() + planes.first * local.count * n_);
      take += count;
    }
  }

  GridLines lines{
      .u = {}, .rhs = {}, .along = local.count * n_, .lane = 1, .outer = n_, .lanes = n_ - 2, .outers = local.count};
  for (std::size_t m = 0; m < kUnknowns; ++m)
    lines.u[m] = whole_[m].data() + 1, lines.rhs[m] = whole_[kUnknowns + m].data() + 1;
  solve_lines(2, lines);

  give = give_.data();
  for (int r = 0; r < ranks_; ++r) {
    const Rows planes = planes_of(r);
    for (std::size_t m = 0; m < kUnknowns; ++m)
      give = std::copy_n(whole_[kUnknowns + m].data() + planes.first * local.count * n_,
                         planes.count * local.count * n_, give);
  }
  swap(kUnknowns, true);
  take = take_.data();
  for (int r = 0; r < ranks_; ++r) {
    const Rows remote = rows_of(r);
    for (std::size_t m = 0; m < kUnknowns; ++m)
      for (std::size_t z = 0; z < planes_; ++z, take += remote.count * n_)
        std::copy_n(take, remote.count * n_, rhs_.at[m] + at(static_cast<std::ptrdiff_t>(z), remote.first, 0));
  }
}

}  // namespace mm::mpi::npb

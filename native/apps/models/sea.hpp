#pragma once
/// Shallow water on a staggered grid, which ranks (`swim` of meshmark-comm) and threads (`swim_threads`) divide by
/// rows.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mm::workloads {

/// Rows of a doubly periodic sea, with a border of ghost cells, on an Arakawa C grid: p is at the centre of a cell, u
/// on its western and v on its southern side. The scheme is Sadourny's potential-enstrophy-conserving scheme, with
/// leapfrog steps of 30 s and no time filter. Every bit is the same for any division into rows and any vector width.
class Sea {
 public:
  /// A row with its border: cells 0 and cells + 1 are periodic copies.
  struct Row {
    const double *p, *u, *v;
  };
  /// Mass, energy (above a level sea at rest) and potential enstrophy.
  using Invariants = std::array<double, 3>;

  /// Memory traffic of a step beyond the caches, in bytes per cell: two time levels of three fields are read, and the
  /// older one is overwritten. Lines that are written were read before, so no lines are read for ownership.
  static constexpr double kBytes = 9 * 8;
  /// Operations of a step, in flop per cell: four fluxes (3 + 3 + 8 + 9) and three updates (11 + 11 + 5).
  static constexpr double kFlops = 50;

  /// Returns how many numbers the fields of these rows occupy.
  static std::size_t words(int cells, int rows);

  /// Creates rows first … first + rows - 1 of `cells`, each with `cells` cells, in memory of its own.
  Sea(int cells, int first, int rows);
  /// Creates the same rows in `memory` of `words` numbers, which must be aligned to a cache line and outlive the
  /// object.
  Sea(int cells, int first, int rows, double* memory);

  /// Sets vortices in balance with their pressure, and a gravity wave that crosses them.
  void begin();

  /// Computes one step: a forward step first, leapfrog steps afterwards. `south` and `north` are the adjacent rows of
  /// the present level. `isa` is a kind of vector instructions, as `best_isa` names it.
  void step(Row south, Row north, std::string_view isa);

  /// Returns row 1 … rows() of the present level, or ghost row 0 or rows() + 1. After an odd number of steps `later`,
  /// the present level is the other one.
  Row row(int j, int later = 0) const;
  /// Returns the cells of ghost row 0 or rows() + 1, in the order p, u, v. Call `wrap` after filling them.
  std::array<double*, 3> ghost(int j);
  /// Sets the border of a ghost row, which is periodic from west to east.
  void wrap(int j);

  /// Returns the invariants of these rows.
  Invariants invariants(Row south, Row north) const;
  /// Returns a hash of all bits and their positions. The hash of the whole sea is the sum over its parts.
  std::uint64_t digest() const;

  int rows() const { return rows_; }
  int cells() const { return cells_; }

 private:
  struct Fields {
    double *p, *u, *v;
  };
  void fields_in(double* memory);
  std::size_t stride() const;
  std::size_t at(int i, int j) const { return static_cast<std::size_t>(j) * stride() + static_cast<std::size_t>(i); }
  void wrap(const Fields& level, int j) const;

  int cells_, first_, rows_;
  bool started_ = false;
  std::vector<double> own_;
  Fields now_{}, old_{};
};

/// Returns the hash of the whole sea after `steps` steps of one thread.
std::uint64_t sea_digest(int cells, int steps);

/// Returns the relative changes of the invariants.
Sea::Invariants sea_drifts(const Sea::Invariants& before, const Sea::Invariants& after);
/// Returns "" if the relative changes are as small as they must be after `runs` runs, otherwise the first one that is
/// not. Mass is conserved to roundoff. The scheme conserves energy up to the resolution of the grid, and enstrophy up
/// to the resolution of the step.
std::string sea_violation(const Sea::Invariants& drifts, int cells, double runs);

}  // namespace mm::workloads

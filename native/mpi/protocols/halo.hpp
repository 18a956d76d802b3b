#pragma once
/// The halo exchange: every rank of a grid sends a row to each of its neighbours, one dimension after the other. One
/// pattern, and a class for each way of doing it.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "mpi/harness/world.hpp"

namespace mm::mpi {

/// Ranks on a torus. Side 2d of dimension d is the lower neighbour, side 2d + 1 the higher one; in two dimensions the
/// sides are south, north, west and east.
struct Grid {
  std::vector<int> extent;  ///< ranks a dimension
  std::vector<int> neighbour;

  /// Extents as near to one another as the number of ranks allows.
  static Grid make(int dimensions);
  /// Pre: the product of the extents is the number of ranks. The last dimension's neighbours are the next ranks.
  static Grid of(const std::vector<int>& extent);
  int dimensions() const { return static_cast<int>(extent.size()); }
  int sides() const { return 2 * dimensions(); }
  std::string name() const;  ///< "2x1"
};

constexpr int opposite(int side) { return side ^ 1; }

/// Where a row is: words apart by a stride.
struct Row {
  std::uint64_t* first;
  std::size_t stride = 1;
  std::uint64_t& operator[](std::size_t i) const { return first[i * stride]; }
};

class Halo {
 public:
  Halo(const Grid& grid, std::size_t words) : grid_(grid), words_(words) {}
  virtual ~Halo() = default;
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  /// Sends what is in every `out` row to the neighbour on that side, so that it is in the neighbour's opposite `in` row
  /// when the neighbour returns: dimension 0 first, and dimension 1 only when that has come.
  void exchange() {
    begin();
    for (int low = 0; low < grid_.sides(); low += 2) along(low);
  }
  /// The same in parts, for rows of one dimension that hold what came in an earlier one. On all ranks alike; a
  /// dimension may be left out, then always.
  virtual void begin() {}
  virtual void along(int low) = 0;  ///< the dimension of sides low and low + 1
  virtual Row out(int side) = 0;
  virtual Row in(int side) = 0;  ///< of the last exchange

 protected:
  const Grid& grid_;
  std::size_t words_;
};

/// A way of exchanging, by name. `make` is collective and throws Absent with the reason where it cannot be had here.
struct HaloProtocol {
  std::string name, paradigm, summary;
  std::unique_ptr<Halo> (*make)(const Grid& grid, std::size_t words) = nullptr;  ///< null: not in this build
  std::string missing{};                                                         ///< why, then
  double rows = 2;  ///< memory, in rows of all sides: one that goes out and one that comes in
};

std::vector<HaloProtocol> mpi_halos();
std::vector<HaloProtocol> shmem_halos();
std::vector<HaloProtocol> caf_halos();
std::vector<HaloProtocol> all_halos();
/// "all", the paradigms, and the names of protocols: what an option takes.
std::vector<std::string> halo_choices();
/// Of all, those that the option "protocol" asks for; what this build lacks is reported absent for the metric.
std::vector<HaloProtocol> asked_halos(Run& run, const std::string& metric);

}  // namespace mm::mpi

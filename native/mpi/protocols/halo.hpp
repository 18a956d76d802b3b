#pragma once
/// The halo exchange: every rank of a grid sends a row to each of its neighbours, one dimension after the other. Each
/// protocol is a class.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "mpi/harness/world.hpp"

namespace mm::mpi {

/// Ranks on a torus. Side 2d of dimension d is the lower neighbour, side 2d + 1 the higher one; in two dimensions the
/// sides are south, north, west and east.
struct RankGrid {
  std::vector<int> extent;  ///< ranks per dimension
  std::vector<int> neighbour;

  /// Makes a grid whose extents are as equal as the number of ranks allows.
  static RankGrid make(int dimensions);
  /// Makes a grid of these extents, whose product must be the number of ranks. The last dimension's neighbours are the
  /// next ranks.
  static RankGrid of(const std::vector<int>& extent);
  int dimensions() const { return static_cast<int>(extent.size()); }
  int sides() const { return 2 * dimensions(); }
  std::string name() const;  ///< "2x1"
};

constexpr int opposite(int side) { return side ^ 1; }

/// A row: words at a stride.
struct Row {
  std::uint64_t* first;
  std::size_t stride = 1;
  std::uint64_t& operator[](std::size_t i) const { return first[i * stride]; }
};

class Halo {
 public:
  Halo(const RankGrid& grid, std::size_t words) : grid_(grid), words_(words) {}
  virtual ~Halo() = default;
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  /// Sends every `out` row to the neighbour on that side. On return this rank's `in` rows contain the neighbours' rows.
  /// Dimension 1 starts after dimension 0 is complete.
  void exchange() {
    begin();
    for (int low = 0; low < grid_.sides(); low += 2) along(low);
  }
  /// The same exchange in steps, for rows that contain data received in an earlier dimension. All ranks make the same
  /// calls. A dimension may be omitted, but then in every exchange.
  virtual void begin() {}
  virtual void along(int low) = 0;  ///< exchanges in the dimension of sides low and low + 1
  virtual Row out(int side) = 0;
  virtual Row in(int side) = 0;  ///< the row received in the last exchange

 protected:
  const RankGrid& grid_;
  std::size_t words_;
};

/// A protocol of the halo exchange. `make` is collective and throws Absent with the reason if it is not available.
struct HaloProtocol {
  std::string name, paradigm, summary;
  std::unique_ptr<Halo> (*make)(const RankGrid& grid, std::size_t words) = nullptr;  ///< null: not in this build
  std::string missing{};                                                             ///< the reason, if `make` is null
  double rows = 2;  ///< memory, in rows per side: by default one out and one in
};

std::vector<HaloProtocol> mpi_halos();
std::vector<HaloProtocol> shmem_halos();
std::vector<HaloProtocol> caf_halos();
std::vector<HaloProtocol> all_halos();
/// Returns the choices of the option: "all", the paradigms, and the names of protocols.
std::vector<std::string> halo_choices();
/// Returns the protocols that the option "protocol" selects. Protocols that this build lacks are reported as absent for
/// the metric.
std::vector<HaloProtocol> requested_halos(Run& run, const std::string& metric);

}  // namespace mm::mpi

#pragma once
/// A Lennard-Jones crystal that melts: molecular dynamics with neighbour lists, atoms divided over threads.
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mm::workloads {

/// Atoms of mass 1 with truncated Lennard-Jones forces in a periodic cube, in reduced units: density 0.8442, initial
/// temperature 1.44, cutoff 2.5, velocity-Verlet steps of 0.005. Neighbours within 2.8 are listed for both atoms of a
/// pair, and are listed again once an atom has moved by half of the difference. For one kind of vector instructions,
/// every bit is the same for any number of threads.
class Melt {
 public:
  /// Totals of all atoms, or of the atoms of one thread.
  struct Totals {
    double kinetic = 0;
    double potential = 0;  ///< energy of the truncated potential, as it is usually published
    double shifted = 0;    ///< energy of the potential that is 0 at the cutoff; its sum with `kinetic` is conserved
    double momentum[3] = {};
    double pairs = 0;          ///< number of listed neighbours
    std::uint64_t digest = 0;  ///< hash of all bits of positions and velocities and of their atoms; a sum over parts
    Totals& operator+=(const Totals& other);
  };

  /// Unit cells on an edge, of 4 atoms each. At least three cells of neighbours fit.
  static constexpr int kMinEdge = 6, kMaxEdge = 320;
  static std::size_t atoms(int edge) { return 4 * static_cast<std::size_t>(edge) * edge * edge; }
  /// Returns the bytes of the data that all threads read: positions, and the atoms of each cell of neighbours.
  static std::size_t shared_bytes(int edge);
  /// Returns the bytes of the data that only one thread uses: velocities, forces and lists of its atoms.
  static std::size_t own_bytes(int edge, std::size_t threads, std::size_t thread);

  /// `shared` points to `shared_bytes` bytes, and `thread_blocks` to `own_bytes` bytes for each thread. All are aligned
  /// to 64 B, and must outlive the melt. `isa` is a kind of vector instructions, as `best_isa` names it.
  Melt(int edge, std::byte* shared, const std::vector<std::byte*>& thread_blocks, std::string_view isa);

  std::size_t atoms() const { return n_; }

  /// Sets up the crystal, its velocities, the lists and the forces. Called on every thread.
  void begin(std::size_t thread);
  /// Computes steps. Called on every thread.
  void run(std::size_t thread, int steps);
  /// Returns the totals of the atoms of a thread. No thread may step in the meantime.
  Totals totals(std::size_t thread) const;
  /// Returns how many times lists were made since `begin`.
  int lists() const { return parts_.front().lists; }
  /// Returns the operations since `begin`: 21 for each listed pair, and 26 for each atom in each step. Operations that
  /// make lists are not counted.
  double flops() const;
  /// Returns whether some neighbours were left out because there was no memory for them. Everything after that is
  /// wrong.
  bool full() const;

 private:
  struct Vec {
    double x, y, z, unused;
  };
  /// Atoms first … end - 1, and cells first_cell … end_cell - 1, belong to a thread.
  struct alignas(64) Part {
    std::size_t first, end;
    int first_cell, end_cell;
    Vec *velocity, *force, *listed_at;
    std::uint32_t *start, *neighbours;  // the neighbours of each atom begin at `start`
    std::uint8_t* inside;               // by atom: whether none of its neighbours is beyond an edge of the box
    std::size_t capacity;
    double moved = 0;  // largest squared distance of an atom from listed_at
    int lists = 0;
    double flops = 0;
    bool full = false;  // whether there was no memory for some neighbours
  };

  static std::size_t first_atom(std::size_t atoms, std::size_t threads, std::size_t thread) {
    return atoms * thread / threads;
  }
  void set_velocities(Part& part);
  void drift(Part& part);
  void list(Part& part);
  void fill_cells(Part& part);
  void find_neighbours(Part& part);
  void forces(Part& part);
  void kick(Part& part);
  void meet() { meeting_.arrive_and_wait(); }

  int edge_, cells_;  // unit cells, and cells of neighbours, on an edge
  std::size_t n_;
  double box_;
  std::string_view isa_;
  Vec* at_ = nullptr;  // of all atoms; each thread touches its own first
  std::uint32_t *cell_of_ = nullptr, *cell_end_ = nullptr, *in_cells_ = nullptr;
  std::vector<Part> parts_;
  std::barrier<> meeting_;
};

}  // namespace mm::workloads

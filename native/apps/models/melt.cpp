#include "apps/models/melt.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "workloads/kernel.hpp"

namespace mm::workloads {
namespace {

constexpr double kDensity = 0.8442, kTemperature = 1.44, kStep = 0.005;
constexpr double kCutoff = 2.5, kListed = 2.8;
// 78 neighbours are within 2.8 of an atom of the liquid, and 86 of the crystal.
constexpr std::size_t kNeighbours = 100, kSpare = 4096;

// Operations of a pair: 3 distances, 5 for their square, 1 + 2 + 4 for the force over the distance, and 6 for its sums.
// Operations of an atom: 12 for two half-kicks, 6 for the drift, and 8 for the distance that it has moved.
constexpr double kPairFlops = 21, kAtomFlops = 26;

constexpr double square(double x) { return x * x; }
constexpr double sixth(double x) { return square(x) * square(x) * square(x); }
constexpr double kAtCutoff = 4 * (1 / sixth(square(kCutoff)) - 1 / sixth(kCutoff));

double box_of(int edge) { return edge * std::cbrt(4 / kDensity); }
int cells_of(int edge) { return static_cast<int>(box_of(edge) / kListed); }
std::size_t cube(int n) {
  return static_cast<std::size_t>(n) * static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
}

/// Divides memory into arrays that begin with a cache line.
class ArrayAllocator {
 public:
  explicit ArrayAllocator(std::byte* at) : at_(at) {}
  template <class T>
  T* take(std::size_t n) {
    T* const array = reinterpret_cast<T*>(at_);
    at_ += (n * sizeof(T) + kLine - 1) / kLine * kLine;
    return array;
  }

 private:
  std::byte* at_;
};

/// The force of the neighbours in `list` on one atom.
struct Pull {
  double x, y, z;
};

#define MM_INLINE [[gnu::always_inline]] inline

/// Returns the shortest of the distances between periodic images.
MM_INLINE double nearest(double d, double box) { return d - (d > 0.5 * box ? box : 0) + (d < -0.5 * box ? box : 0); }

/// Returns the force on an atom. `kInside`: no neighbour is nearer beyond an edge of the box.
template <bool kInside, class Atom>
MM_INLINE Pull pull_on(const Atom* at, Atom here, const std::uint32_t* list, std::ptrdiff_t n, double box) {
  double fx = 0, fy = 0, fz = 0;
#pragma omp simd reduction(+ : fx, fy, fz)
  for (std::ptrdiff_t k = 0; k < n; ++k) {
    const Atom& other = at[static_cast<std::int32_t>(list[k])];
    double dx = here.x - other.x, dy = here.y - other.y, dz = here.z - other.z;
    if constexpr (!kInside) dx = nearest(dx, box), dy = nearest(dy, box), dz = nearest(dz, box);
    const double r2 = dx * dx + dy * dy + dz * dz, over = 1 / r2, over6 = over * over * over;
    const double f = r2 < kCutoff * kCutoff ? 48 * over6 * (over6 - 0.5) * over : 0;
    fx += f * dx;
    fy += f * dy;
    fz += f * dz;
  }
  return {fx, fy, fz};
}

/// The data of a thread that `forces` needs, for atoms first … end - 1.
template <class Atom>
struct Task {
  const Atom* at;
  std::size_t first, end;
  const std::uint32_t *start, *neighbours;
  const std::uint8_t* inside;
  double box;
  Atom* force;
};

template <class Atom>
MM_INLINE void pull_all(const Task<Atom>& t) {
  for (std::size_t k = 0; k < t.end - t.first; ++k) {
    const Atom atom = t.at[t.first + k];
    const std::uint32_t* const list = t.neighbours + t.start[k];
    const auto n = static_cast<std::ptrdiff_t>(t.start[k + 1] - t.start[k]);
    const Pull f = t.inside[k] ? pull_on<true>(t.at, atom, list, n, t.box) : pull_on<false>(t.at, atom, list, n, t.box);
    t.force[k] = {f.x, f.y, f.z, 0};
  }
}

#if defined(__x86_64__)
template <class Atom>
__attribute__((target("avx512f,avx512dq"))) void pull_avx512(const Task<Atom>& task) {
  pull_all(task);
}
template <class Atom>
__attribute__((target("avx2"))) void pull_avx2(const Task<Atom>& task) {
  pull_all(task);
}
#endif

}  // namespace

Melt::Totals& Melt::Totals::operator+=(const Totals& other) {
  kinetic += other.kinetic;
  potential += other.potential;
  shifted += other.shifted;
  for (int d = 0; d < 3; ++d) momentum[d] += other.momentum[d];
  pairs += other.pairs;
  digest += other.digest;
  return *this;
}

std::size_t Melt::shared_bytes(int edge) {
  const std::size_t n = atoms(edge), cells = cube(cells_of(edge));
  return n * (sizeof(Vec) + 2 * sizeof(std::uint32_t)) + (cells + 1) * sizeof(std::uint32_t) + 4 * kLine;
}

std::size_t Melt::own_bytes(int edge, std::size_t threads, std::size_t thread) {
  const std::size_t count = first_atom(atoms(edge), threads, thread + 1) - first_atom(atoms(edge), threads, thread);
  return count * (3 * sizeof(Vec) + sizeof(std::uint8_t)) +
         (count + 1 + count * kNeighbours + kSpare) * sizeof(std::uint32_t) + 6 * kLine;
}

Melt::Melt(int edge, std::byte* shared, const std::vector<std::byte*>& thread_blocks, std::string_view isa)
    : edge_(edge),
      cells_(cells_of(edge)),
      n_(atoms(edge)),
      box_(box_of(edge)),
      isa_(isa),
      meeting_(static_cast<std::ptrdiff_t>(thread_blocks.size())) {
  ArrayAllocator common(shared);
  at_ = common.take<Vec>(n_);
  cell_of_ = common.take<std::uint32_t>(n_);
  in_cells_ = common.take<std::uint32_t>(n_);
  cell_end_ = common.take<std::uint32_t>(cube(cells_) + 1);
  for (std::size_t t = 0; t < thread_blocks.size(); ++t) {
    Part part{};
    part.first = first_atom(n_, thread_blocks.size(), t);
    part.end = first_atom(n_, thread_blocks.size(), t + 1);
    part.first_cell = static_cast<int>(first_atom(cube(cells_), thread_blocks.size(), t));
    part.end_cell = static_cast<int>(first_atom(cube(cells_), thread_blocks.size(), t + 1));
    const std::size_t count = part.end - part.first;
    ArrayAllocator memory(thread_blocks[t]);
    part.velocity = memory.take<Vec>(count);
    part.force = memory.take<Vec>(count);
    part.listed_at = memory.take<Vec>(count);
    part.inside = memory.take<std::uint8_t>(count);
    part.start = memory.take<std::uint32_t>(count + 1);
    part.capacity = count * kNeighbours + kSpare;
    part.neighbours = memory.take<std::uint32_t>(part.capacity);
    parts_.push_back(part);
  }
}

double Melt::flops() const {
  double sum = 0;
  for (const Part& part : parts_) sum += part.flops;
  return sum;
}

bool Melt::full() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.full; });
}

/// Sets the atoms of the face-centred crystal, one cell after the other, with velocities that depend on the atom alone.
void Melt::begin(std::size_t thread) {
  Part& part = parts_[thread];
  const auto side = static_cast<std::size_t>(edge_);
  const double length = box_ / edge_;
  for (std::size_t i = part.first; i < part.end; ++i) {
    const std::size_t cell = i / 4, corner = i % 4;
    const std::size_t in_row = cell % side, row = cell / side % side, layer = cell / (side * side);
    const auto x = static_cast<double>(in_row), y = static_cast<double>(row), z = static_cast<double>(layer);
    at_[i] = {(x + (corner == 1 || corner == 2 ? 0.75 : 0.25)) * length,
              (y + (corner == 1 || corner == 3 ? 0.75 : 0.25)) * length,
              (z + (corner == 2 || corner == 3 ? 0.75 : 0.25)) * length, 0};
  }
  set_velocities(part);
  part.lists = 0;
  part.full = false;
  if (thread == 0) cell_end_[0] = 0;
  list(part);
  forces(part);
  part.flops = 0;
}

void Melt::set_velocities(Part& part) {
  // Every thread goes through all atoms, so that mean and scale have the same bits for any number of threads.
  const auto velocity = [](std::size_t i) {
    return Vec{unit_real(3 * i) - 0.5, unit_real(3 * i + 1) - 0.5, unit_real(3 * i + 2) - 0.5, 0};
  };
  Vec mean{};
  for (std::size_t i = 0; i < n_; ++i) {
    const Vec v = velocity(i);
    mean = {mean.x + v.x, mean.y + v.y, mean.z + v.z, 0};
  }
  const auto n = static_cast<double>(n_);
  mean = {mean.x / n, mean.y / n, mean.z / n, 0};
  double squares = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    const Vec v = velocity(i);
    squares += square(v.x - mean.x) + square(v.y - mean.y) + square(v.z - mean.z);
  }
  const double scale = std::sqrt(kTemperature * 3 * (n - 1) / squares);
  for (std::size_t i = part.first; i < part.end; ++i) {
    const Vec v = velocity(i);
    part.velocity[i - part.first] = {(v.x - mean.x) * scale, (v.y - mean.y) * scale, (v.z - mean.z) * scale, 0};
  }
}

void Melt::run(std::size_t thread, int steps) {
  Part& part = parts_[thread];
  for (int n = 0; n < steps; ++n) {
    kick(part);
    drift(part);
    meet();  // All atoms have moved.
    double max_moved = 0;
    for (const Part& other : parts_) max_moved = std::max(max_moved, other.moved);
    if (max_moved > square((kListed - kCutoff) / 2)) list(part);
    forces(part);
    kick(part);
    const std::size_t count = part.end - part.first;
    part.flops += kPairFlops * part.start[count] + kAtomFlops * static_cast<double>(count);
    meet();  // No thread reads the positions any more.
  }
}

void Melt::kick(Part& part) {
  for (std::size_t k = 0; k < part.end - part.first; ++k) {
    Vec& v = part.velocity[k];
    const Vec f = part.force[k];
    v = {v.x + 0.5 * kStep * f.x, v.y + 0.5 * kStep * f.y, v.z + 0.5 * kStep * f.z, 0};
  }
}

void Melt::drift(Part& part) {
  double max_moved = 0;
  for (std::size_t i = part.first; i < part.end; ++i) {
    const std::size_t k = i - part.first;
    const Vec v = part.velocity[k], origin = part.listed_at[k];
    Vec& position = at_[i];
    position = {position.x + kStep * v.x, position.y + kStep * v.y, position.z + kStep * v.z, 0};
    max_moved = std::max(max_moved,
                         square(position.x - origin.x) + square(position.y - origin.y) + square(position.z - origin.z));
  }
  part.moved = max_moved;
}

void Melt::list(Part& part) {
  meet();  // All threads know that lists are due, and no thread moves an atom before.
  const double cells_per_length = cells_ / box_;
  const auto side = static_cast<std::uint32_t>(cells_);
  for (std::size_t i = part.first; i < part.end; ++i) {
    std::uint32_t cell = 0;
    for (double* const x : {&at_[i].z, &at_[i].y, &at_[i].x}) {
      *x -= box_ * std::floor(*x / box_);
      cell = cell * side + std::min(static_cast<std::uint32_t>(*x * cells_per_length), side - 1);
    }
    cell_of_[i] = cell;
    part.listed_at[i - part.first] = at_[i];
  }
  part.moved = 0;
  ++part.lists;
  meet();
  fill_cells(part);
  meet();
  find_neighbours(part);
}

/// Orders the atoms by cell, and within a cell by number, so that the result is the same for any number of threads.
void Melt::fill_cells(Part& part) {
  const auto first = static_cast<std::uint32_t>(part.first_cell), end = static_cast<std::uint32_t>(part.end_cell);
  std::uint32_t* const ends = cell_end_ + 1;
  std::fill(ends + first, ends + end, 0);
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    const std::uint32_t cell = cell_of_[i];
    before += cell < first;
    if (cell >= first && cell < end) ++ends[cell];
  }
  for (std::uint32_t cell = first; cell < end; ++cell) {
    const std::uint32_t count = ends[cell];
    ends[cell] = before;  // the cell's begin, which becomes its end while it is filled
    before += count;
  }
  for (std::size_t i = 0; i < n_; ++i) {
    const std::uint32_t cell = cell_of_[i];
    if (cell >= first && cell < end) in_cells_[ends[cell]++] = static_cast<std::uint32_t>(i);
  }
}

void Melt::find_neighbours(Part& part) {
  std::size_t count = 0;
  for (std::size_t i = part.first; i < part.end; ++i) {
    part.start[i - part.first] = static_cast<std::uint32_t>(count);
    const int cell = static_cast<int>(cell_of_[i]);
    const int position[] = {cell % cells_, cell / cells_ % cells_, cell / cells_ / cells_};
    // Until they are listed again, neighbours move less than a cell, so none of these comes nearer beyond an edge.
    part.inside[i - part.first] = std::ranges::all_of(position, [this](int c) { return c > 0 && c < cells_ - 1; });
    for (int neighbour = 0; neighbour < 27; ++neighbour) {
      int target[] = {position[0] + neighbour % 3 - 1, position[1] + neighbour / 3 % 3 - 1,
                      position[2] + neighbour / 9 - 1};
      double image[] = {at_[i].x, at_[i].y, at_[i].z};
      for (int d = 0; d < 3; ++d) {  // beyond the edge, the atom's periodic image is near
        if (target[d] < 0) target[d] += cells_, image[d] += box_;
        if (target[d] >= cells_) target[d] -= cells_, image[d] -= box_;
      }
      const std::uint32_t* const end = cell_end_ + ((target[2] * cells_ + target[1]) * cells_ + target[0]);
      if (count + (end[1] - end[0]) > part.capacity) {
        part.full = true;
        break;
      }
      for (std::uint32_t c = end[0]; c < end[1]; ++c) {
        const std::uint32_t other = in_cells_[c];
        const double r2 =
            square(image[0] - at_[other].x) + square(image[1] - at_[other].y) + square(image[2] - at_[other].z);
        part.neighbours[count] = other;
        count += (r2 < square(kListed)) & (other != i);
      }
    }
  }
  part.start[part.end - part.first] = static_cast<std::uint32_t>(count);
}

void Melt::forces(Part& part) {
  const Task<Vec> task{at_, part.first, part.end, part.start, part.neighbours, part.inside, box_, part.force};
#if defined(__x86_64__)
  if (isa_ == "avx512") return pull_avx512(task);
  if (isa_ == "avx2") return pull_avx2(task);
#endif
  pull_all(task);
}

Melt::Totals Melt::totals(std::size_t thread) const {
  const Part& part = parts_[thread];
  Totals sum;
  for (std::size_t i = part.first; i < part.end; ++i) {
    const std::size_t k = i - part.first;
    const Vec position = at_[i], v = part.velocity[k];
    sum.kinetic += 0.5 * (square(v.x) + square(v.y) + square(v.z));
    sum.momentum[0] += v.x;
    sum.momentum[1] += v.y;
    sum.momentum[2] += v.z;
    sum.pairs += part.start[k + 1] - part.start[k];
    for (std::size_t p = part.start[k]; p < part.start[k + 1]; ++p) {
      const Vec other = at_[part.neighbours[p]];
      const double r2 = square(nearest(position.x - other.x, box_)) + square(nearest(position.y - other.y, box_)) +
                        square(nearest(position.z - other.z, box_));
      if (r2 >= square(kCutoff)) continue;
      const double over6 = 1 / (r2 * r2 * r2), energy = 4 * over6 * (over6 - 1);
      sum.potential += 0.5 * energy;
      sum.shifted += 0.5 * (energy - kAtCutoff);
    }
    std::uint64_t index = 6 * i;
    for (const double x : {position.x, position.y, position.z, v.x, v.y, v.z})
      sum.digest += std::bit_cast<std::uint64_t>(x) * (2 * index++ + 1);
  }
  return sum;
}

}  // namespace mm::workloads

/// Accesses that caches and prefetchers hardly help: strides, index lists, random places, dependent chains, trees.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "workloads/access.hpp"
#include "workloads/kernels/problems.hpp"

namespace mm::workloads {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// a[i] = b[i * stride].
template <class A>
class StridedCopy final : public Kernel {
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;

 public:
  StridedCopy(const Shape& shape, Memory& memory)
      : stride_(static_cast<std::size_t>(shape.stride)),
        units_(units_in(shape, kPlaces * (stride_ + 1) * sizeof(double))),
        to_{memory.take<double>(units_ * kPlaces)},
        from_{memory.take<double>(units_ * kPlaces * stride_)} {
    std::fill_n(to_.p, units_ * kPlaces, kUnset);
    for (std::size_t i = 0; i < units_ * kPlaces * stride_; ++i) from_.p[i] = static_cast<double>(i);
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const std::size_t dense = kPlaces / kPerLine;
    return counted(0, 0, kPlaces * 8, kPlaces * 8, dense * std::min(stride_, kPerLine) + dense, dense);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto target = to_, source = from_;
    const std::size_t stride = stride_;
    for (std::size_t u = first; u < last; ++u) {
      const auto t = target.from(u * kPlaces), f = source.from(u * kPlaces * stride);
      for (std::size_t j = 0; j < kPlaces; ++j) t[j] = Real(f[j * stride]);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < units_ * kPlaces; ++i)
      if (to_.p[i] != kUnset && to_.p[i] != static_cast<double>(i * stride_))
        return wrong("element", i, to_.p[i], i * stride_);
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(to_.p, units_ * kPlaces)); }

 private:
  std::size_t stride_, units_;
  Reals to_, from_;
};

/// A table, and a dense array with one element per line of the table. An index list selects an element of each line,
/// and each line once per pass.
template <class A>
class Indexed : public Kernel {
 protected:
  using Real = typename A::template Value<double>;
  using Reals = typename A::template Array<double>;
  using Index = typename A::template Value<u32>;

 public:
  Indexed(const Shape& shape, Memory& memory)
      : n_(kPlaces * units_in(shape, kPlaces * (kLine + sizeof(u32) + sizeof(double)))),
        table_{memory.take<double>(n_ * kPerLine)},
        dense_{memory.take<double>(n_)},
        index_{memory.take<u32>(n_)} {
    const std::vector<u32> order = shuffled(n_, 12);
    for (std::size_t e = 0; e < n_; ++e) index_.p[e] = static_cast<u32>(order[e] * kPerLine + scramble(e) % kPerLine);
  }
  std::size_t units() const override { return n_ / kPlaces; }

 protected:
  Counts each(std::size_t lines_written) const {
    return counted(0, 0, kPlaces * (8 + 4), kPlaces * 8, kPlaces + kPlaces / kPerLine + kPlaces * 4 / kLine,
                   lines_written);
  }
  std::size_t n_;
  Reals table_, dense_;
  typename A::template Array<u32> index_;
};

template <class A>
struct Gather final : Indexed<A> {
  using typename Indexed<A>::Real, typename Indexed<A>::Index;
  Gather(const Shape& shape, Memory& memory) : Indexed<A>(shape, memory) {
    for (std::size_t i = 0; i < this->n_ * kPerLine; ++i) this->table_.p[i] = static_cast<double>(i);
    std::fill_n(this->dense_.p, this->n_, kUnset);
  }
  Counts counts() const override { return this->each(kPlaces / kPerLine); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto table = this->table_;
    for (std::size_t u = first; u < last; ++u) {
      const auto dense = this->dense_.from(u * kPlaces);
      const auto index = this->index_.from(u * kPlaces);
      for (std::size_t j = 0; j < kPlaces; ++j) {
        const Index k = index[j];
        dense[j] = Real(table[bare(k)]);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t e = 0; e < this->n_; ++e)
      if (const double actual = this->dense_.p[e]; actual != kUnset && actual != this->index_.p[e])
        return wrong("element", e, actual, this->index_.p[e]);
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(this->dense_.p, this->n_)); }
};

template <class A>
struct Scatter final : Indexed<A> {
  using typename Indexed<A>::Real, typename Indexed<A>::Index;
  Scatter(const Shape& shape, Memory& memory) : Indexed<A>(shape, memory) {
    std::fill_n(this->table_.p, this->n_ * kPerLine, kUnset);
    for (std::size_t e = 0; e < this->n_; ++e) this->dense_.p[e] = static_cast<double>(e);
  }
  Counts counts() const override { return this->each(kPlaces); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto table = this->table_;
    for (std::size_t u = first; u < last; ++u) {
      const auto dense = this->dense_.from(u * kPlaces);
      const auto index = this->index_.from(u * kPlaces);
      for (std::size_t j = 0; j < kPlaces; ++j) {
        const Index k = index[j];
        table[bare(k)] = Real(dense[j]);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t e = 0; e < this->n_; ++e) {
      const std::size_t target = this->index_.p[e], line = target / kPerLine * kPerLine;
      const double* const actual = this->table_.p + line;
      std::size_t unset = 0;
      for (std::size_t k = 0; k < kPerLine; ++k) unset += actual[k] == kUnset;
      if (unset != kPerLine && (unset != kPerLine - 1 || this->table_.p[target] != static_cast<double>(e)))
        return "the line of element " + std::to_string(target) + " has other changes than element " + std::to_string(e);
    }
    return "";
  }
  std::span<std::byte> result() override {
    return std::as_writable_bytes(std::span(this->table_.p, this->n_ * kPerLine));
  }
};

/// Returns splitmix64 of a number that may count its operations: 9 operations.
template <class V>
V mixed(V x) {
  x += V(0x9e3779b97f4a7c15u);
  x = (x ^ (x >> V(30))) * V(0xbf58476d1ce4e5b9u);
  x = (x ^ (x >> V(27))) * V(0x94d049bb133111ebu);
  return x ^ (x >> V(31));
}

/// table[random] ^= random. Update j of each unit goes to part j of the table, and there to a line that no other unit
/// uses. The lines are distinct without a list, in an order that prefetchers cannot predict. Two passes cancel each
/// other.
template <class A>
class RandomUpdate final : public Kernel {
  using Word = typename A::template Value<u64>;

 public:
  RandomUpdate(const Shape& shape, Memory& memory)
      : units_(units_in(shape, kPlaces * kLine)), table_{memory.take<u64>(words())} {
    step_ = static_cast<std::size_t>(0.6180339887 * static_cast<double>(units_)) | 1;
    while (std::gcd(step_, units_) != 1) ++step_;
    for (std::size_t i = 0; i < words(); ++i) table_.p[i] = i;
  }
  std::size_t units() const override { return units_; }
  /// Random values are data: each has 9 operations, and its update has one.
  Counts counts() const override { return counted(0, kPlaces * 10, kPlaces * 8, kPlaces * 8, kPlaces, kPlaces); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto table = table_;
    const std::size_t units = units_, step = step_;
    for (std::size_t u = first; u < last; ++u) {
      const std::size_t start = u * step % units;
      for (std::size_t j = 0; j < kPlaces; ++j) {
        const Word value = mixed(Word(u * kPlaces + j));
        table[place(units, start, j, bare(value))] ^= value;
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      bool is_updated = false;
      const std::size_t start = u * step_ % units_;
      for (std::size_t j = 0; j < kPlaces; ++j) {
        const u64 value = scramble(u * kPlaces + j);
        const std::size_t target = place(units_, start, j, value);
        if (j == 0) is_updated = table_.p[target] != target;  // or corrupted: then it does not match the update either
        for (std::size_t i = target / kPerLine * kPerLine, k = 0; k < kPerLine; ++k)
          if (const u64 actual = table_.p[i + k], expected = i + k == target && is_updated ? target ^ value : i + k;
              actual != expected)
            return wrong("word", i + k, actual, expected);
      }
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(table_.p, words())); }

 private:
  std::size_t words() const { return units_ * kPlaces * kPerLine; }
  static std::size_t place(std::size_t units, std::size_t start, std::size_t j, u64 value) {
    std::size_t line = start + ((((j + 1) * 0x9e3779b9u) & 0xffffffffu) * units >> 32);
    if (line >= units) line -= units;
    return (j * units + line) * kPerLine + (value >> 61);
  }
  std::size_t units_, step_ = 1;
  typename A::template Array<u64> table_;
};

/// One random cycle over all lines. A unit follows it for some loads, each of which depends on the previous one.
template <class A>
class PointerChase final : public Kernel {
  using Word = typename A::template Value<u64>;
  using Words = typename A::template Array<u64>;

 public:
  PointerChase(const Shape& shape, Memory& memory)
      : units_(units_in(shape, kLoads * kLine + 2 * sizeof(u64))),
        next_{memory.take<u64>(units_ * kLoads * kPerLine)},
        starts_{memory.take<u64>(units_)},
        ends_{memory.take<u64>(units_)} {
    const std::vector<u32> order = shuffled(units_ * kLoads, kSeed);
    for (std::size_t i = 0; i < order.size(); ++i)
      next_.p[order[i] * kPerLine] = order[i + 1 < order.size() ? i + 1 : 0] * kPerLine;
    for (std::size_t u = 0; u < units_; ++u) {
      starts_.p[u] = order[u * kLoads] * kPerLine;
      ends_.p[u] = kNowhere;
    }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override { return counted(0, 0, (kLoads + 1) * 8, 8, kLoads + 2, 1); }
  void run(std::size_t first, std::size_t last, int) override {
    const auto next = next_, starts = starts_, ends = ends_;
    const u64 zero = none_;
    u64 position = 0;
    for (std::size_t u = first; u < last; ++u) {
      const Word start = starts[u];
      position = bare(start) + (position & zero);  // depends on the previous unit, so that their chains do not overlap
      for (std::size_t j = 0; j < kLoads; ++j) {
        const Word next_position = next[position];
        position = bare(next_position);
      }
      ends[u] = Word(position);
      A::end_unit();
    }
  }
  std::string verify() const override {
    const std::vector<u32> order = shuffled(units_ * kLoads, kSeed);
    for (std::size_t u = 0; u < units_; ++u) {
      const u64 expected = order[(u + 1) % units_ * kLoads] * kPerLine;
      if (ends_.p[u] != kNowhere && ends_.p[u] != expected) return wrong("the end of chain", u, ends_.p[u], expected);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(ends_.p, units_)); }

 private:
  static constexpr std::size_t kLoads = 32;
  static constexpr u64 kSeed = 15, kNowhere = ~u64{0};
  std::size_t units_;
  u64 none_ = 0;  // 0, but not a constant to the compiler
  Words next_, starts_, ends_;
};

/// Lookups in a two-level index: a root of 8 to 15 subtrees, selected by comparing with all separators, and complete
/// binary trees in breadth-first order, which are descended to the last level even if the key occurs before. The
/// lookups of a unit go to one subtree and spread evenly over it, so that all units touch the same number of lines.
template <class A>
class TreeLookup final : public Kernel {
  using Word = typename A::template Value<u64>;
  using Words = typename A::template Array<u64>;

 public:
  TreeLookup(const Shape& shape, Memory& memory) {
    const std::size_t nodes = shape.volume_bytes / (sizeof(u64) + 2 * sizeof(u64) / kNodesPerLookup);
    while ((kMinTrees << (depth_ + 1)) + kPerLine * 2 <= nodes) ++depth_;
    trees_ = (nodes - kPerLine * 2) >> depth_;
    units_ = (trees_ << depth_) / kNodesPerLookup / kLookups;
    if (units_ < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer units than threads");
    keys_ = {memory.take<u64>(trees_ << depth_)};
    root_ = {memory.take<u64>(trees_ - 1)};
    queries_ = {memory.take<u64>(units_ * kLookups)};
    found_ = {memory.take<u64>(units_ * kLookups)};
    for (std::size_t t = 0; t < trees_; ++t)
      for (unsigned level = 0; level < depth_; ++level)
        for (std::size_t k = 0; k < std::size_t{1} << level; ++k)  // node k of a level has rank (2k + 1) 2^below - 1
          keys_.p[(t << depth_) + (std::size_t{1} << level) + k] =
              key((t << depth_) + ((2 * k + 1) << (depth_ - 1 - level)) - 1);
    for (std::size_t t = 1; t < trees_; ++t) root_.p[t - 1] = key(t << depth_);
    const std::vector<u32> order = shuffled(units_, kSeed);
    for (std::size_t e = 0; e < units_ * kLookups; ++e) {
      queries_.p[e] = key(target(order, e));
      found_.p[e] = kNowhere;
    }
  }
  std::size_t units() const override { return units_; }
  /// The top three levels of a tree share a line. A level of 2^l nodes has 2^(l-3) lines. The lookups touch
  /// all, or one line each if there are more.
  Counts counts() const override {
    std::size_t lines = 1 + (trees_ - 1 + kPerLine - 1) / kPerLine + 2 * kLookups / kPerLine;
    for (unsigned level = 3; level < depth_; ++level) lines += std::min(kLookups, std::size_t{1} << (level - 3));
    const double steps = static_cast<double>(kLookups * (trees_ - 1 + depth_));
    return counted(0, steps, 8 * steps + 8 * kLookups, 8 * kLookups, lines, kLookups / kPerLine);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto keys = keys_, root = root_, queries = queries_, ranks = found_;
    const std::size_t separators = trees_ - 1;
    const unsigned depth = depth_;
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t e = u * kLookups; e < (u + 1) * kLookups; ++e) {
        const Word query = queries[e];
        std::size_t t = 0;
        for (std::size_t k = 0; k < separators; ++k) t += root[k] <= query ? 1 : 0;
        const auto tree = keys.from(t << depth);
        std::size_t node = 1;
        for (unsigned level = 0; level < depth; ++level) node = 2 * node + (tree[node] <= query ? 1 : 0);
        ranks[e] = Word((t << depth) + node - (std::size_t{1} << depth) - 1);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    const std::vector<u32> order = shuffled(units_, kSeed);
    for (std::size_t e = 0; e < units_ * kLookups; ++e)
      if (const u64 actual = found_.p[e], expected = target(order, e); actual != kNowhere && actual != expected)
        return wrong("the rank found by lookup", e, actual, expected);
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(found_.p, units_ * kLookups)); }

 private:
  static constexpr std::size_t kLookups = 8, kMinTrees = 8;
  static constexpr std::size_t kNodesPerLookup = 16;  // half of the nodes are leaves: each line of leaves once per pass
  static constexpr u64 kSeed = 16, kNowhere = ~u64{0};
  /// Returns the key of rank `r` among all keys. Subtrees have 2^depth - 1 keys, and the last rank of each is unused.
  static u64 key(std::size_t r) { return (u64{r} << 16) + (scramble(r) >> 48); }
  /// Returns the rank of the key of lookup e: a leaf of even rank, in the e-th eighth of its tree.
  std::size_t target(const std::vector<u32>& order, std::size_t e) const {
    const std::size_t unit = order[e / kLookups], lines = units_ / trees_;  // lines of leaves in each eighth
    const std::size_t eighth = (e ^ scramble(unit)) % kLookups;             // in a different order for each unit
    const std::size_t leaf = (eighth * lines + unit % lines) * kPerLine + scramble(e) % kPerLine;
    return (unit / lines << depth_) + 2 * leaf;
  }
  unsigned depth_ = 7;
  std::size_t trees_ = 0, units_ = 0;
  Words keys_, root_, queries_, found_;
};

/// The frequency of each value, per block of bytes. Each block has separate bins, like private histograms of threads.
template <class A>
class Histogram final : public Kernel {
  using Byte = typename A::template Value<u8>;
  using Count = typename A::template Value<u32>;

 public:
  Histogram(const Shape& shape, Memory& memory)
      : units_(units_in(shape, kBlock + kBins * sizeof(u32))),
        words_(memory.take<u64>(units_ * kBlock / sizeof(u64))),
        data_{reinterpret_cast<u8*>(words_)},
        bins_{memory.take<u32>(units_ * kBins)} {
    for (std::size_t k = 0; k < units_ * kBlock / sizeof(u64); ++k) words_[k] = eight(k);
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    const std::size_t lines = kBins * 4 / kLine;
    return counted(0, kBlock, kBlock * (1 + 4), kBlock * 4 + kBins * 4, kBlock / kLine + lines, lines);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto all_data = data_;
    const auto all_bins = bins_;
    for (std::size_t u = first; u < last; ++u) {
      const auto data = all_data.from(u * kBlock);
      const auto bins = all_bins.from(u * kBins);
      for (std::size_t k = 0; k < kBins; ++k) bins[k] = Count(0);
      for (std::size_t i = 0; i < kBlock; ++i) {
        const Byte value = data[i];
        bins[bare(value)] += 1;
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      std::array<u32, kBins> expected{};
      for (std::size_t k = 0; k < kBlock / 8; ++k)
        for (unsigned shift = 0; shift < 64; shift += 8) ++expected[eight(u * (kBlock / 8) + k) >> shift & 0xff];
      const std::span actual(bins_.p + u * kBins, kBins);
      if (std::equal(actual.begin(), actual.end(), expected.begin())) continue;
      if (const auto nonzero = std::find_if(actual.begin(), actual.end(), [](u32 n) { return n != 0; });
          nonzero != actual.end())
        return "the histogram of block " + std::to_string(u) + " is wrong";
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(bins_.p, units_ * kBins)); }

 private:
  static constexpr std::size_t kBlock = 1024, kBins = 64;
  static u64 eight(std::size_t k) { return scramble(k) & 0x3f3f3f3f3f3f3f3fu; }
  std::size_t units_;
  u64* words_;
  typename A::template Array<u8> data_;
  typename A::template Array<u32> bins_;
};

/// One level of a breadth-first search, bottom up. Each vertex searches for a parent among its neighbours, half of
/// which are in the frontier. The edges of a unit spread over all lines of the levels, or touch one line each if there
/// are more.
template <class A>
class BfsLevel final : public Kernel {
  using Word = typename A::template Value<u32>;
  using Words = typename A::template Array<u32>;

 public:
  BfsLevel(const Shape& shape, Memory& memory)
      : units_(units_in(shape, kVertices * (kDegree + 2) * sizeof(u32))),
        lines_(units_),
        edges_{memory.take<u32>(units_ * kEdges)},
        level_{memory.take<u32>(units_ * kVertices)},
        parent_{memory.take<u32>(units_ * kVertices)} {
    // Edge k of a unit leads to a random vertex in a part of the levels that no other edge of the unit refers to.
    const std::size_t parts = std::min(lines_, kEdges);
    std::array<std::size_t, kEdges> first_line{}, span{};
    for (std::size_t k = 0; k < kEdges; ++k) {
      const std::size_t part = k * 29 % kEdges % parts;
      first_line[k] = part * lines_ / parts;
      span[k] = (part + 1) * lines_ / parts - first_line[k];
    }
    for (std::size_t u = 0; u < units_; ++u)
      for (std::size_t k = 0; k < kEdges; ++k) {
        const u64 random = scramble(~(u * kEdges + k));
        const std::size_t line = first_line[k] + ((random >> 32) * span[k] >> 32);
        edges_.p[u * kEdges + k] = static_cast<u32>(line * kVertices + random % kVertices);
      }
    for (std::size_t v = 0; v < units_ * kVertices; ++v) {
      level_.p[v] = level_of(v);
      parent_.p[v] = kUnseen;
    }
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    return counted(0, kEdges, kEdges * 8, kVertices * 4, kEdges * 4 / kLine + std::min(lines_, kEdges) + 1, 1);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto all_edges = edges_, level = level_, parent = parent_;
    const Word frontier = kFrontier;
    for (std::size_t u = first; u < last; ++u) {
      for (std::size_t v = u * kVertices; v < (u + 1) * kVertices; ++v) {
        const auto edges = all_edges.from(v * kDegree);
        u32 choice = kOrphan;
        for (std::size_t k = 0; k < kDegree; ++k) {
          const Word target = edges[k];
          choice = level[bare(target)] == frontier ? bare(target) : choice;
        }
        parent[v] = Word(choice);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t v = 0; v < units_ * kVertices; ++v) {
      u32 expected = kOrphan;
      for (std::size_t e = v * kDegree; e < (v + 1) * kDegree; ++e)
        if (level_.p[edges_.p[e]] == kFrontier) expected = edges_.p[e];
      if (const u32 actual = parent_.p[v]; actual != kUnseen && actual != expected)
        return wrong("the parent of vertex", v, actual, expected);
    }
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(parent_.p, units_ * kVertices)); }

 private:
  static constexpr std::size_t kDegree = 8, kVertices = kLine / sizeof(u32), kEdges = kDegree * kVertices;
  static constexpr u32 kUnseen = ~u32{0}, kOrphan = kUnseen - 1, kFrontier = 3;
  static u32 level_of(std::size_t v) { return kFrontier + static_cast<u32>(scramble(v) & 1); }
  std::size_t units_, lines_;  // lines_: of the levels; a line holds as many vertices as a unit
  Words edges_, level_, parent_;
};

constexpr std::size_t kMaxIndexed = std::size_t{32} << 30;  // limit of 32-bit indices

const Register<StridedCopy> strided_copy{{.name = "strided_copy",
                                          .kind = "irregular",
                                          .summary = "a[i] = b[i stride]: sequential writes, strided reads",
                                          .source = "Spatter uniform stride; PARbench's strides",
                                          .parity = true,
                                          .strided = true,
                                          .min_bytes = 8192}};
const Register<Gather> gather{{.name = "gather",
                               .kind = "irregular",
                               .summary = "a[i] = b[index[i]], each from a different line",
                               .source = "Spatter Gather",
                               .parity = true,
                               .min_bytes = 8192,
                               .max_bytes = kMaxIndexed}};
const Register<Scatter> scatter{{.name = "scatter",
                                 .kind = "irregular",
                                 .summary = "a[index[i]] = b[i], each to a different line",
                                 .source = "Spatter Scatter",
                                 .min_bytes = 8192,
                                 .max_bytes = kMaxIndexed}};
const Register<RandomUpdate> random_update{{.name = "random_update",
                                            .kind = "irregular",
                                            .summary = "table[random] ^= random, independent updates",
                                            .source = "after HPCC RandomAccess",
                                            .parity = true,
                                            .min_bytes = 8192,
                                            .stands_for = "u64"}};
const Register<PointerChase> pointer_chase{{.name = "pointer_chase",
                                            .kind = "irregular",
                                            .summary = "dependent loads along a random cycle over all lines",
                                            .source = "lmbench lat_mem_rd; multichase",
                                            .parity = true,
                                            .min_bytes = 8192,
                                            .max_bytes = std::size_t{1} << 38,
                                            .stands_for = "u64"}};
const Register<TreeLookup> tree_lookup{{.name = "tree_lookup",
                                        .kind = "irregular",
                                        .summary = "lookups in a search tree in breadth-first order",
                                        .source = "Rodinia b+tree; Eytzinger layout",
                                        .min_bytes = 10240,
                                        .stands_for = "u64"}};
const Register<Histogram> histogram{{.name = "histogram",
                                     .kind = "irregular",
                                     .summary = "frequencies of 64 values, per block of 1024 bytes",
                                     .source = "RAJAPerf HISTOGRAM",
                                     .stands_for = "u8"}};
const Register<BfsLevel> bfs_level{
    {.name = "bfs_level",
     .kind = "irregular",
     .summary = "one bottom-up level of a breadth-first search in a random graph of degree 8",
     .source = "Graph500; Beamer's direction-optimising search",
     .max_bytes = std::size_t{128} << 30,
     .stands_for = "u32"}};
}  // namespace
}  // namespace mm::workloads

/// Integer kernels: sorts, unpredictable branches, checksums, hashes, population counts, a sieve.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

std::string wrong(std::size_t unit, const std::string& what) { return "unit " + std::to_string(unit) + ": " + what; }

/// Units of E elements that are read, and of as many elements that are written and initially 0.
template <class A, class T, std::size_t E>
class Pair : public Kernel {
 protected:
  using Value = typename A::template Value<T>;
  using Values = typename A::template Array<T>;
  static constexpr double kBytes = E * sizeof(T);
  static_assert(E * sizeof(T) % kLine == 0);

 public:
  Pair(const Shape& shape, Memory& memory)
      : n_(fit(shape, 2, sizeof(T), E)), in_{memory.take<T>(n_)}, out_{memory.take<T>(n_)} {}
  std::size_t units() const override { return n_ / E; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(out_.p, n_)); }

 protected:
  /// Returns the output of unit u, or an empty span if the unit is not done yet.
  std::span<const T> done(std::size_t u) const {
    const std::span<const T> out(out_.p + u * E, E);
    return std::all_of(out.begin(), out.end(), [](T x) { return x == 0; }) ? std::span<const T>() : out;
  }
  std::size_t n_;
  Values in_, out_;
};

/// Blocks of words that are only read. One number per block is retained.
template <class A, class T, std::size_t E>
class Digest : public Kernel {
 protected:
  using Value = typename A::template Value<T>;
  using Values = typename A::template Array<T>;
  static_assert(E * sizeof(T) % kLine == 0);
  static constexpr std::uint64_t kUndone = ~std::uint64_t{0};

 public:
  Digest(const Shape& shape, Memory& memory)
      : n_(fit(shape, 1, sizeof(T), E)), in_{memory.take<T>(n_)}, kept_(n_ / E, kUndone) {
    for (std::size_t i = 0; i < n_; ++i) in_.p[i] = input(i);
  }
  std::size_t units() const override { return n_ / E; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(kept_)); }

 protected:
  static T input(std::size_t i) { return static_cast<T>(scramble(i)); }
  Counts once(double int_ops) const {
    Counts c;
    c.int_ops = int_ops;
    c.load_bytes = c.line_read_bytes = E * sizeof(T);
    return c;
  }
  /// Compares the kept numbers with expected(u).
  template <class Expected>
  std::string compare(const Expected& expected) const {
    for (std::size_t u = 0; u < kept_.size(); ++u)
      if (kept_[u] != kUndone)
        if (const std::uint64_t w = expected(u); kept_[u] != w)
          return wrong(u, "result " + std::to_string(kept_[u]) + ", not " + std::to_string(w));
    return "";
  }
  std::size_t n_;
  Values in_;
  std::vector<std::uint64_t> kept_;
};

constexpr std::size_t kSorted = 512, kBuckets = 256;

/// A sort in two passes, least significant digit first, over keys of two digits.
template <class A>
struct RadixSort final : Pair<A, std::uint32_t, kSorted> {
  using Base = Pair<A, std::uint32_t, kSorted>;
  using Key = typename Base::Value;
  using Keys = typename Base::Values;
  struct alignas(kLine) Work {
    std::array<std::uint32_t, kSorted> keys;
    std::array<std::uint32_t, kBuckets> places;
  };

  RadixSort(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::size_t i = 0; i < this->n_; ++i) this->in_.p[i] = input(i);
  }
  static std::uint32_t input(std::size_t i) { return scramble(i) & 0xffff; }
  Counts counts() const override {
    constexpr double n = kSorted, b = kBuckets;
    Counts c;
    c.int_ops = 2 * (n * (2 + 1) + b + n * (2 + 1));  // a digit is a shift and a mask
    c.load_bytes = 2 * 4 * (2 * n + b + 2 * n);
    c.store_bytes = 2 * 4 * (b + n + b + 2 * n);
    c.line_read_bytes = 2 * Base::kBytes;
    c.line_write_bytes = Base::kBytes;
    return c;
  }

  static void pass(Keys from, Keys to, Keys places, std::uint32_t shift) {
    const auto digit = [shift](Key key) { return bare((key >> Key(shift)) & Key(kBuckets - 1)); };
    for (std::size_t b = 0; b < kBuckets; ++b) places[b] = Key(0);
    for (std::size_t i = 0; i < kSorted; ++i) {
      const std::uint32_t d = digit(from[i]);
      places[d] = places[d] + Key(1);
    }
    Key place = 0;
    for (std::size_t b = 0; b < kBuckets; ++b) {
      const Key keys = places[b];
      places[b] = place;
      place = place + keys;
    }
    for (std::size_t i = 0; i < kSorted; ++i) {
      const Key key = from[i];
      const std::uint32_t d = digit(key);
      const Key position = places[d];
      to[bare(position)] = key;
      places[d] = position + Key(1);
    }
  }
  void run(std::size_t first, std::size_t last, int) override {
    Work work;
    A::scratch(work);
    const Keys in = this->in_, out = this->out_, keys{work.keys.data()}, places{work.places.data()};
    for (std::size_t u = first; u < last; ++u) {
      pass(in.from(u * kSorted), keys, places, 0);
      pass(keys, out.from(u * kSorted), places, 8);
      A::end_unit();
    }
  }
  /// Verifies that the output is sorted and has the same keys as the input, by a sum of their hashes.
  std::string verify() const override {
    for (std::size_t u = 0; u < this->units(); ++u) {
      const auto out = this->done(u);
      if (out.empty()) continue;
      if (!std::is_sorted(out.begin(), out.end())) return wrong(u, "the keys are not sorted");
      std::uint64_t actual = 0, expected = 0;
      for (std::size_t i = 0; i < kSorted; ++i) {
        actual += scramble(out[i]);
        expected += scramble(input(u * kSorted + i));
      }
      if (actual != expected) return wrong(u, "the keys differ from the input");
    }
    return "";
  }
};

/// Bottom-up merge sort. The keys of all units have the same ranks, in different orders: at each node of the tree of
/// merges the two runs may be exchanged, which takes the same number of comparisons with other results.
template <class A>
struct ComparisonSort final : Pair<A, std::int64_t, 256> {
  static constexpr std::size_t kKeys = 256;
  using Base = Pair<A, std::int64_t, kKeys>;
  using Key = typename Base::Value;
  using Keys = typename Base::Values;
  struct alignas(kLine) Work {
    std::array<std::int64_t, kKeys> keys;
  };
  static constexpr int kPasses = std::bit_width(kKeys) - 1;
  static_assert(kPasses % 2 == 0, "the last pass must end in the output");

  ComparisonSort(const Shape& shape, Memory& memory) : Base(shape, memory), ranks_(shuffled(kKeys, 1)) {
    for (std::size_t u = 0; u < this->units(); ++u) {
      // The order is built from the root to the leaves: `place` is the position where the content of a node begins.
      std::array<std::uint8_t, kKeys> place{};
      std::uint64_t bits = 0;
      std::size_t bits_used = 64, draws = u * 8;
      for (std::size_t run = kKeys / 2; run >= 1; run /= 2)
        for (std::size_t start = 0; start < kKeys; start += 2 * run) {
          if (bits_used == 64) {
            bits = scramble(draws++);
            bits_used = 0;
          }
          const bool swap = bits >> bits_used++ & 1;
          const std::uint8_t base = place[start];
          place[start + (swap ? run : 0)] = base;
          place[start + (swap ? 0 : run)] = static_cast<std::uint8_t>(base + run);
        }
      for (std::size_t i = 0; i < kKeys; ++i) this->in_.p[u * kKeys + i] = key(u, ranks_[place[i]]);
    }
  }
  static std::int64_t key(std::size_t u, std::size_t rank) {
    return static_cast<std::int64_t>(rank) * 1000003 - static_cast<std::int64_t>(u % 8192) * 10007 - 1;
  }
  /// A merge ends when the run with the smaller last key is empty. The rest of the other run needs no comparison.
  Counts counts() const override {
    double comparisons = 0;
    for (std::size_t run = 1; run < kKeys; run *= 2)
      for (std::size_t start = 0; start < kKeys; start += 2 * run) {
        const auto left = ranks_.begin() + static_cast<std::ptrdiff_t>(start);
        const auto middle = left + static_cast<std::ptrdiff_t>(run), right = middle + static_cast<std::ptrdiff_t>(run);
        const std::uint32_t end = std::min(*std::max_element(left, middle), *std::max_element(middle, right));
        comparisons += static_cast<double>(std::count_if(left, right, [end](std::uint32_t r) { return r <= end; }));
      }
    Counts c;
    c.int_ops = comparisons;
    c.load_bytes = c.store_bytes = kPasses * Base::kBytes;
    c.line_read_bytes = 2 * Base::kBytes;
    c.line_write_bytes = Base::kBytes;
    return c;
  }

  static void merge(Keys from, Keys to, std::size_t run) {
    for (std::size_t start = 0; start < kKeys; start += 2 * run) {
      const std::size_t middle = start + run, end = middle + run;
      std::size_t i = start, j = middle, k = start;
      Key x = from[i], y = from[j];
      for (;;) {
        if (y < x) {
          to[k++] = y;
          if (++j == end) break;
          y = from[j];
        } else {
          to[k++] = x;
          if (++i == middle) break;
          x = from[i];
        }
      }
      to[k++] = j == end ? x : y;
      for (std::size_t source = (j == end ? i : j) + 1; k < end; ++k, ++source) to[k] = Key(from[source]);
    }
  }
  void run(std::size_t first, std::size_t last, int) override {
    Work work;
    A::scratch(work);
    const Keys in = this->in_, out = this->out_, keys{work.keys.data()};
    for (std::size_t u = first; u < last; ++u) {
      const Keys to = out.from(u * kKeys);
      merge(in.from(u * kKeys), keys, 1);
      merge(keys, to, 2);
      for (std::size_t run = 4; run < kKeys; run *= 4) {
        merge(to, keys, run);
        merge(keys, to, 2 * run);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < this->units(); ++u) {
      const auto out = this->done(u);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i] != key(u, i)) return wrong(u, "key " + std::to_string(i) + " is " + std::to_string(out[i]));
    }
    return "";
  }

 private:
  std::vector<std::uint32_t> ranks_;
};

/// Two paths of equal length, selected by a random bit of each element. Each visit of a unit uses a different bit,
/// because branch predictors would otherwise memorise a small volume.
template <class A>
struct Branchy final : Pair<A, std::uint32_t, 256> {
  static constexpr std::size_t kElements = 256;
  using Base = Pair<A, std::uint32_t, kElements>;
  using Word = typename Base::Value;

  Branchy(const Shape& shape, Memory& memory) : Base(shape, memory), visits_(this->units(), 0) {
    for (std::size_t i = 0; i < this->n_; ++i) this->in_.p[i] = input(i);
  }
  static std::uint32_t input(std::size_t i) { return static_cast<std::uint32_t>(scramble(i)); }
  Counts counts() const override {
    Counts c;
    c.int_ops = (3 + 2) * kElements;
    c.load_bytes = c.store_bytes = Base::kBytes;
    c.line_read_bytes = 2 * Base::kBytes;
    c.line_write_bytes = Base::kBytes;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto in = this->in_, out = this->out_;
    for (std::size_t u = first; u < last; ++u) {
      const Word bit = visits_[u]++ % 32;
      for (std::size_t i = u * kElements; i < (u + 1) * kElements; ++i) {
        const Word x = in[i];
        if (((x >> bit) & Word(1)) != Word(0)) {
          asm volatile("" ::: "memory");  // keeps the branch, instead of computing both paths and selecting one
          out[i] = x * Word(3) + Word(1);
        } else {
          asm volatile("" ::: "memory");
          out[i] = (x >> Word(1)) ^ Word(0x55555555u);
        }
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t i = 0; i < this->n_; ++i) {
      const std::uint32_t x = input(i), visits = visits_[i / kElements];
      const std::uint32_t odd = x >> ((visits + 31) % 32) & 1;
      const std::uint32_t expected = visits == 0 ? 0 : odd != 0 ? 3 * x + 1 : x / 2 ^ 0x55555555u;
      if (this->out_.p[i] != expected) return wrong(i / kElements, "element " + std::to_string(i) + " is wrong");
    }
    return "";
  }

 private:
  std::vector<std::uint32_t> visits_;
};

/// CRC-32 of IEEE 802.3, eight bytes at a time with eight tables.
template <class A>
struct Crc32 final : Digest<A, std::uint32_t, 1024> {
  static constexpr std::size_t kWords = 1024;
  using Base = Digest<A, std::uint32_t, kWords>;
  using Word = typename Base::Value;
  using Words = typename Base::Values;
  static constexpr std::uint32_t kPolynomial = 0xedb88320u;  // bits reversed

  Crc32(const Shape& shape, Memory& memory) : Base(shape, memory) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
      tables_[byte] = crc;
    }
    for (std::size_t i = 256; i < tables_.size(); ++i)
      tables_[i] = tables_[i - 256] >> 8 ^ tables_[tables_[i - 256] & 255];
  }
  Counts counts() const override {
    constexpr std::size_t steps = kWords / 2;
    Counts c = this->once(steps * (1 + 12 + 7) + 1);
    c.load_bytes += steps * 8 * 4;  // from the tables, which stay in the first-level cache
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    A::scratch(tables_);
    const Words in = this->in_, t{tables_.data()};
    const Word byte = 255;
    for (std::size_t u = first; u < last; ++u) {
      Word crc = 0xffffffffu;
      for (std::size_t i = u * kWords; i < (u + 1) * kWords; i += 2) {
        const Word x = in[i] ^ crc, y = in[i + 1];
        const Word low = Word(t[1792 + bare(x & byte)]) ^ Word(t[1536 + bare((x >> Word(8)) & byte)]) ^
                         Word(t[1280 + bare((x >> Word(16)) & byte)]) ^ Word(t[1024 + bare(x >> Word(24))]);
        const Word high = Word(t[768 + bare(y & byte)]) ^ Word(t[512 + bare((y >> Word(8)) & byte)]) ^
                          Word(t[256 + bare((y >> Word(16)) & byte)]) ^ Word(t[bare(y >> Word(24))]);
        crc = low ^ high;
      }
      this->kept_[u] = bare(crc ^ Word(0xffffffffu));
      A::end_unit();
    }
  }
  /// Computes the checksum one byte at a time, with a separate table that is built by linearity.
  std::string verify() const override {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t bit = 128, crc = 1; bit > 0; bit /= 2) {
      crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
      for (std::uint32_t byte = 0; byte < 256; byte += 2 * bit) table[byte + bit] = table[byte] ^ crc;
    }
    const auto add = [&table](std::uint32_t crc, std::uint32_t data, int bytes) {
      for (; bytes > 0; --bytes, data >>= 8) crc = crc >> 8 ^ table[(crc ^ data) & 255];
      return crc;
    };
    std::uint32_t check = 0xffffffffu;
    for (const char c : {'1', '2', '3', '4', '5', '6', '7', '8', '9'})
      check = add(check, static_cast<unsigned char>(c), 1);
    if (~check != 0xcbf43926u) return "the checksum of 123456789 is wrong";  // the published check value
    return this->compare([&](std::size_t u) {
      std::uint32_t crc = 0xffffffffu;
      for (std::size_t i = u * kWords; i < (u + 1) * kWords; ++i) crc = add(crc, Base::input(i), 4);
      return std::uint64_t{~crc};
    });
  }

 private:
  alignas(kLine) std::array<std::uint32_t, 8 * 256> tables_{};
};

/// Four lanes of exclusive or, multiply and shift, combined at the end.
template <class A>
struct Hash final : Digest<A, std::uint64_t, 256> {
  static constexpr std::size_t kWords = 256, kLanes = 4;
  using Base = Digest<A, std::uint64_t, kWords>;
  using Word = typename Base::Value;
  using Base::Base;
  static constexpr std::uint64_t kFactor = 0x9fb21c651e98df25u;  // odd, with about as many ones as zeros

  Counts counts() const override { return this->once(4 * kWords + 4 * kLanes); }
  static Word mix(Word h, Word x) {
    h = (h ^ x) * Word(kFactor);
    return h ^ (h >> Word(32));
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto in = this->in_;
    for (std::size_t u = first; u < last; ++u) {
      std::array<Word, kLanes> lane{Word(1), Word(2), Word(3), Word(4)};
      for (std::size_t i = u * kWords; i < (u + 1) * kWords; i += kLanes)
        for (std::size_t k = 0; k < kLanes; ++k) lane[k] = mix(lane[k], in[i + k]);
      Word digest = 0;
      for (std::size_t k = 0; k < kLanes; ++k) digest = mix(digest, lane[k]);
      this->kept_[u] = bare(digest);
      A::end_unit();
    }
  }
  std::string verify() const override {
    return this->compare([](std::size_t u) {
      const auto step = [](std::uint64_t h, std::uint64_t x) {
        const std::uint64_t product = (h ^ x) * kFactor;
        return product ^ product >> 32;
      };
      std::uint64_t digest = 0;
      for (std::size_t k = 0; k < kLanes; ++k) {
        std::uint64_t h = k + 1;
        for (std::size_t i = k; i < kWords; i += kLanes) h = step(h, scramble(u * kWords + i));
        digest = step(digest, h);
      }
      return digest;
    });
  }
};

/// Population count of a block of words, in ever wider fields of a word.
template <class A>
struct BitCount final : Digest<A, std::uint64_t, 256> {
  static constexpr std::size_t kWords = 256, kGroup = 16;  // words whose byte counts fit into a byte: 16 x 8 < 256
  using Base = Digest<A, std::uint64_t, kWords>;
  using Word = typename Base::Value;
  using Base::Base;

  Counts counts() const override {
    constexpr std::size_t groups = kWords / kGroup;
    return this->once(11 * kWords + 5 * groups + 2);
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto in = this->in_;
    const Word pairs = 0x5555555555555555u, fours = 0x3333333333333333u, bytes = 0x0f0f0f0f0f0f0f0fu,
               halves = 0x00ff00ff00ff00ffu;
    for (std::size_t u = first; u < last; ++u) {
      Word sums = 0;  // four sums of 16 bits each
      for (std::size_t group = u * kWords; group < (u + 1) * kWords; group += kGroup) {
        Word ones = 0;
        for (std::size_t i = group; i < group + kGroup; ++i) {
          Word x = in[i];
          x = x - ((x >> Word(1)) & pairs);
          x = (x & fours) + ((x >> Word(2)) & fours);
          x = (x + (x >> Word(4))) & bytes;
          ones = ones + x;
        }
        sums = sums + ((ones & halves) + ((ones >> Word(8)) & halves));
      }
      this->kept_[u] = bare((sums * Word(0x0001000100010001u)) >> Word(48));
      A::end_unit();
    }
  }
  std::string verify() const override {
    return this->compare([this](std::size_t u) {
      std::uint64_t ones = 0;
      for (std::size_t i = u * kWords; i < (u + 1) * kWords; ++i)
        ones += static_cast<std::uint64_t>(std::popcount(this->in_.p[i]));
      return ones;
    });
  }
};

/// Flags of the odd numbers 3, 5, 7, …. Each unit sieves the same numbers in separate bytes, and then counts the
/// remaining flags.
template <class A>
struct PrimeSieve final : Kernel {
  static constexpr std::size_t kFlags = 2048;
  using Flag = typename A::template Value<std::uint8_t>;
  using Flags = typename A::template Array<std::uint8_t>;
  using Word = typename A::template Value<std::uint32_t>;

  PrimeSieve(const Shape& shape, Memory& memory)
      : n_(fit(shape, 1, 1, kFlags)), flags_{memory.take<std::uint8_t>(n_)}, primes_(n_ / kFlags, 0) {}
  std::size_t units() const override { return n_ / kFlags; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(flags_.p, n_)); }

  static bool prime(std::size_t x) {
    for (std::size_t d = 2; d * d <= x; ++d)
      if (x % d == 0) return false;
    return true;
  }
  Counts counts() const override {
    constexpr std::size_t max = 2 * kFlags + 1;
    double marks = 0, tests = 0;
    for (std::size_t x = 3; x * x <= max; x += 2) {
      tests += 1;
      const std::size_t multiples = (max - x * x) / (2 * x) + 1;  // odd multiples from the square on
      if (prime(x)) marks += static_cast<double>(multiples);
    }
    Counts c;
    c.int_ops = tests + kFlags;
    c.load_bytes = tests + kFlags;
    c.store_bytes = kFlags + marks;
    c.line_read_bytes = c.line_write_bytes = kFlags;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      const Flags flags = flags_.from(u * kFlags);
      for (std::size_t i = 0; i < kFlags; ++i) flags[i] = Flag(1);
      for (std::size_t i = 0; (2 * i + 3) * (2 * i + 3) <= 2 * kFlags + 1; ++i)
        if (flags[i] != Flag(0)) {
          const std::size_t x = 2 * i + 3;
          for (std::size_t k = (x * x - 3) / 2; k < kFlags; k += x) flags[k] = Flag(0);
        }
      Word primes = 0;
      for (std::size_t i = 0; i < kFlags; ++i) primes = primes + Word(bare(Flag(flags[i])));
      primes_[u] = bare(primes);
      A::end_unit();
    }
  }
  std::string verify() const override {
    std::vector<std::uint8_t> expected(kFlags);
    for (std::size_t i = 0; i < kFlags; ++i) expected[i] = prime(2 * i + 3);
    const auto primes = static_cast<std::uint32_t>(std::count(expected.begin(), expected.end(), 1));
    for (std::size_t u = 0; u < primes_.size(); ++u) {
      if (primes_[u] == 0) continue;
      if (primes_[u] != primes) return wrong(u, "found " + std::to_string(primes_[u]) + " primes");
      if (!std::equal(expected.begin(), expected.end(), flags_.p + u * kFlags)) return wrong(u, "a flag is wrong");
    }
    return "";
  }

 private:
  std::size_t n_;
  Flags flags_;
  std::vector<std::uint32_t> primes_;  ///< 0 for a unit that is not done yet
};

const Register<RadixSort> radix_sort{{.name = "radix_sort",
                                      .kind = "integer",
                                      .summary = "sort of 512 16-bit keys in two passes over digits",
                                      .source = "least-digit radix sort; after NPB IS",
                                      .parity = true,
                                      .min_bytes = 16 << 10,
                                      .stands_for = "u32"}};
const Register<ComparisonSort> comparison_sort{{.name = "comparison_sort",
                                                .kind = "integer",
                                                .summary = "merge sort of 256 keys",
                                                .source = "RAJAPerf SORT",
                                                .min_bytes = 16 << 10,
                                                .stands_for = "i64"}};
const Register<Branchy> branchy{{.name = "branchy",
                                 .kind = "integer",
                                 .summary = "one of two paths for each element, by a random bit",
                                 .source = "after PRK Branch",
                                 .parity = true,
                                 .min_bytes = 8 << 10,
                                 .stands_for = "u32"}};
const Register<Crc32> crc32{{.name = "crc32",
                             .kind = "integer",
                             .summary = "checksums of blocks of 4 KiB",
                             .source = "CRC-32, slicing by eight (Kounavis and Berry)",
                             .min_bytes = 16 << 10,
                             .stands_for = "u32"}};
const Register<Hash> hash{{.name = "hash",
                           .kind = "integer",
                           .summary = "64-bit hashes of blocks of 2 KiB",
                           .source = "multiply and xorshift in four lanes, in the manner of xxHash",
                           .min_bytes = 8 << 10,
                           .stands_for = "u64"}};
const Register<BitCount> bit_count{{.name = "bit_count",
                                    .kind = "integer",
                                    .summary = "population counts of blocks of 2 KiB",
                                    .source = "sideways addition (Wilkes, Wheeler, Gill)",
                                    .min_bytes = 8 << 10,
                                    .stands_for = "u64"}};
const Register<PrimeSieve> prime_sieve{{.name = "prime_sieve",
                                        .kind = "integer",
                                        .summary = "odd primes below 4098, in flags of a byte",
                                        .source = "sieve of Eratosthenes; after the BYTE sieve (Gilbreath)",
                                        .min_bytes = 8 << 10,
                                        .stands_for = "u8"}};

}  // namespace
}  // namespace mm::workloads

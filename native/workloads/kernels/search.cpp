/// Kernels on strings and graphs: alignment, matches in a text, paths.
#include <algorithm>
#include <array>
#include <cmath>

#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

std::string wrong(std::size_t unit, const std::string& what) { return "unit " + std::to_string(unit) + ": " + what; }

/// Local alignment of sixteen pairs of strings at once, with a linear gap penalty. The symbols of the strings are
/// interleaved, so that the lanes of a vector are independent alignments.
template <class A>
struct SmithWaterman final : Kernel {
  static constexpr std::size_t kLanes = 16, kLength = 32;
  static constexpr std::size_t kString = kLanes * kLength;  // symbols of all lanes
  static constexpr std::int16_t kMatch = 2, kMismatch = -1, kGap = 1;
  using Symbol = typename A::template Value<std::uint8_t>;
  using Symbols = typename A::template Array<std::uint8_t>;
  using Score = typename A::template Value<std::int16_t>;
  using Lane = std::array<Score, kLanes>;
  using Best = std::array<std::int16_t, kLanes>;
  static constexpr Best kUndone{-1};

  SmithWaterman(const Shape& shape, Memory& memory)
      : n_(fit(shape, 2, 1, kString)),
        a_{memory.take<std::uint8_t>(n_)},
        b_{memory.take<std::uint8_t>(n_)},
        best_(n_ / kString, kUndone) {
    for (std::size_t i = 0; i < n_; ++i) {
      a_.p[i] = input(0, i);
      b_.p[i] = input(1, i);
    }
  }
  /// Returns random letters. Three of four letters of the second string equal the first string's letters, shifted by
  /// one.
  static std::uint8_t input(std::size_t string, std::size_t i) {
    const std::uint64_t bits = scramble(2 * i + string);
    if (string == 1 && i % kString >= kLanes && (bits >> 8 & 3) != 0) return input(0, i - kLanes);
    return bits & 3;
  }
  std::size_t units() const override { return n_ / kString; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(best_)); }
  Counts counts() const override {
    Counts c;
    c.int_ops = 7 * kLanes * kLength * kLength;
    c.load_bytes = kString + kString * kLength;  // the second string is loaded again for each symbol of the first
    c.line_read_bytes = 2 * kString;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      const Symbols a = a_.from(u * kString), b = b_.from(u * kString);
      std::array<Lane, kLength + 1> row{};  // scores for the previous symbol of `a`
      Lane best{};
      for (std::size_t i = 0; i < kLength; ++i) {
        Lane symbol, left{}, diagonal{};
        for (std::size_t k = 0; k < kLanes; ++k) symbol[k] = Score(bare(Symbol(a[i * kLanes + k])));
        for (std::size_t j = 0; j < kLength; ++j) {
          Lane& up = row[j + 1];
          for (std::size_t k = 0; k < kLanes; ++k) {
            const Score other = Score(bare(Symbol(b[j * kLanes + k])));
            const Score similarity = symbol[k] == other ? Score(kMatch) : Score(kMismatch);
            const Score along = Score(diagonal[k] + similarity), across = Score(larger(left[k], up[k]) - Score(kGap));
            const Score score = larger(larger(along, across), Score(0));
            diagonal[k] = up[k];
            up[k] = left[k] = score;
            best[k] = larger(best[k], score);
          }
        }
      }
      for (std::size_t k = 0; k < kLanes; ++k) best_[u][k] = bare(best[k]);
      A::end_unit();
    }
  }
  /// Aligns one pair after the other.
  std::string verify() const override {
    for (std::size_t u = 0; u < best_.size(); ++u) {
      if (best_[u] == kUndone) continue;
      for (std::size_t k = 0; k < kLanes; ++k) {
        std::array<int, kLength> b{}, open{};
        std::array<int, kLength + 1> row{};
        for (std::size_t j = 0; j < kLength; ++j) b[j] = b_.p[u * kString + j * kLanes + k];
        int best = 0;
        for (std::size_t i = 0; i < kLength; ++i) {
          const int symbol = a_.p[u * kString + i * kLanes + k];
          for (std::size_t j = 0; j < kLength; ++j)
            open[j] = std::max({row[j] + (symbol == b[j] ? kMatch : kMismatch), row[j + 1] - kGap, 0});
          for (std::size_t j = 0; j < kLength; ++j) {
            row[j + 1] = std::max(open[j], row[j] - kGap);
            best = std::max(best, row[j + 1]);
          }
        }
        if (best_[u][k] != best)
          return wrong(u, "score " + std::to_string(best_[u][k]) + ", not " + std::to_string(best));
      }
    }
    return "";
  }

 private:
  std::size_t n_;
  Symbols a_, b_;
  std::vector<Best> best_;
};

/// The longest earlier match at each position of a text, by chains of positions with the same three letters. All units
/// have the same text in different alphabets, and therefore the same matches after the same number of steps.
template <class A>
struct MatchFinder final : Kernel {
  static constexpr std::size_t kText = 512, kLetters = 8, kHeads = kLetters * kLetters * kLetters;
  static constexpr std::size_t kMin = 3, kMax = 64, kDepth = 8;  // letters of a match; steps along a chain
  static constexpr std::size_t kPlaces = kText - kMin + 1;
  using Letter = typename A::template Value<std::uint8_t>;
  using Letters = typename A::template Array<std::uint8_t>;
  using Short = typename A::template Value<std::uint16_t>;
  using Shorts = typename A::template Array<std::uint16_t>;
  struct alignas(kLine) Work {
    std::array<std::uint16_t, kHeads> heads;  ///< 1 + the last position with these letters, 0 for none
    std::array<std::uint16_t, kText> before;  ///< 1 + the previous position with the same letters, 0 for none
  };

  MatchFinder(const Shape& shape, Memory& memory)
      : units_(fit(shape, 1, 1, kText * 5) / (kText * 5)),
        text_{memory.take<std::uint8_t>(units_ * kText)},
        length_{memory.take<std::uint16_t>(units_ * kText)},
        distance_{memory.take<std::uint16_t>(units_ * kText)} {
    // The text alternates between new letters and repeated phrases.
    std::uint64_t draws = 0;
    for (std::size_t i = 0; i < kText;) {
      const std::uint64_t draw = scramble(draws++);
      const std::size_t letters = 1 + (draw >> 8) % 12, back = 1 + (draw >> 16) % (i + 1);
      for (std::size_t k = 0; k < letters && i < kText; ++k, ++i)
        sample_[i] =
            static_cast<std::uint8_t>(draw % 3 != 0 && back <= i ? sample_[i - back] : scramble(draw + k) % kLetters);
    }
    for (std::size_t i = 0; i < units_ * kText; ++i) text_.p[i] = letter(i);
    compute_expected();
  }
  std::size_t units() const override { return units_; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(length_.p, units_ * kText)); }
  Counts counts() const override { return counts_; }

  void run(std::size_t first, std::size_t last, int) override {
    Work work;
    A::scratch(work);
    const Shorts heads{work.heads.data()}, before{work.before.data()};
    for (std::size_t u = first; u < last; ++u) {
      const Letters text = text_.from(u * kText);
      const Shorts length = length_.from(u * kText), distance = distance_.from(u * kText);
      for (std::size_t h = 0; h < kHeads; ++h) heads[h] = Short(0);
      for (std::size_t position = 0; position < kPlaces; ++position) {
        const auto letter_at = [text](std::size_t i) { return Short(bare(Letter(text[i]))); };
        const Short letters =
            Short(Short(letter_at(position) << Short(6)) | Short(letter_at(position + 1) << Short(3)));
        const std::size_t head = bare(Short(letters | letter_at(position + 2)));
        const Short newest = heads[head];
        std::size_t next = bare(newest), best = 0, match = position;
        const std::size_t max = std::min(kMax, kText - position);
        for (std::size_t depth = 0; next != 0 && depth < kDepth; ++depth) {
          const std::size_t other = next - 1;
          std::size_t match_length = kMin;
          while (match_length < max && Letter(text[other + match_length]) == Letter(text[position + match_length]))
            ++match_length;
          if (match_length > best) {
            best = match_length;
            match = other;
          }
          next = bare(Short(before[other]));
        }
        before[position] = newest;
        heads[head] = Short(static_cast<std::uint16_t>(position + 1));
        length[position] = Short(static_cast<std::uint16_t>(best));
        distance[position] = Short(static_cast<std::uint16_t>(position - match));
      }
      for (std::size_t position = kPlaces; position < kText; ++position) {
        length[position] = Short(0);
        distance[position] = Short(0);
      }
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < units_; ++u) {
      const auto zero = [](std::uint16_t x) { return x == 0; };
      const std::uint16_t *const length = length_.p + u * kText, *const distance = distance_.p + u * kText;
      if (std::all_of(length, length + kText, zero) && std::all_of(distance, distance + kText, zero)) continue;
      for (std::size_t i = 0; i < kText; ++i)
        if (length[i] != expected_length_[i] || distance[i] != expected_distance_[i])
          return wrong(u, "the match at position " + std::to_string(i) + " has " + std::to_string(length[i]) +
                              " letters, not " + std::to_string(expected_length_[i]) + ", or a wrong distance");
    }
    return "";
  }

 private:
  /// Returns a letter of the text. The alphabets differ by an exclusive or with each letter.
  std::uint8_t letter(std::size_t i) const {
    return static_cast<std::uint8_t>(sample_[i % kText] ^ scramble(i / kText) % kLetters);
  }
  /// Computes all matches by comparing every position with all earlier ones, and the steps that chains take.
  void compute_expected() {
    double comparisons = 0, steps = 0;
    for (std::size_t position = 0; position < kPlaces; ++position) {
      const auto start = sample_.begin() + static_cast<std::ptrdiff_t>(position);
      const auto end = start + static_cast<std::ptrdiff_t>(std::min(kMax, kText - position));
      std::size_t depth = 0;
      for (std::size_t back = 1; back <= position && depth < kDepth; ++back) {
        const auto differ = std::mismatch(start, end, start - static_cast<std::ptrdiff_t>(back)).first;
        const auto match_length = static_cast<std::size_t>(differ - start);
        if (match_length < kMin) continue;
        ++depth;
        comparisons += static_cast<double>(match_length - kMin) + (differ != end ? 1 : 0);
        if (match_length > expected_length_[position]) {
          expected_length_[position] = static_cast<std::uint16_t>(match_length);
          expected_distance_[position] = static_cast<std::uint16_t>(back);
        }
      }
      steps += static_cast<double>(depth);
    }
    counts_.int_ops = 4 * kPlaces + comparisons;
    counts_.load_bytes = kPlaces * (kMin + 2.0) + 2 * comparisons + 2 * steps;
    counts_.store_bytes = 2.0 * kHeads + 2 * 2.0 * kPlaces + 2 * 2.0 * kText;
    counts_.line_read_bytes = 5 * kText;
    counts_.line_write_bytes = 4 * kText;
  }

  std::size_t units_;
  Letters text_;
  Shorts length_, distance_;
  std::array<std::uint8_t, kText> sample_{};
  std::array<std::uint16_t, kText> expected_length_{}, expected_distance_{};
  Counts counts_;
};

/// Shortest paths between all vertices of small complete graphs.
template <class A>
struct FloydWarshall final : Kernel {
  static constexpr std::size_t kVertices = 16, kPairs = kVertices * kVertices;
  using Length = typename A::template Value<std::int32_t>;
  using Lengths = typename A::template Array<std::int32_t>;

  FloydWarshall(const Shape& shape, Memory& memory)
      : n_(fit(shape, 2, 4, kPairs)), edges_{memory.take<std::int32_t>(n_)}, paths_{memory.take<std::int32_t>(n_)} {
    for (std::size_t i = 0; i < n_; ++i) edges_.p[i] = input(i);
  }
  static std::int32_t input(std::size_t i) {
    const bool self = i % kPairs / kVertices == i % kVertices;
    return self ? 0 : static_cast<std::int32_t>(1 + scramble(i) % 1000);
  }
  std::size_t units() const override { return n_ / kPairs; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(paths_.p, n_)); }
  Counts counts() const override {
    constexpr double pairs = kPairs, steps = kPairs * kVertices;
    Counts c;
    c.int_ops = 2 * steps;
    c.load_bytes = 4 * (pairs + pairs + pairs + steps);  // copy, rows, columns, paths
    c.store_bytes = 4 * (pairs + steps);
    c.line_read_bytes = 2 * 4 * pairs;
    c.line_write_bytes = 4 * pairs;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      const Lengths edges = edges_.from(u * kPairs), d = paths_.from(u * kPairs);
      for (std::size_t i = 0; i < kPairs; ++i) d[i] = Length(edges[i]);
      for (std::size_t k = 0; k < kVertices; ++k) {
        std::array<Length, kVertices> onward;  // row k, which step k does not change
        for (std::size_t j = 0; j < kVertices; ++j) onward[j] = d[k * kVertices + j];
        for (std::size_t i = 0; i < kVertices; ++i) {
          const Length first_leg = d[i * kVertices + k];
          for (std::size_t j = 0; j < kVertices; ++j)
            d[i * kVertices + j] = smaller(Length(d[i * kVertices + j]), Length(first_leg + onward[j]));
        }
      }
      A::end_unit();
    }
  }
  /// If all lengths are positive, they are correct if and only if each is the minimum of its edge and of all paths by a
  /// third vertex: none can be too short, and the shortest wrong one would require a shorter wrong one.
  std::string verify() const override {
    for (std::size_t u = 0; u < units(); ++u) {
      const std::int32_t* const d = paths_.p + u * kPairs;
      if (std::all_of(d, d + kPairs, [](std::int32_t x) { return x == 0; })) continue;
      constexpr std::int64_t longest = 1 << 30;
      for (std::size_t i = 0; i < kVertices; ++i) {
        std::array<std::int64_t, kVertices> expected{};
        for (std::size_t j = 0; j < kVertices; ++j) expected[j] = input(u * kPairs + i * kVertices + j);
        for (std::size_t k = 0; k < kVertices; ++k)
          for (std::size_t j = 0; j < kVertices; ++j) {
            const std::int64_t via =
                i == k || k == j ? longest : std::int64_t{d[i * kVertices + k]} + d[k * kVertices + j];
            expected[j] = std::min(expected[j], via);
          }
        for (std::size_t j = 0; j < kVertices; ++j)
          if (d[i * kVertices + j] != expected[j] || (i != j && expected[j] <= 0))
            return wrong(u, "the path from " + std::to_string(i) + " to " + std::to_string(j) + " has the length " +
                                std::to_string(d[i * kVertices + j]));
      }
    }
    return "";
  }

 private:
  std::size_t n_;
  Lengths edges_, paths_;
};

/// Occurrences of a pattern in blocks of text. Bit k of a word states whether the pattern's first k + 1 letters end
/// here.
template <class A>
struct StringSearch final : Kernel {
  static constexpr std::size_t kText = 1024, kLetters = 8, kPattern = 8;
  using Letter = typename A::template Value<std::uint8_t>;
  using Letters = typename A::template Array<std::uint8_t>;
  using Word = typename A::template Value<std::uint64_t>;
  using Words = typename A::template Array<std::uint64_t>;
  static constexpr std::array<std::uint8_t, kPattern> kWanted{3, 1, 4, 1, 5, 3, 1, 4};
  static constexpr std::uint64_t kUndone = ~std::uint64_t{0};

  StringSearch(const Shape& shape, Memory& memory)
      : n_(fit(shape, 1, 1, kText)), text_{memory.take<std::uint8_t>(n_)}, found_(n_ / kText, kUndone) {
    for (std::size_t i = 0; i < n_; ++i) text_.p[i] = input(i);
    for (std::size_t k = 0; k < kPattern; ++k) places_[kWanted[k]] |= std::uint64_t{1} << k;
  }
  /// Returns random letters, and the pattern itself in a third of every other group of its length.
  static std::uint8_t input(std::size_t i) {
    const std::size_t group = i / kPattern;
    const bool is_pattern = group % 2 == 0 && scramble(group) % 3 == 0;
    return is_pattern ? kWanted[i % kPattern] : static_cast<std::uint8_t>(scramble(i) >> 32) % kLetters;
  }
  std::size_t units() const override { return n_ / kText; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(found_)); }
  Counts counts() const override {
    Counts c;
    c.int_ops = 6 * kText;
    c.load_bytes = kText * (1 + 8);
    c.line_read_bytes = kText;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    A::scratch(places_);
    const Words places{places_.data()};
    for (std::size_t u = first; u < last; ++u) {
      const Letters text = text_.from(u * kText);
      Word state = 0, count = 0;
      for (std::size_t i = 0; i < kText; ++i) {
        state = ((state << Word(1)) | Word(1)) & Word(places[bare(Letter(text[i]))]);
        count = count + ((state >> Word(kPattern - 1)) & Word(1));
      }
      found_[u] = bare(count);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t u = 0; u < found_.size(); ++u) {
      if (found_[u] == kUndone) continue;
      std::uint64_t expected = 0;
      const std::uint8_t *const start = text_.p + u * kText, *const last_start = start + kText - kPattern;
      for (const std::uint8_t* place = start; place <= last_start; ++place)
        expected += std::equal(kWanted.begin(), kWanted.end(), place);
      if (found_[u] != expected)
        return wrong(u, "found " + std::to_string(found_[u]) + ", not " + std::to_string(expected));
    }
    return "";
  }

 private:
  std::size_t n_;
  Letters text_;
  std::vector<std::uint64_t> found_;
  alignas(kLine) std::array<std::uint64_t, kLetters> places_{};
};

const Register<SmithWaterman> smith_waterman{
    {.name = "smith_waterman",
     .kind = "integer",
     .summary = "local alignment of strings of 32 symbols, sixteen pairs at once",
     .source = "Smith and Waterman; across pairs after Rognes' SWIPE",
     .parity = true,
     .stands_for = "u8"}};
const Register<MatchFinder> match_finder{{.name = "match_finder",
                                          .kind = "integer",
                                          .summary = "longest earlier matches in a text, by hash chains",
                                          .source = "LZ77 hash chains; after SPEC xz",
                                          .min_bytes = 12 << 10,
                                          .stands_for = "u8"}};
const Register<FloydWarshall> floyd_warshall{{.name = "floyd_warshall",
                                              .kind = "integer",
                                              .summary = "shortest paths between all pairs of 16 vertices",
                                              .source = "after PolyBench floyd-warshall",
                                              .min_bytes = 8 << 10,
                                              .stands_for = "i32"}};
const Register<StringSearch> string_search{{.name = "string_search",
                                            .kind = "integer",
                                            .summary = "occurrences of a pattern in blocks of text",
                                            .source = "Baeza-Yates and Gonnet's shift-and (bitap)",
                                            .stands_for = "u8"}};

}  // namespace
}  // namespace mm::workloads

#pragma once
/// Dependent loads: a pointer chase around a ring.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace mm {

/// A ring of pointers. The address of each load is the value of the previous one, so loads cannot overlap and `n` loads
/// take `n` load-to-use latencies.
struct Link {
  Link* next;
};

/// A small, fast generator: rings of 16 million slots must be built within the budget of a measurement.
/// Source: splitmix64, after Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (2014).
struct SplitMix {
  std::uint64_t state;
  std::uint64_t operator()() noexcept {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Returns a uniform number in [0, bound) up to a bias below 2^-32. Source: Lemire's multiply-shift reduction.
  std::uint64_t below(std::uint64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64);
  }
};

/// Joins `count` slots at base, base + stride, … into one random cycle and returns the first slot. The order is random,
/// because a prefetcher that predicts the next slot would turn latency into bandwidth. It is one cycle over the whole
/// range, because a short cycle would stay in a cache, and a cycle that stays within a page for long would hide the
/// cost of address translation.
/// Fills `starts` with slots at equal distances along the cycle, for several pointer chases on one ring.
/// Pre: count >= 2, stride >= sizeof(Link) and a multiple of it.
/// Source: Sattolo, An algorithm to generate a random cyclic permutation (1986).
inline Link* make_random_ring(std::byte* base, std::size_t count, std::size_t stride, std::uint64_t seed,
                              std::span<Link*> starts = {}) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  SplitMix random{seed};
  for (std::size_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  const auto slot = [&](std::size_t i) { return reinterpret_cast<Link*>(base + order[i] * stride); };
  for (std::size_t i = 0; i + 1 < count; ++i) slot(i)->next = slot(i + 1);
  slot(count - 1)->next = slot(0);
  for (std::size_t k = 0; k < starts.size(); ++k) starts[k] = slot(k * count / starts.size());
  return slot(0);
}

/// Joins the slots with constant stride, in the order of addresses, as hardware prefetchers expect. Returns the first
/// slot.
inline Link* make_stride_ring(std::byte* base, std::size_t count, std::size_t stride) {
  const auto slot = [&](std::size_t i) { return reinterpret_cast<Link*>(base + i * stride); };
  for (std::size_t i = 0; i < count; ++i) slot(i)->next = slot(i + 1 < count ? i + 1 : 0);
  return slot(0);
}

/// Follows `loads` links and returns the last one. The caller must use the result; otherwise the compiler may remove
/// the loop. Rounds `loads` up to a multiple of 16, so that the loads hide the loop overhead.
[[nodiscard]] inline Link* walk(Link* at, std::uint64_t loads) noexcept {
  for (std::uint64_t i = (loads + 15) / 16; i != 0; --i) {
    at = at->next, at = at->next, at = at->next, at = at->next;
    at = at->next, at = at->next, at = at->next, at = at->next;
    at = at->next, at = at->next, at = at->next, at = at->next;
    at = at->next, at = at->next, at = at->next, at = at->next;
  }
  return at;
}

/// Follows `steps` links on each of K rings at once, with K outstanding loads. `at` holds the current positions.
template <class... Place>
[[gnu::always_inline]] inline void walk_places(Link** at, std::uint64_t steps, Place*... p) noexcept {
  // Each position is in a separate register, as far as there are enough registers: two positions in one vector would
  // wait for each other, and an array would be in memory.
  for (std::uint64_t i = steps; i != 0; --i) {
    const auto step = [](auto*& place) {
      place = place->next;
      asm volatile("" : "+r"(place));
    };
    (step(p), ...);
  }
  ((*at++ = p), ...);
}

template <int K>
inline void walk_together(Link** at, std::uint64_t steps) noexcept {
  [&]<std::size_t... k>(std::index_sequence<k...>) { walk_places(at, steps, at[k]...); }(std::make_index_sequence<K>{});
}

using WalkTogether = void (*)(Link**, std::uint64_t);

/// Returns the function that follows `chains` rings at once; nullptr for an unsupported number.
inline WalkTogether walk_of(int chains) {
  switch (chains) {
    case 1:
      return walk_together<1>;
    case 2:
      return walk_together<2>;
    case 3:
      return walk_together<3>;
    case 4:
      return walk_together<4>;
    case 5:
      return walk_together<5>;
    case 6:
      return walk_together<6>;
    case 8:
      return walk_together<8>;
    case 10:
      return walk_together<10>;
    case 12:
      return walk_together<12>;
    case 14:
      return walk_together<14>;
    case 16:
      return walk_together<16>;
    case 20:
      return walk_together<20>;
    case 24:
      return walk_together<24>;
    case 32:
      return walk_together<32>;
    default:
      return nullptr;
  }
}

}  // namespace mm

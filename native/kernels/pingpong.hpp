#pragma once
/// A cache line transferred between two threads.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/chase.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mm {

/// A cache line that two threads pass back and forth. Its pair of lines contains nothing else, since processors also
/// prefetch the neighbouring line.
struct alignas(128) Ball {
  std::atomic<std::uint32_t> value{0};
};

/// Performs one side's part of `rounds` exchanges by compare-and-swap: side 0 turns 0 into 1, side 1 turns 1 into 0. A
/// round transfers the ownership of the line twice. Source: the protocol of the crate core-to-core-latency.
inline void swap_ball(Ball& ball, std::uint32_t side, std::uint64_t rounds) noexcept {
  for (std::uint64_t i = 0; i < rounds; ++i)
    for (std::uint32_t expected = side;
         !ball.value.compare_exchange_weak(expected, 1 - side, std::memory_order_acq_rel, std::memory_order_relaxed);
         expected = side) {}
}

/// Like swap_ball, but by plain loads and stores: each side polls for its turn. Source: pingpong of multichase.
inline void pass_ball(Ball& ball, std::uint32_t side, std::uint64_t rounds) noexcept {
  for (std::uint64_t i = 0; i < rounds; ++i) {
    while (ball.value.load(std::memory_order_acquire) != side) {
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
    ball.value.store(1 - side, std::memory_order_release);
  }
}

/// Writes to every slot of a ring, so that the writer's cache holds all its lines in modified state.
inline void dirty_ring(Link* start) noexcept {
  Link* at = start;
  do {
    auto* counter = reinterpret_cast<std::atomic<std::uint64_t>*>(at + 1);  // the word after the link
    counter->store(counter->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    at = at->next;
  } while (at != start);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// Flushes every line of [base, base + bytes) from all caches.
inline void flush_lines(const std::byte* base, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    _mm_clflush(base + i);
#elif defined(__aarch64__)
    asm volatile("dc civac, %0" : : "r"(base + i) : "memory");
#endif
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__x86_64__)
  _mm_mfence();
#endif
}

}  // namespace mm

#include "kernels/chase.hpp"

#include <gtest/gtest.h>

#include <set>

namespace {

// A ring that closes early would stay in cache and yield too low a latency: it must be one cycle over all slots.
TEST(Ring, VisitsEverySlotExactlyOnceForAnySeed) {
  constexpr std::size_t kSlots = 1000, kStride = 64;
  for (std::uint64_t seed : {0u, 1u, 2026u}) {
    std::vector<std::byte> memory(kSlots * kStride + 64);
    mm::Link* const start = mm::make_random_ring(memory.data(), kSlots, kStride, seed);
    std::set<mm::Link*> visited;
    for (mm::Link* at = start; visited.insert(at).second;) at = at->next;
    EXPECT_EQ(visited.size(), kSlots) << "seed " << seed;
  }
}

TEST(Ring, OrderDependsOnTheSeed) {
  std::vector<std::byte> a(64 * 64), b(64 * 64);
  mm::Link *x = mm::make_random_ring(a.data(), 64, 64, 1), *y = mm::make_random_ring(b.data(), 64, 64, 2);
  int differ = 0;
  for (int i = 0; i < 64; ++i, x = x->next, y = y->next)
    differ += reinterpret_cast<std::byte*>(x) - a.data() != reinterpret_cast<std::byte*>(y) - b.data();
  EXPECT_GT(differ, 32);
}

TEST(Walk, FollowsTheGivenNumberOfLinks) {
  std::vector<std::byte> memory(48 * 64);
  mm::Link* const start = mm::make_stride_ring(memory.data(), 48, 64);
  EXPECT_EQ(mm::walk(start, 48), start);
  EXPECT_EQ(reinterpret_cast<std::byte*>(mm::walk(start, 16)) - memory.data(), 16 * 64);
}

}  // namespace

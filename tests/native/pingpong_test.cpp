#include "kernels/pingpong.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/resources/memory.hpp"

namespace {

// If one side passed the line twice, or never, the exchange would hang or end with the other value.
template <class Exchange>
void play(Exchange exchange) {
  mm::Ball ball;
  constexpr std::uint64_t kRounds = 20000;
  std::thread other([&] { exchange(ball, 1, kRounds); });
  exchange(ball, 0, kRounds);
  other.join();
  EXPECT_EQ(ball.value.load(), 0u);
}

TEST(PingPong, EachSwapWaitsForTheOther) { play(mm::swap_ball); }
TEST(PingPong, EachPassWaitsForTheOther) { play(mm::pass_ball); }

TEST(PingPong, EachSideTakesExactlyOneTurnPerRound) {
  mm::Ball ball;
  mm::swap_ball(ball, 0, 1);
  EXPECT_EQ(ball.value.load(), 1u);
  mm::swap_ball(ball, 1, 1);
  EXPECT_EQ(ball.value.load(), 0u);
}

TEST(DirtyRing, WritesEverySlotAndKeepsTheRing) {
  const auto arena = mm::Arena::make({.bytes = 64 * 256, .pages = mm::Pages::base});
  std::vector<mm::Link*> starts(1);
  mm::make_random_ring(arena->data(), 256, 64, 7, starts);
  for (int turn = 1; turn <= 3; ++turn) {
    mm::dirty_ring(starts[0]);
    for (std::size_t i = 0; i < 256; ++i)
      EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(arena->data() + i * 64 + sizeof(mm::Link)),
                static_cast<std::uint64_t>(turn));
  }
  mm::flush_lines(arena->data(), arena->bytes());
  std::size_t length = 0;
  const mm::Link* at = starts[0];
  do {
    at = at->next;
    ++length;
  } while (at != starts[0] && length < 1000);
  EXPECT_EQ(length, 256u);
}

}  // namespace

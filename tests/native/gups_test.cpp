#include "kernels/gups.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

TEST(RandomStream, JumpEqualsRepeatedSteps) {
  std::uint64_t x = 1;
  for (std::uint64_t n = 0; n < 3000; ++n, x = mm::next_random(x)) ASSERT_EQ(mm::random_at(n), x) << n;
}

TEST(Updates, AheadEqualsPlainAndTwiceRestoresTheTable) {
  constexpr std::uint64_t kWords = 1 << 12;
  std::vector<std::uint64_t> a(kWords), b(kWords);
  for (std::uint64_t i = 0; i < kWords; ++i) a[i] = b[i] = i;
  const auto x = mm::update_plain(a.data(), kWords - 1, 1, 64 * 100);
  EXPECT_EQ(mm::update_ahead(b.data(), kWords - 1, 1, 64 * 100), x);
  EXPECT_EQ(a, b);
  mm::update_plain(a.data(), kWords - 1, 1, 64 * 100);
  for (std::uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(a[i], i);
}

}  // namespace

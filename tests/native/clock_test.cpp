#include "base/clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/harness/instrument.hpp"

namespace {

// Dependent multiplications of 32 bits take three cycles on x86 (Core 2 and later, Zen), two to four on ARM.
[[maybe_unused]] std::uint32_t dependent_multiplications(std::uint32_t count) {
  std::uint32_t x = count | 1, factor = 3;
#if defined(__x86_64__)
  for (; count != 0; --count) asm volatile("imul %1, %0" : "+r"(x) : "r"(factor) : "cc");
#elif defined(__aarch64__)
  for (; count != 0; --count) asm volatile("mul %w0, %w0, %w1" : "+r"(x) : "r"(factor));
#endif
  return x;
}

/// The best time of many, in ticks: it holds on a busy machine, too.
template <typename Work>
mm::Ticks best_ticks(Work work) {
  mm::Ticks best = ~mm::Ticks{0};
  for (int i = 0; i < 300; ++i) {
    const mm::Ticks begin = mm::ticks();
    work();
    best = std::min(best, mm::ticks() - begin);
  }
  return best;
}

TEST(Clock, DependentAdditionsTakeACycleEach) {
#if defined(__x86_64__) || defined(__aarch64__)
  constexpr std::uint32_t kCount = 1 << 14;
  const auto additions = static_cast<double>(best_ticks([] { mm::keep(mm::dependent_adds(kCount)); }));
  const auto multiplications = static_cast<double>(best_ticks([] { mm::keep(dependent_multiplications(kCount)); }));
  // Additions of a constant, which recent processors execute at renaming, would give 16.
  EXPECT_GT(multiplications / additions, 1.5);
  EXPECT_LT(multiplications / additions, 6);
#else
  GTEST_SKIP() << "no multiplication to compare with on this architecture";
#endif
}

}  // namespace

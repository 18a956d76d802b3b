#include "kernels/fma.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Fma, ClosedFormOfTheIntegerChain) {
  std::uint32_t x = 0;
  for (std::uint64_t n = 0; n < 200; ++n, x = 3 * x + 1) ASSERT_EQ(mm::fma::affine(n), x) << n;
}

TEST(Fma, EveryChainOfEveryKernelEndsWithItsExpectedValue) {
  for (std::string_view isa : mm::built_isas()) {
    if (!mm::has_isa(isa)) continue;
    for (const auto type : {mm::FmaType::fp64, mm::FmaType::fp32, mm::FmaType::int32}) {
      const mm::FmaKernel kernel = mm::fma_kernel(isa, type);
      if (kernel.run == nullptr) continue;
      for (std::uint64_t n : {64u, 65u, 1000u, 12345u}) EXPECT_EQ(kernel.run(n), 0) << isa << ' ' << n;
    }
  }
}

}  // namespace

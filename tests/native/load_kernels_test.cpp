/// Every kernel: its counts against counted accesses, its result, and that a spoiled result is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "error.hpp"
#include "workloads/access.hpp"
#include "workloads/kernel.hpp"

namespace mm::workloads {
namespace {

Everyone everyone(int threads) {
  return [threads](const std::function<void(int)>& work) {
    std::vector<std::jthread> team;
    for (int rank = 1; rank < threads; ++rank) team.emplace_back([&work, rank] { work(rank); });
    work(0);
  };
}

/// All units once, by all threads, as a call of a program does it.
void walk(Kernel& kernel, const Info& info, int threads, std::size_t most = std::size_t(-1)) {
  const std::size_t units = std::min(kernel.units(), most);
  everyone(threads)([&](int rank) {
    const auto part = [&](int r) { return units * static_cast<std::size_t>(r) / static_cast<std::size_t>(threads); };
    if (info.team)
      kernel.run(0, units, rank);
    else
      kernel.run(part(rank), part(rank + 1), rank);
  });
}

/// What these units do, summed over a team.
Counts counted(Kernel& kernel, std::size_t first, std::size_t last, int threads) {
  std::mutex one;
  Counts all;
  everyone(threads)([&](int rank) {
    tally() = {};
    kernel.run(first, last, rank);
    const std::lock_guard only(one);
    for (const CountColumn& c : kCountColumns) all.*c.value += tally().counts.*c.value;
  });
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& e : kernels()) all.push_back(e.info.name);
  return all;
}

class LoadKernel : public testing::TestWithParam<std::string> {
 protected:
  const Entry& entry_ = kernel(GetParam());
  const Info& info_ = entry_.info;
  std::vector<int> strides() const {
    return info_.strided ? std::vector<int>{1, 2, 4, 8, 16, 32} : std::vector<int>{1};
  }
  std::size_t volume() const { return std::max<std::size_t>(info_.least_bytes, 256 << 10); }
};

TEST_P(LoadKernel, CountsAreThoseOfItsAccesses) {
  const int threads = info_.least_threads;
  for (const int stride : strides()) {
    Memory memory(threads, everyone(threads));
    const auto kernel = make(entry_, {volume(), stride, threads}, memory, true);
    const std::size_t units = std::min<std::size_t>(kernel->units(), 64);
    for (const std::size_t first : {std::size_t{0}, kernel->units() - units}) {
      const Counts seen = counted(*kernel, first, first + units, info_.team ? threads : 1);
      const Counts said = kernel->counts();
      const double n = static_cast<double>(units);
      EXPECT_DOUBLE_EQ(seen.flops, n * said.flops) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.int_ops, n * said.int_ops) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.load_bytes, n * said.load_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.store_bytes, n * said.store_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.line_read_bytes, n * said.line_read_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.line_write_bytes, n * said.line_write_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(seen.io_read_bytes, n * said.io_read_bytes);
      EXPECT_DOUBLE_EQ(seen.io_write_bytes, n * said.io_write_bytes);
      EXPECT_DOUBLE_EQ(seen.system_calls, n * said.system_calls);
    }
    EXPECT_EQ(kernel->verify(), "");
  }
}

TEST_P(LoadKernel, ResultIsRightAfterWholeAndPartOfWalks) {
  for (const int threads : {info_.least_threads, std::min(info_.most_threads, std::max(2, info_.least_threads))})
    for (const int stride : strides()) {
      Memory memory(threads, everyone(threads));
      const auto kernel = make(entry_, {volume(), stride, threads}, memory);
      EXPECT_EQ(kernel->verify(), "") << "before its first unit";
      walk(*kernel, info_, threads, kernel->units() / 3 + 1);
      EXPECT_EQ(kernel->verify(), "") << "after a part of a walk";
      for (int i = 0; i < 3; ++i) walk(*kernel, info_, threads);
      EXPECT_EQ(kernel->verify(), "") << "after walks, stride " << stride;
    }
}

TEST_P(LoadKernel, SpoiledResultIsFound) {
  const int threads = info_.least_threads;
  Memory memory(threads, everyone(threads));
  const auto kernel = make(entry_, {volume(), 1, threads}, memory);
  walk(*kernel, info_, threads);
  const std::span<std::byte> result = kernel->result();
  if (info_.kind == "idle") GTEST_SKIP() << "it has no result";
  ASSERT_FALSE(result.empty());
  // Somewhere in its middle, the whole of a line: single bits of an approximation may drown in rounding.
  const std::size_t from = result.size() / 2 / 8 * 8, bytes = std::min<std::size_t>(64, result.size() - from);
  std::vector<std::byte> was(result.begin() + static_cast<std::ptrdiff_t>(from),
                             result.begin() + static_cast<std::ptrdiff_t>(from + bytes));
  for (std::size_t i = 0; i < bytes; ++i) result[from + i] ^= std::byte{0x5a};
  EXPECT_NE(kernel->verify(), "");
  std::copy(was.begin(), was.end(), result.begin() + static_cast<std::ptrdiff_t>(from));
  EXPECT_EQ(kernel->verify(), "");
}

TEST_P(LoadKernel, SameWorkGivesTheSameResult) {
  if (info_.team) GTEST_SKIP() << "its threads race on purpose";
  std::vector<std::vector<std::byte>> results;
  for (const int threads : {info_.least_threads, std::min(info_.most_threads, 3)}) {
    Memory memory(threads, everyone(threads));
    const auto kernel = make(entry_, {volume(), 1, threads}, memory);
    walk(*kernel, info_, threads);
    const auto result = kernel->result();
    results.emplace_back(result.begin(), result.end());
  }
  EXPECT_TRUE(info_.kind == "system" || results[0] == results[1]) << "one thread and three differ";
}

TEST_P(LoadKernel, AVolumeThatIsTooSmallIsAbsentWithAReason) {
  if (!info_.sized) GTEST_SKIP() << "it has no volume";
  Memory memory(1, everyone(1));
  try {
    make(entry_, {info_.least_bytes - 1, 1, info_.least_threads}, memory);
    FAIL() << "made in " << info_.least_bytes - 1 << " B";
  } catch (const Absent& why) {
    EXPECT_NE(std::string(why.what()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoadKernel, testing::ValuesIn(names()), [](const auto& one) { return one.param; });

TEST(LoadKernels, NamesAreUniqueAndEachIsDescribed) {
  std::vector<std::string> all = names();
  EXPECT_TRUE(std::adjacent_find(all.begin(), all.end()) == all.end());
  for (const Entry& e : kernels()) {
    EXPECT_NE(e.info.summary, "") << e.info.name;
    EXPECT_NE(e.info.source, "") << e.info.name;
    EXPECT_NE(e.info.kind, "") << e.info.name;
  }
}

TEST(LoadKernels, AnUnknownNameIsRefused) { EXPECT_THROW(kernel("tirad"), UsageError); }

}  // namespace
}  // namespace mm::workloads

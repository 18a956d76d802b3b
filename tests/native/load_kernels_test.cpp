/// Every load kernel: its counts against counted accesses, its result, and detection of a corrupted result.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "workloads/access.hpp"
#include "workloads/kernel.hpp"

namespace mm::workloads {
namespace {

OnEveryThread on_every_thread(int threads) {
  return [threads](const std::function<void(int)>& work) {
    std::vector<std::jthread> team;
    for (int rank = 1; rank < threads; ++rank) team.emplace_back([&work, rank] { work(rank); });
    work(0);
  };
}

/// Runs all units once, on all threads, like a call in a program.
void walk(Kernel& kernel, const Info& info, int threads, std::size_t max_units = std::size_t(-1)) {
  const std::size_t units = std::min(kernel.units(), max_units);
  on_every_thread(threads)([&](int rank) {
    const auto part = [&](int r) { return units * static_cast<std::size_t>(r) / static_cast<std::size_t>(threads); };
    if (info.team)
      kernel.run(0, units, rank);
    else
      kernel.run(part(rank), part(rank + 1), rank);
  });
}

/// The counts of these units, summed over a team.
Counts counted(Kernel& kernel, std::size_t first, std::size_t last, int threads) {
  std::mutex one;
  Counts all;
  on_every_thread(threads)([&](int rank) {
    tally() = {};
    kernel.run(first, last, rank);
    const std::lock_guard only(one);
    for (const CountColumn& c : kCountColumns) all.*c.value += tally().counts.*c.value;
  });
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const KernelEntry& e : kernels()) all.push_back(e.info.name);
  return all;
}

class LoadKernel : public testing::TestWithParam<std::string> {
 protected:
  const KernelEntry& entry_ = kernel(GetParam());
  const Info& info_ = entry_.info;
  std::vector<int> strides() const {
    return info_.strided ? std::vector<int>{1, 2, 4, 8, 16, 32} : std::vector<int>{1};
  }
  std::size_t volume() const { return std::max<std::size_t>(info_.min_bytes, 256 << 10); }
};

TEST_P(LoadKernel, CountsMatchItsAccesses) {
  const int threads = info_.min_threads;
  for (const int stride : strides()) {
    Memory memory(threads, on_every_thread(threads));
    const auto kernel = make(entry_, {volume(), stride, threads}, memory, true);
    const std::size_t units = std::min<std::size_t>(kernel->units(), 64);
    for (const std::size_t first : {std::size_t{0}, kernel->units() - units}) {
      const Counts observed = counted(*kernel, first, first + units, info_.team ? threads : 1);
      const Counts stated = kernel->counts();
      const double n = static_cast<double>(units);
      EXPECT_DOUBLE_EQ(observed.flops, n * stated.flops) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.int_ops, n * stated.int_ops) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.load_bytes, n * stated.load_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.store_bytes, n * stated.store_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.line_read_bytes, n * stated.line_read_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.line_write_bytes, n * stated.line_write_bytes) << "stride " << stride;
      EXPECT_DOUBLE_EQ(observed.io_read_bytes, n * stated.io_read_bytes);
      EXPECT_DOUBLE_EQ(observed.io_write_bytes, n * stated.io_write_bytes);
      EXPECT_DOUBLE_EQ(observed.system_calls, n * stated.system_calls);
    }
    EXPECT_EQ(kernel->verify(), "");
  }
}

TEST_P(LoadKernel, ResultIsCorrectAfterWholeAndPartialPasses) {
  for (const int threads : {info_.min_threads, std::min(info_.max_threads, std::max(2, info_.min_threads))})
    for (const int stride : strides()) {
      Memory memory(threads, on_every_thread(threads));
      const auto kernel = make(entry_, {volume(), stride, threads}, memory);
      EXPECT_EQ(kernel->verify(), "") << "before its first unit";
      walk(*kernel, info_, threads, kernel->units() / 3 + 1);
      EXPECT_EQ(kernel->verify(), "") << "after a partial pass";
      for (int i = 0; i < 3; ++i) walk(*kernel, info_, threads);
      EXPECT_EQ(kernel->verify(), "") << "after whole passes, stride " << stride;
    }
}

TEST_P(LoadKernel, CorruptedResultIsDetected) {
  const int threads = info_.min_threads;
  Memory memory(threads, on_every_thread(threads));
  const auto kernel = make(entry_, {volume(), 1, threads}, memory);
  walk(*kernel, info_, threads);
  const std::span<std::byte> result = kernel->result();
  if (info_.kind == "idle") GTEST_SKIP() << "no result";
  ASSERT_FALSE(result.empty());
  // A whole line in the middle: single bits of an approximate result may be below its tolerance.
  const std::size_t from = result.size() / 2 / 8 * 8, bytes = std::min<std::size_t>(64, result.size() - from);
  std::vector<std::byte> original(result.begin() + static_cast<std::ptrdiff_t>(from),
                                  result.begin() + static_cast<std::ptrdiff_t>(from + bytes));
  for (std::size_t i = 0; i < bytes; ++i) result[from + i] ^= std::byte{0x5a};
  EXPECT_NE(kernel->verify(), "");
  std::copy(original.begin(), original.end(), result.begin() + static_cast<std::ptrdiff_t>(from));
  EXPECT_EQ(kernel->verify(), "");
}

TEST_P(LoadKernel, SameWorkGivesTheSameResult) {
  if (info_.team) GTEST_SKIP() << "its threads race intentionally";
  std::vector<std::vector<std::byte>> results;
  for (const int threads : {info_.min_threads, std::min(info_.max_threads, 3)}) {
    Memory memory(threads, on_every_thread(threads));
    const auto kernel = make(entry_, {volume(), 1, threads}, memory);
    walk(*kernel, info_, threads);
    const auto result = kernel->result();
    results.emplace_back(result.begin(), result.end());
  }
  EXPECT_TRUE(info_.kind == "system" || results[0] == results[1]) << "one thread and three differ";
}

TEST_P(LoadKernel, TooSmallVolumeIsAbsentWithAReason) {
  if (!info_.sized) GTEST_SKIP() << "it has no volume";
  Memory memory(1, on_every_thread(1));
  try {
    make(entry_, {info_.min_bytes - 1, 1, info_.min_threads}, memory);
    FAIL() << "accepted a volume of " << info_.min_bytes - 1 << " B";
  } catch (const Absent& why) {
    EXPECT_NE(std::string(why.what()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoadKernel, testing::ValuesIn(names()), [](const auto& one) { return one.param; });

TEST(LoadKernels, NamesAreUniqueAndEachIsDescribed) {
  std::vector<std::string> all = names();
  EXPECT_TRUE(std::adjacent_find(all.begin(), all.end()) == all.end());
  for (const KernelEntry& e : kernels()) {
    EXPECT_NE(e.info.summary, "") << e.info.name;
    EXPECT_NE(e.info.source, "") << e.info.name;
    EXPECT_NE(e.info.kind, "") << e.info.name;
  }
}

TEST(LoadKernels, UnknownNameIsRefused) { EXPECT_THROW(kernel("tirad"), UsageError); }

}  // namespace
}  // namespace mm::workloads

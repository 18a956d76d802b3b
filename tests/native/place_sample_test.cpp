#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>

#include "place/binding/bind.hpp"
#include "place/sample/pages.hpp"
#include "place/sample/sample.hpp"

namespace mm::place::sample {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Anonymous memory with this protection; all its pages are touched if it can be written.
class Memory {
 public:
  Memory(std::size_t bytes, int protection) : bytes_(bytes) {
    data_ = static_cast<char*>(::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ::madvise(data_, bytes, MADV_NOHUGEPAGE);
    if ((protection & PROT_WRITE) != 0)
      for (std::size_t at = 0; at < bytes; at += 4096) data_[at] = 1;
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

 private:
  std::size_t bytes_;
  char* data_;
};

std::uint64_t total(const std::map<int, std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& entry) { return sum + entry.second; });
}

TEST(PlaceSample, ASmallProcessIsCountedExactly) {
  const Memory memory(4 * kMiB, PROT_READ | PROT_WRITE);
  const PageSample sample = sample_pages(::getpid(), 1000, 16 * kMiB);
  if (!sample.exact) GTEST_SKIP() << "this process has too many mappings, or the kernel no numa_maps";
  EXPECT_GE(total(sample.process_bytes), 4 * kMiB);
  EXPECT_FALSE(sample.policies.empty());
}

TEST(PlaceSample, ALargeProcessIsSampledAtEqualDistances) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer maps terabytes that it hardly touches";
#endif
  const Memory memory(256 * kMiB, PROT_READ | PROT_WRITE);
  const Memory reserved(std::size_t{1} << 40, PROT_NONE);  // costs nothing: it cannot be read
  const PageSample sample = sample_pages(::getpid(), 1000, 260 * kMiB);
  EXPECT_FALSE(sample.exact);
  EXPECT_GE(sample.pages, 700U);
  EXPECT_LE(sample.addresses, 2000U);
  EXPECT_LE(total(sample.process_bytes), 2000U * 4096);
  EXPECT_FALSE(sample.truncated);
}

TEST(PlaceSample, MemoryThatWasNeverTouchedIsNotCounted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer maps terabytes that it hardly touches";
#endif
  const Memory memory(64 * kMiB, PROT_READ | PROT_WRITE);
  const Memory empty(std::size_t{64} << 30, PROT_READ);
  const PageSample sample = sample_pages(::getpid(), 1000, 70 * kMiB);
  EXPECT_LE(sample.addresses, 2000U);
  EXPECT_LT(sample.pages, 200U) << "64 MiB of 64 GiB";
}

TEST(PlaceSample, MappingsAreInOrderAndReadable) {
  Mappings mappings(::getpid());
  ASSERT_TRUE(mappings);
  std::uint64_t at = 0;
  std::size_t count = 0;
  while (const auto mapping = mappings.at_or_after(at)) {
    ASSERT_GE(mapping->begin, at);
    ASSERT_GT(mapping->end, mapping->begin);
    at = mapping->end;
    ++count;
  }
  EXPECT_GE(count, 10U);
}

TEST(PlaceSample, AProcessThatEndedIsLeftOut) {
  EXPECT_EQ(sample_pages(4194303, 100, 1 << 30).pages, 0U);
  const Sample sample = observe(machine_of("host"), {4194303}, 0);
  EXPECT_TRUE(sample.observed.empty());
}

TEST(PlaceSample, AThreadThatRunsIsSeenOnItsNode) {
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    while (!stop) {}
  });
  // The thread sanitizer has a thread of its own.
  const auto running = static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator()));
  const Sample sample = observe(machine_of("host"), {::getpid()}, 0.3);
  stop = true;
  worker.join();
  ASSERT_EQ(sample.observed.size(), 1U);
  const ProcessSample& one = sample.observed[0];
  EXPECT_GE(running, 2U);
  EXPECT_EQ(one.threads, running);
  EXPECT_GT(one.ran_s, 0);
  double by_node = 0;
  for (const auto& [node, s] : one.ran_by_node) by_node += s;
  EXPECT_NEAR(by_node, one.ran_s, 1e-9);
  std::size_t threads = 0;
  for (const auto& [cpus, use] : one.masks) threads += use.threads;
  EXPECT_EQ(threads, running);
  EXPECT_FALSE(one.allowed_nodes.empty());
  const json line = to_json(sample);
  EXPECT_EQ(line["observed"][0]["process"], ::getpid());
}

}  // namespace
}  // namespace mm::place::sample

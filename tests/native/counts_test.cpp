/// Events of a thread: which ones the Linux kernel permits, the reasons for the others, and the counts.
#include "base/resources/counts.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <thread>

#include "base/resources/team.hpp"

namespace mm::perf {
namespace {

/// Simulates a processor with a number of counters, and a Linux kernel that forbids or lacks events.
class MadeUpKernel : public PerfKernel {
 public:
  bool guarded = false;           ///< events inside the Linux kernel are forbidden
  bool without_hardware = false;  ///< no PMU, as in most virtual machines
  int refuse = 0;                 ///< errno of every call
  std::size_t counters = 99;      ///< of the processor; groups beyond them are multiplexed
  std::uint64_t turn = 0;         ///< readings so far

  int open(perf_event_attr& a, int cpu, int leader) override {
    EXPECT_EQ(cpu, -1) << "of the calling thread";
    if (refuse != 0) return -refuse;
    if (guarded && a.exclude_kernel == 0) return -EACCES;
    const bool hardware = a.type != PERF_TYPE_SOFTWARE;
    if (without_hardware && hardware) return -ENOENT;
    const int d = next_++;
    events_[d] = {leader < 0 ? d : leader, hardware};
    return d;
  }
  long read(int d, void* into, std::size_t) override {
    ++turn;
    std::size_t before = 0, size = 0;
    for (const auto& [other, e] : events_) {
      before += e.hardware && e.leader < d ? 1 : 0;
      size += e.leader == d ? 1 : 0;
    }
    const bool runs = !events_.at(d).hardware || before + size <= counters;
    auto* out = static_cast<std::uint64_t*>(into);
    *out++ = size;
    *out++ = 1000 * turn;
    *out++ = runs ? 1000 * turn : 0;
    for (std::size_t i = 0; i < size; ++i) *out++ = runs ? 100 * turn * (i + 1) : 0;
    return static_cast<long>((3 + size) * sizeof(std::uint64_t));
  }
  void close(int d) override { events_.erase(d); }
  std::size_t open_now() const { return events_.size(); }

 private:
  struct Opened {
    int leader;
    bool hardware;
  };
  std::map<int, Opened> events_;
  int next_ = 3;
};

std::vector<std::string> names(const ThreadEvents& events) {
  std::vector<std::string> all;
  for (const ThreadEvent& e : events.had()) all.push_back(e.name);
  return all;
}

TEST(ThreadEvents, AllThereIsWhereEverythingMayBeCounted) {
  MadeUpKernel kernel;
  const ThreadEvents events(kernel);
  EXPECT_EQ(events.had().size(), 11U);
  EXPECT_TRUE(events.lacking().empty());
  EXPECT_FALSE(events.user_only());
  EXPECT_EQ(kernel.open_now(), 0U) << "descriptors of the trial are closed";
}

TEST(ThreadEvents, WithoutPmuTheKernelsOwnRemainAndTheOthersAreSaidOnce) {
  MadeUpKernel kernel;
  kernel.without_hardware = true;
  const ThreadEvents events(kernel);
  EXPECT_EQ(names(events), (std::vector<std::string>{"page_faults", "context_switches", "task_clock_s"}));
  ASSERT_EQ(events.lacking().size(), 1U);
  EXPECT_EQ(events.lacking()[0].names.size(), 8U);
  EXPECT_NE(events.lacking()[0].reason.find("hypervisors"), std::string::npos);
}

TEST(ThreadEvents, AUserWhoMayNotSeeTheKernelCountsHisOwnWorkAndNoSwitches) {
  MadeUpKernel kernel;
  kernel.guarded = true;
  const ThreadEvents events(kernel);
  EXPECT_TRUE(events.user_only());
  EXPECT_EQ(events.had().size(), 10U);
  ASSERT_EQ(events.lacking().size(), 1U);
  // Excluding the Linux kernel, they would be 0, which is wrong.
  EXPECT_EQ(events.lacking()[0].names, std::vector<std::string>{"context_switches"});
  EXPECT_NE(events.lacking()[0].enable, "");
}

TEST(ThreadEvents, ARefusalOfEverythingHasItsReason) {
  for (const auto& [error, says] :
       {std::pair{EACCES, "this user"}, {ENOSYS, "perf_event_open"}, {EMFILE, "cannot be opened"}}) {
    MadeUpKernel kernel;
    kernel.refuse = error;
    const ThreadEvents events(kernel);
    EXPECT_TRUE(events.had().empty());
    std::size_t lacking = 0;
    for (const auto& l : events.lacking()) lacking += l.names.size();
    EXPECT_EQ(lacking, 11U);
    EXPECT_NE(events.lacking()[0].reason.find(says), std::string::npos) << events.lacking()[0].reason;
  }
}

TEST(ThreadCounts, GrowsBetweenBeginAndEndAndIsUnknownWhereItHadNoTurn) {
  MadeUpKernel kernel;
  kernel.counters = 4;
  const ThreadEvents events(kernel);
  ThreadCounts counts(events);
  EXPECT_EQ(kernel.open_now(), 11U);
  counts.begin();
  counts.end();
  const std::vector<std::string> all = names(events);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool waits =
        all[i] == "branches" || all[i] == "branch_misses" || all[i] == "l1_misses" || all[i] == "tlb_misses";
    EXPECT_EQ(std::isnan(counts.of(i)), waits) << all[i];
  }
  // Five groups are multiplexed, so five turns of 100 lie between two readings of one group.
  EXPECT_DOUBLE_EQ(counts.of(0), 500);
  EXPECT_DOUBLE_EQ(counts.of(1), 1000);
}

TEST(ThreadCounts, TheRealKernelCountsFaultsOfThisThreadAlone) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer touches shadow pages for each page that this thread touches";
#endif
  const ThreadEvents events;
  const std::vector<std::string> all = names(events);
  const auto at = std::find(all.begin(), all.end(), "page_faults");
  if (at == all.end()) GTEST_SKIP() << events.lacking().at(0).reason;
  constexpr std::size_t kPages = 300;
  const auto fault = [] {
    void* const made = ::mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(made, MAP_FAILED);
    ::madvise(made, kPages * 4096, MADV_NOHUGEPAGE);
    for (std::size_t p = 0; p < kPages; ++p) static_cast<volatile char*>(made)[p * 4096] = 1;
    ::munmap(made, kPages * 4096);
  };
  ThreadCounts counts(events);
  counts.begin();
  fault();
  for (const int cpu : allowed_cpus())
    std::thread([&] {
      pin(cpu);
      for (int i = 0; i < 3; ++i) fault();
    }).join();
  counts.end();
  const double faults = counts.of(static_cast<std::size_t>(at - all.begin()));
  EXPECT_GE(faults, kPages);
  EXPECT_LT(faults, 2 * kPages) << "faults of another thread do not count";
}

}  // namespace
}  // namespace mm::perf

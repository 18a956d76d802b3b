#include "base/resources/memory.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.hpp"
#include "base/resources/team.hpp"
#include "base/topology/topology.hpp"

namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

TEST(Arena, IsAlignedZeroedAndSaysWhereItsPagesAre) {
  const auto arena = mm::Arena::make({.bytes = 8 * kMi, .pages = mm::Pages::base});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena->data()) % (2 * kMi), 0u);
  EXPECT_EQ(arena->huge_share(), 0.0);
  const auto shares = arena->node_shares();
  double sum = 0;
  for (const auto& [node, share] : shares) sum += share;
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

TEST(Arena, TransparentHugePagesAreCountedByTheKernelNotAssumed) {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(in, line);
  if (line.empty() || line.find("[never]") != std::string::npos) GTEST_SKIP() << "transparent huge pages are disabled";
  const auto arena = mm::Arena::make({.bytes = 16 * kMi, .pages = mm::Pages::thp});
  EXPECT_GT(arena->huge_share(), 0.0);
}

TEST(Arena, MoreThanThereIsIsAbsentWithAReason) {
  try {
    mm::Arena::make({.bytes = std::size_t{1} << 48});
    FAIL() << "256 TiB were allocated";
  } catch (const mm::Absent& error) {
    EXPECT_NE(std::string(error.what()).find("not enough memory"), std::string::npos);
  }
}

TEST(Team, EveryMemberRunsOnItsOwnCpuTogether) {
  const auto cpus = mm::allowed_cpus();
  mm::Team team(cpus);
  std::vector<int> ran(cpus.size(), -1);
  const auto& spans = team.run([&](int rank) { ran[static_cast<std::size_t>(rank)] = rank; });
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    EXPECT_EQ(ran[i], static_cast<int>(i));
    EXPECT_FALSE(spans[i].moved);
    EXPECT_GE(spans[i].end, spans[i].begin);
  }
  EXPECT_GT(team.elapsed_s(), 0);
}

TEST(Team, AFailureOfAMemberReachesTheCaller) {
  mm::Team team({mm::allowed_cpus().front()});
  EXPECT_THROW(team.run([](int) { throw mm::Failure("wrong"); }), mm::Failure);
  EXPECT_NO_THROW(team.run([](int) {}));
}

TEST(Team, ACpuThatDoesNotExistIsAFailure) { EXPECT_THROW(mm::Team({1 << 16}), mm::Failure); }

TEST(Team, SharedCpusNeverGoToRealTimePriority) {
  const int cpu = mm::allowed_cpus().front();
  mm::Team team({cpu, cpu});
  EXPECT_FALSE(team.real_time(true));
  team.run([](int) {});  // two members on one CPU must pass the barrier
}

TEST(FillOrder, KeepsEveryCpuOnce) {
  for (const char* how : {"compact", "cores", "spread"}) {
    auto order = mm::fill_order(how, mm::allowed_cpus());
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, mm::allowed_cpus()) << how;
  }
  EXPECT_THROW(mm::fill_order("wild", mm::allowed_cpus()), mm::UsageError);
}

}  // namespace

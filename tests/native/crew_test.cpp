#include "base/crew.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sched.h>

#include <csignal>

#include "base/error.hpp"
#include "base/team.hpp"

namespace {

std::vector<int> two_cpus() {
  const auto all = mm::allowed_cpus();
  return {all.front(), all.back()};
}

TEST(Crew, EveryProcessWorksInItsOwnMemoryOnItsOwnCpu) {
  int mine = 5;
  const auto cpus = two_cpus();
  mm::Crew crew(cpus, [&](int rank) -> mm::Crew::Work {
    mine += rank;
    return [&mine, rank, kept = 0.0](const mm::Crew::Order& order) mutable {
      kept += static_cast<double>(order[0]);
      ++mine;
      return 1000.0 * sched_getcpu() + 100 * rank + kept;
    };
  });
  for (int turn = 1; turn <= 3; ++turn) {
    const auto values = crew.run({7});
    ASSERT_EQ(values.size(), 2u);
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(values[rank], 1000.0 * cpus[rank] + 100.0 * static_cast<double>(rank) + 7 * turn);
    EXPECT_GT(crew.elapsed_s(), 0);
    EXPECT_LT(crew.elapsed_s(), 10);
    EXPECT_FALSE(crew.moved());
  }
  EXPECT_EQ(mine, 5);  // what the processes did to their copies
}

TEST(Crew, WhatAProcessThrowsIsSaid) {
  try {
    mm::Crew crew(two_cpus(), [](int rank) -> mm::Crew::Work {
      if (rank == 1) throw mm::Failure("no memory here");
      return [](const mm::Crew::Order&) { return 0.0; };
    });
    FAIL() << "the crew started";
  } catch (const mm::Failure& why) {
    EXPECT_STREQ(why.what(), "no memory here");
  }
}

TEST(Crew, OneThatDiesAtWorkIsAnErrorAndNoHang) {
  mm::Crew crew(two_cpus(), [](int rank) -> mm::Crew::Work {
    return [rank](const mm::Crew::Order& order) {
      if (rank == 1 && order[0] == 1) kill(getpid(), SIGKILL);
      return 0.0;
    };
  });
  crew.run({0});
  EXPECT_THROW(crew.run({1}), mm::Failure);
  EXPECT_THROW(crew.run({0}), mm::Failure);
}

}  // namespace

#include "base/process_team.hpp"

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

TEST(ProcessTeam, EveryProcessWorksInItsOwnMemoryOnItsOwnCpu) {
  int mine = 5;
  const auto cpus = two_cpus();
  mm::ProcessTeam processes(cpus, [&](int rank) -> mm::ProcessTeam::Work {
    mine += rank;
    return [&mine, rank, kept = 0.0](const mm::ProcessTeam::Order& order) mutable {
      kept += static_cast<double>(order[0]);
      ++mine;
      return 1000.0 * sched_getcpu() + 100 * rank + kept;
    };
  });
  for (int turn = 1; turn <= 3; ++turn) {
    const auto values = processes.run({7});
    ASSERT_EQ(values.size(), 2u);
    for (std::size_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(values[rank], 1000.0 * cpus[rank] + 100.0 * static_cast<double>(rank) + 7 * turn);
    EXPECT_GT(processes.elapsed_s(), 0);
    EXPECT_LT(processes.elapsed_s(), 10);
    EXPECT_FALSE(processes.moved());
  }
  EXPECT_EQ(mine, 5);  // the processes changed their copies
}

TEST(ProcessTeam, WhatAProcessThrowsIsSaid) {
  try {
    mm::ProcessTeam processes(two_cpus(), [](int rank) -> mm::ProcessTeam::Work {
      if (rank == 1) throw mm::Failure("no memory here");
      return [](const mm::ProcessTeam::Order&) { return 0.0; };
    });
    FAIL() << "the processes started";
  } catch (const mm::Failure& error) {
    EXPECT_STREQ(error.what(), "no memory here");
  }
}

TEST(ProcessTeam, OneThatDiesAtWorkIsAnErrorAndNoHang) {
  mm::ProcessTeam processes(two_cpus(), [](int rank) -> mm::ProcessTeam::Work {
    return [rank](const mm::ProcessTeam::Order& order) {
      if (rank == 1 && order[0] == 1) kill(getpid(), SIGKILL);
      return 0.0;
    };
  });
  processes.run({0});
  EXPECT_THROW(processes.run({1}), mm::Failure);
  EXPECT_THROW(processes.run({0}), mm::Failure);
}

}  // namespace

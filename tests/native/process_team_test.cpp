#include "base/resources/process_team.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/error.hpp"
#include "base/resources/team.hpp"

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

TEST(Team, FaultsThatReadFromADiskCount) {
  const std::string path = testing::TempDir() + "team_faults_" + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  char byte = 1;
  ASSERT_EQ(pwrite(file, &byte, 1, 0), 1);
  ASSERT_EQ(fsync(file), 0);
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(page, MAP_FAILED);
  mm::Team team({two_cpus().front()});
  char seen = 0;
  const auto idle = [](int) {};
  const auto touch = [&](int) { seen = *static_cast<const volatile char*>(page); };
  team.run(idle);
  team.run(touch);  // from now on, its code and what a sanitizer keeps about the page are in memory
  ASSERT_EQ(madvise(page, 4096, MADV_DONTNEED), 0);
  ASSERT_EQ(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(file);
  EXPECT_EQ(team.run(idle)[0].faults, 0);
  EXPECT_EQ(team.run(touch)[0].faults, 1);
  EXPECT_EQ(seen, 1);
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

/// The ledger: no CPU is reserved twice, dead processes hold nothing, and files of other users do no harm.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "place/ledger/ledger.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace mm::place;
namespace fs = std::filesystem;

constexpr double kForever = std::numeric_limits<double>::infinity();

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    chmod(above_.path().c_str(), 0755);
    folder_ = above_.path() / "claims";
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename() != "mutex") names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  int waiting() const {
    const auto all = fs::exists(folder_) ? files() : std::vector<std::string>{};
    return static_cast<int>(std::count_if(all.begin(), all.end(), [](auto& n) { return n.rfind("wait-", 0) == 0; }));
  }
  Ledger ledger() const { return Ledger(folder_); }

  const TemporaryFolder above_;
  fs::path folder_;
};

/// Reserves the lowest free CPU of the first `cpus`, exclusively.
auto one_of(int cpus) {
  return [cpus](const Occupancy& taken) {
    for (int cpu = 0; cpu < cpus; ++cpu)
      if (!taken.jobs.contains(cpu)) {
        Placement placement;
        placement.layout.parts = {{cpu}};
        return placement;
      }
    throw Busy("all CPUs are held");
  };
}

Reservation named(const std::string& command, const std::string& job = "") {
  Reservation as;
  as.command = command;
  as.policy = "pack";
  as.job = job;
  as.exclusive = true;
  return as;
}

void eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(holds());
}

/// A process that does `work` and then lives until it is killed.
pid_t process(const std::function<void()>& work, bool stays = true) {
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
      _exit(1);
    }
    if (stays) pause();
    _exit(0);
  }
  return pid;
}

int end(pid_t pid, int signal_number = SIGKILL) {
  if (signal_number != 0) kill(pid, signal_number);
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

std::string boot() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

std::string line(const std::string& boot_id, const std::string& rest = R"("exclusive":true,"parts":["0-1","5"])") {
  return R"({"boot":")" + boot_id + R"(","pid":1,"since_s":5.0,"command":"x","policy":"pack","job":"",)" + rest + "}\n";
}

/// Writes a reservation as another user could; `held` keeps it alive until the descriptor closes.
int stranger(const fs::path& file, const std::string& text, bool held) {
  fs::create_directories(file.parent_path());
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  if (!held) {
    close(fd);
    return -1;
  }
  EXPECT_EQ(flock(fd, LOCK_SH), 0);
  return fd;
}

TEST_F(LedgerTest, AReservationIsSeenUntilItIsReleased) {
  auto held = ledger().reserve(named("./a.out"), one_of(2), 0);
  EXPECT_EQ(held.placement.layout.parts, (std::vector<std::vector<int>>{{0}}));
  const auto all = ledger().reservations();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].command, "./a.out");
  EXPECT_EQ(all[0].pid, getpid());
  EXPECT_EQ(all[0].path, held.reservation.path);
  EXPECT_EQ(all[0].layout.parts, held.placement.layout.parts);
  EXPECT_TRUE(all[0].exclusive);
  EXPECT_EQ(ledger().reserve(named("second"), one_of(2), 0).placement.layout.parts[0][0], 1);
  EXPECT_THROW(ledger().reserve(named("third"), one_of(2), 0), Busy);
  ledger().release(held);
  EXPECT_EQ(ledger().reservations().size(), 1U);
}

TEST_F(LedgerTest, WhoeverDecidesNothingLeavesNothing) {
  EXPECT_THROW(ledger().reserve(
                   named("x"), [](const Occupancy&) -> Placement { throw mm::UsageError("n", "9"); }, 0),
               mm::UsageError);
  EXPECT_TRUE(files().empty());
}

TEST_F(LedgerTest, TheLockGoesThroughExecAndWithTheLastOfTheChildren) {
  // A shell that starts a child and ends: the child still holds the reservation.
  const fs::path path = above_.path() / "told";
  const pid_t shell = process([&] {
    ledger().reserve(named("sh"), one_of(1), 0);
    execlp("sh", "sh", "-c",
           ("sleep 1000 & echo $! > " + path.string() + ".new; mv " + path.string() + ".new " + path.string()).c_str(),
           nullptr);
  });
  EXPECT_EQ(end(shell, 0), 0);
  int sleeper = 0;
  std::ifstream(path) >> sleeper;
  ASSERT_GT(sleeper, 0);
  EXPECT_EQ(ledger().reservations().size(), 1U);
  kill(sleeper, SIGKILL);
  eventually([&] { return ledger().reservations().empty(); });
  EXPECT_TRUE(files().empty());
}

TEST_F(LedgerTest, AKilledOwnersReservationIsGone) {
  const pid_t owner = process([&] { ledger().reserve(named("x"), one_of(1), 0); });
  eventually([&] { return fs::exists(folder_) && files().size() == 1; });
  EXPECT_EQ(ledger().reservations().size(), 1U);
  end(owner);
  EXPECT_EQ(ledger().reserve(named("y"), one_of(1), 0).placement.layout.parts[0][0], 0);
}

// The main guarantee: whichever processes are killed at any time, no CPU has two living owners, and nothing is left.
TEST_F(LedgerTest, AHundredProcessesWithRandomKillsNeverShareACpu) {
  constexpr int kProcesses = 100, kCpus = 4;
  struct Shared {
    std::array<std::atomic<int>, kCpus> owner;         // index + 1 of the process, 0: none
    std::array<std::atomic<bool>, kProcesses> killed;  // set before the kill: from then on it may lose its CPU
    std::atomic<int> doubled, rounds;
  };
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  new (shared) Shared{};
  std::vector<pid_t> pids;
  for (int me = 0; me < kProcesses; ++me)
    pids.push_back(process(
        [&, me] {
          std::minstd_rand random(static_cast<unsigned>(me));
          for (int round = 0; round < 3; ++round) {
            auto held = ledger().reserve(named("process"), one_of(kCpus), kForever);
            auto& owner = shared->owner[static_cast<std::size_t>(held.placement.layout.parts[0][0])];
            const int before = owner.exchange(me + 1);
            if (before != 0 && !shared->killed[static_cast<std::size_t>(before - 1)]) ++shared->doubled;
            usleep(static_cast<useconds_t>(random()) % 3000);
            if (int mine = me + 1; !owner.compare_exchange_strong(mine, 0)) ++shared->doubled;
            ledger().release(held);
            ++shared->rounds;
          }
        },
        false));
  std::minstd_rand random(2026);
  std::vector<int> victims(kProcesses);
  for (int i = 0; i < kProcesses; ++i) victims[static_cast<std::size_t>(i)] = i;
  std::shuffle(victims.begin(), victims.end(), random);
  for (int i = 0; i < 40; ++i) {
    usleep(static_cast<useconds_t>(random()) % 30000);
    const auto victim = static_cast<std::size_t>(victims[static_cast<std::size_t>(i)]);
    shared->killed[victim] = true;
    kill(pids[victim], SIGKILL);
  }
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const int status = end(pids[i], 0);
    EXPECT_TRUE(shared->killed[i] || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << i;
  }
  EXPECT_EQ(shared->doubled, 0);
  EXPECT_GE(shared->rounds, 3 * (kProcesses - 40));
  EXPECT_TRUE(ledger().reservations().empty());
  // The next waiting process removes tickets of killed ones; living processes leave none.
  auto held = ledger().reserve(named("last"), one_of(1), 1);
  ledger().release(held);
  EXPECT_TRUE(files().empty()) << files().front();
  munmap(shared, sizeof(Shared));
}

TEST_F(LedgerTest, WaitersAreServedInTheOrderInWhichTheyCameAndTheDeadAreSkipped) {
  int order[2];
  ASSERT_EQ(pipe(order), 0);
  auto held = ledger().reserve(named("first"), one_of(1), 0);
  std::vector<pid_t> pids;
  for (char who = 'a'; who <= 'e'; ++who) {
    pids.push_back(process(
        [&, who] {
          close(held.lock_fd);  // inherited through fork: not its reservation
          auto mine = ledger().reserve(named("waiter"), one_of(1), kForever);
          if (write(order[1], &who, 1) != 1) _exit(1);
          ledger().release(mine);
        },
        false));
    eventually([&] { return waiting() == who - 'a' + 1; });
  }
  end(pids[1]);
  ledger().release(held);
  for (const std::size_t i : {0, 2, 3, 4}) EXPECT_EQ(end(pids[i], 0), 0);
  std::string served(4, '?');
  ASSERT_EQ(read(order[0], served.data(), 4), 4);
  EXPECT_EQ(served, "acde");
  EXPECT_TRUE(files().empty());
}

TEST_F(LedgerTest, WhoWaitsTooLongIsToldAndLeavesTheLine) {
  auto held = ledger().reserve(named("first"), one_of(1), 0);
  EXPECT_THROW(ledger().reserve(named("second"), one_of(1), 0.05), Busy);
  EXPECT_EQ(waiting(), 0);
}

TEST_F(LedgerTest, AWaiterWakesWhenTheOwnerIsKilled) {
  const pid_t owner = process([&] { ledger().reserve(named("x"), one_of(1), 0); });
  eventually([&] { return fs::exists(folder_) && files().size() == 1; });
  const pid_t waiter = process([&] { ledger().reserve(named("y"), one_of(1), kForever); }, false);
  eventually([&] { return waiting() == 1; });
  end(owner);
  EXPECT_EQ(end(waiter, 0), 0);
}

TEST_F(LedgerTest, RanksOfALaunchShareOneReservation) {
  EXPECT_FALSE(ledger().join("job 1"));
  auto first = ledger().reserve(named("rank", "job 1"), one_of(2), 0);
  auto second = ledger().reserve(named("rank", "job 1"), one_of(2), 0);
  auto third = ledger().join("job 1");
  ASSERT_TRUE(third);
  EXPECT_EQ(second.reservation.path, first.reservation.path);
  EXPECT_EQ(third->placement.layout.parts, first.placement.layout.parts);
  EXPECT_FALSE(ledger().join("job 2"));
  ASSERT_EQ(ledger().reservations().size(), 1U);
  EXPECT_EQ(ledger().reservations()[0].joined, 3);
  ledger().release(first);
  ledger().release(second);
  EXPECT_EQ(ledger().reservations().size(), 1U);  // the third still holds it
  ledger().release(*third);
  EXPECT_TRUE(files().empty());
}

TEST_F(LedgerTest, ACommandWithinAPlacedOneIsNotInItsOwnWay) {
  auto outer = ledger().reserve(named("outer"), one_of(1), 0);
  setenv("MESHMARK_CLAIM", outer.reservation.path.c_str(), 1);
  auto inner = ledger().reserve(named("inner"), one_of(1), 0);
  EXPECT_THROW(ledger().reserve(named("beside"), one_of(1), 0), Busy);
  unsetenv("MESHMARK_CLAIM");
}

TEST_F(LedgerTest, WhatCannotBeReadIsRemovedWhenDeadAndNamedWhenAlive) {
  const std::vector<std::string> invalid = {"",
                                            "garbage\n",
                                            "[1]\n",
                                            "{}\n",
                                            "{\"pid\":\"x\"}\n",
                                            line(boot(), R"("exclusive":true,"parts":["5-1"])"),
                                            line(boot(), R"("exclusive":1,"parts":[])"),
                                            line(boot(), R"("exclusive":true,"parts":"0")"),
                                            line(boot()).substr(0, 40),
                                            std::string(2 << 20, '[')};
  for (const std::string& text : invalid) {
    stranger(folder_ / "claim-1", text, false);
    EXPECT_TRUE(ledger().reservations().empty()) << text.substr(0, 80);
    EXPECT_TRUE(files().empty()) << text.substr(0, 80);

    const int fd = stranger(folder_ / "claim-2", text, true);
    try {
      ledger().reservations();
      ADD_FAILURE() << "accepted: " << text.substr(0, 80);
    } catch (const mm::Failure& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find("claim-2"), std::string::npos) << message;
      EXPECT_NE(message.find("process " + std::to_string(getpid())), std::string::npos) << message;
      EXPECT_NE(message.find("remove the file"), std::string::npos) << message;
    }
    close(fd);
    EXPECT_TRUE(ledger().reservations().empty());
  }
  const int fd = stranger(folder_ / "claim-3", line(boot()) + "\n{\"cgroup\":\"/torn", true);
  ASSERT_EQ(ledger().reservations().size(), 1U);  // the last addition was incomplete; the reservation stays valid
  EXPECT_EQ(ledger().reservations()[0].layout.parts, (std::vector<std::vector<int>>{{0, 1}, {5}}));
  close(fd);
}

TEST_F(LedgerTest, AReservationOfAnotherBootIsRemovedAndALivingOneNamesTheSharedFolder) {
  stranger(folder_ / "claim-1", line("another"), false);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ledger().reservations().empty());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("from another boot"), std::string::npos);
  EXPECT_TRUE(files().empty());
  const int fd = stranger(folder_ / "claim-1", line("another"), true);
  EXPECT_THROW(ledger().reservations(), mm::Failure);
  close(fd);
}

TEST_F(LedgerTest, WhatIsNoRegularFileIsIgnored) {
  ledger().reserve(named("x"), one_of(1), 0);
  ASSERT_EQ(mkfifo((folder_ / "claim-fifo").c_str(), 0666), 0);
  fs::create_directory(folder_ / "claim-folder");
  fs::create_symlink("/etc/passwd", folder_ / "claim-link");
  ASSERT_EQ(mkfifo((folder_ / "wait-0").c_str(), 0666), 0);
  testing::internal::CaptureStderr();
  const auto held = ledger().reserve(named("y"), one_of(4), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("not a regular file"), std::string::npos);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  EXPECT_EQ(held.placement.layout.parts.size(), 1U);
}

// A reservation is untrusted: root, when removing it, must not remove anything but an empty cgroup of ours.
TEST_F(LedgerTest, ADeadReservationsCgroupIsRemovedOnlyIfItIsOne) {
  const fs::path precious = above_.path() / "meshmark-precious";
  fs::create_directory(precious);
  stranger(folder_ / "claim-1", line(boot()) + "{\"cgroup\":\"" + precious.string() + "\"}\n", false);
  EXPECT_TRUE(ledger().reservations().empty());
  EXPECT_TRUE(fs::exists(precious));
}

TEST_F(LedgerTest, TheHolderOfTheMutexIsNamedAfterTheTimeOut) {
  ledger().reserve(named("x"), one_of(1), 0);
  const pid_t holder = process([&] { flock(open((folder_ / "mutex").c_str(), O_RDONLY), LOCK_EX); });
  eventually([&] {
    const int fd = open((folder_ / "mutex").c_str(), O_RDONLY | O_CLOEXEC);
    const bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return !free;
  });
  try {
    ledger().reservations();
    ADD_FAILURE() << "it was locked";
  } catch (const mm::Failure& e) {
    EXPECT_NE(std::string(e.what()).find("process " + std::to_string(holder)), std::string::npos) << e.what();
  }
  end(holder);
  EXPECT_NO_THROW(ledger().reservations());
}

TEST_F(LedgerTest, SeveralUsersShareTheFolderAndNobodyRemovesFilesOfAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  auto mine = ledger().reserve(named("root's"), one_of(3), 0);
  struct stat status{};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U);
  ASSERT_EQ(stat(mine.reservation.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0644U);
  stranger(folder_ / "claim-dead", line(boot(), R"("exclusive":true,"parts":["1"])"), false);
  const pid_t other = process(
      [&] {
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
        auto held =
            ledger().reserve(named("nobody's"), one_of(3), 0);  // CPU 0 is root's; the dead reservation has none
        if (held.placement.layout.parts[0][0] != 1) _exit(3);
        if (ledger().reservations().size() != 2 || ledger().reservations()[1].user != "65534") _exit(4);
        if (!fs::exists(folder_ / "claim-dead")) _exit(5);  // not permitted, and not required
        if (ledger().join("")) _exit(6);
      },
      false);
  EXPECT_EQ(end(other, 0), 0);
  EXPECT_EQ(ledger().reservations().size(), 1U);
  EXPECT_FALSE(fs::exists(folder_ / "claim-dead"));
}

}  // namespace

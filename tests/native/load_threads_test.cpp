/// Threads of programs: what the operating system says of them, and what that makes of their time.
#include "load/scenario/processes/threads.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "load/scenario/processes/pages.hpp"

namespace mm::load {
namespace {

pid_t own_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  return cpus;
}

void run_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void be_busy_for(double s) {
  for (const double end_s = own_cpu_s() + s; own_cpu_s() < end_s;) {}
}

// ---------------------------------------------------------------- use

TEST(Use, AccountsForItsPartsOfTheWallTime) {
  Use use;
  use.from_s = 5, use.to_s = 25;
  use.user_s = 1, use.system_s = 2, use.waiting_s = 3, use.sleeping_s = 4;
  EXPECT_DOUBLE_EQ(use.wall_s(), 20);
  EXPECT_DOUBLE_EQ(use.accounted_share(), 0.5);
  use.to_s = 5;
  EXPECT_EQ(use.accounted_share(), 1) << "no wall time";
}

Thread with_times() {
  Thread thread(0, 0, ::getpid(), own_thread());
  thread.base.at_s = 1, thread.last.at_s = 5;
  thread.base.ran_ns = 1'000'000'000, thread.last.ran_ns = 3'000'000'000;
  thread.base.waited_ns = 250'000'000, thread.last.waited_ns = 750'000'000;
  thread.base.user_ticks = 30, thread.last.user_ticks = 90;
  thread.base.system_ticks = 10, thread.last.system_ticks = 30;
  return thread;
}

// The kernel's ticks only say how the time on a CPU is divided.
TEST(ThreadUse, IsTheGrowthSinceItsBase) {
  Thread thread = with_times();
  const Use use = thread.use();
  EXPECT_EQ(use.from_s, 1);
  EXPECT_EQ(use.to_s, 5);
  EXPECT_DOUBLE_EQ(use.ran_s, 2);
  EXPECT_DOUBLE_EQ(use.waiting_s, 0.5);
  EXPECT_DOUBLE_EQ(use.system_s, 0.5);  // 20 of 80 ticks
  EXPECT_DOUBLE_EQ(use.user_s, 1.5);
  EXPECT_DOUBLE_EQ(use.sleeping_s, 1.5);
  EXPECT_DOUBLE_EQ(use.accounted_share(), 1);
  thread.last.user_ticks = 30, thread.last.system_ticks = 10;  // less than a tick
  EXPECT_DOUBLE_EQ(thread.use().system_s, 0);
  EXPECT_DOUBLE_EQ(thread.use().user_s, 2);
  thread.last.system_ticks = 11;  // a single one
  EXPECT_DOUBLE_EQ(thread.use().system_s, 2);
  thread.last.at_s = 3;  // the clocks differ a little
  EXPECT_EQ(thread.use().sleeping_s, 0);
}

TEST(ThreadUse, HasTheMigrationsThatWereCountedOrAtLeastSeen) {
  Thread thread = with_times();
  const auto migrations = [&](long long base, long long counted, long long seen) {
    thread.base_migrations = base, thread.migrations = counted, thread.moves = seen;
    return thread.use().migrations;
  };
  EXPECT_EQ(migrations(5, 17, 3), 12);
  EXPECT_EQ(migrations(5, 17, 15), 15);
  EXPECT_EQ(migrations(-1, 17, 3), 17);
  EXPECT_EQ(migrations(0, 17, 3), 17);
  EXPECT_EQ(migrations(1, 1, 0), 0);
  EXPECT_EQ(migrations(0, 0, 0), 0);
  EXPECT_EQ(migrations(-1, -1, 3), 3) << "not counted";
}

// ---------------------------------------------------------------- samples

TEST(Thread, IsSampledAsTheKernelSaysItIs) {
  const RunClock clock;
  Thread thread(4, 2, ::getpid(), own_thread());
  EXPECT_EQ(thread.number, 4U);
  EXPECT_EQ(thread.job, 2U);
  EXPECT_EQ(thread.last.cpu, -1);
  thread.sample(clock);
  ASSERT_FALSE(thread.ended);
  std::string command;
  std::getline(std::ifstream("/proc/self/comm"), command);
  EXPECT_EQ(thread.command, command);
  EXPECT_EQ(thread.last.state, 'R');
  EXPECT_GT(thread.started, 0U);
  EXPECT_EQ(thread.siblings, numbers_in("/proc/self/task").size());
  EXPECT_EQ(thread.ran_on, std::set<int>{thread.last.cpu});
  EXPECT_EQ(thread.moves, 0);
  EXPECT_GE(thread.last.at_s, 0);
  EXPECT_LE(thread.last.at_s, clock.now());
  const ThreadSample before = thread.last;
  const double from_s = own_cpu_s();
  be_busy_for(0.03);
  thread.sample(clock);
  const double ran_s = own_cpu_s() - from_s;
  EXPECT_GE(thread.last.at_s - before.at_s, 0.03);
  EXPECT_NEAR(1e-9 * static_cast<double>(thread.last.ran_ns - before.ran_ns), ran_s, 0.02);
  EXPECT_GE(thread.last.user_ticks + thread.last.system_ticks, before.user_ticks + before.system_ticks + 1);
  EXPECT_FALSE(thread.ended);
}

TEST(Thread, MovesWhereItsCpuChanges) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "a single CPU";
  const RunClock clock;
  Thread thread(0, 0, ::getpid(), own_thread());
  const int first = cpus.front(), last = cpus.back();
  std::vector<long long> moves;
  for (const int cpu : {first, first, last, first, first}) {
    run_on({cpu});
    be_busy_for(0.002);
    thread.sample(clock);
    EXPECT_EQ(thread.last.cpu, cpu);
    moves.push_back(thread.moves);
  }
  run_on(cpus);
  EXPECT_EQ(moves, (std::vector<long long>{0, 0, 1, 2, 2}));
  EXPECT_EQ(thread.ran_on, (std::set<int>{first, last}));
}

TEST(Thread, EndsWhereItIsGoneOrItsIdentifierIsReused) {
  const RunClock clock;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  Thread thread(0, 0, child, child);
  thread.sample(clock);
  EXPECT_FALSE(thread.ended);
#ifndef __SANITIZE_THREAD__  // which adds a thread of its own to a child
  EXPECT_EQ(thread.siblings, 1U);
#endif
  Thread other(1, 0, child, child);
  other.started = thread.started + 1;
  other.sample(clock);
  EXPECT_TRUE(other.ended);
  EXPECT_EQ(other.last.cpu, -1) << "nothing is taken from it";
  Thread same(1, 0, child, child);
  same.started = thread.started;
  same.sample(clock);
  EXPECT_FALSE(same.ended);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  thread.sample(clock);
  EXPECT_TRUE(thread.ended);
}

// ---------------------------------------------------------------- base

TEST(Thread, IsCountedFromItsRelease) {
  const RunClock clock;
  Thread thread(0, 0, ::getpid(), own_thread());
  thread.sample(clock);
  const double from_s = clock.now();
  thread.set_base(clock);
  EXPECT_EQ(thread.base.at_s, thread.last.at_s);
  EXPECT_EQ(thread.base.ran_ns, thread.last.ran_ns);
  EXPECT_EQ(thread.base.cpu, thread.last.cpu);
  EXPECT_EQ(thread.migrations, thread.base_migrations);
  EXPECT_GE(thread.next_migrations_s, from_s + 1);
  EXPECT_LE(thread.next_migrations_s, clock.now() + 1);
  const Use use = thread.use();
  EXPECT_EQ(use.ran_s, 0);
  EXPECT_EQ(use.migrations, 0);
}

TEST(Thread, IsCountedFromItsBirth) {
  const RunClock clock;
  Thread thread(0, 0, ::getpid(), own_thread());
  thread.sample(clock);
  const double from_s = clock.now();
  thread.set_birth(-3, clock);
  EXPECT_EQ(thread.base.at_s, -3);
  EXPECT_EQ(thread.base.ran_ns, 0U);
  EXPECT_EQ(thread.base_migrations, 0);
  EXPECT_GE(thread.next_migrations_s, from_s + 1);
  EXPECT_LE(thread.next_migrations_s, clock.now() + 1);
  EXPECT_DOUBLE_EQ(thread.use().ran_s, 1e-9 * static_cast<double>(thread.last.ran_ns));
}

// Once a second, and later after an eighth of its age.
TEST(Thread, MigrationsAreCountedLessOftenAsItAges) {
  const RunClock clock;
  Thread thread(0, 0, ::getpid(), own_thread());
  const bool told = parse_migrations(read_text(task_folder(::getpid(), own_thread()) + "sched")) >= 0;
  for (const auto& [age_s, pause_s] : {std::pair{0.0, 1.0}, {4.0, 1.0}, {16.0, 2.0}, {80.0, 10.0}}) {
    thread.migrations = -1;
    const double from_s = clock.now();
    thread.base.at_s = from_s - age_s;
    thread.count_migrations(clock);
    EXPECT_NEAR(thread.next_migrations_s, from_s + pause_s, 0.2) << age_s;
    EXPECT_GE(thread.next_migrations_s, from_s + pause_s) << age_s;
    EXPECT_EQ(thread.migrations >= 0, told);
  }
  Thread gone(0, 0, 0, 0);
  gone.migrations = 7;
  gone.count_migrations(clock);
  EXPECT_EQ(gone.migrations, 7) << "what was known stays";
}

// ---------------------------------------------------------------- pages

TEST(PageCounter, CountsTheMemoryOfAProcessByNode) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's own memory grows with that of the program";
#endif
  const PageCounter counter;
  const auto before = counter.count(::getpid());
  if (!before) GTEST_FAIL() << "the process runs";
  ASSERT_FALSE(before->empty());
  std::vector<char> more(64 << 20, 1);
  const auto after = counter.count(::getpid());
  if (!after) GTEST_FAIL() << "the process runs";
  std::int64_t growth = 0, whole = 0;
  for (const auto& [node, bytes] : *after) {
    growth +=
        static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(before->contains(node) ? before->at(node) : 0);
    whole += static_cast<std::int64_t>(bytes);
    EXPECT_GE(node, 0);
  }
  EXPECT_NEAR(static_cast<double>(growth), 64 << 20, 1 << 20);
  std::int64_t resident = 0, space = 0;
  std::ifstream("/proc/self/statm") >> space >> resident;
  EXPECT_NEAR(static_cast<double>(whole), static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)), 1 << 20);
  EXPECT_EQ(more.back(), 1);
}

TEST(PageCounter, CountsNothingOfAProcessThatIsGone) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(PageCounter().count(child));
}

}  // namespace
}  // namespace mm::load

/// Lines of a run's journal, and the signals between the runner, its parent and its programs.
#include "load/scenario/journal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "load/scenario/canary.hpp"
#include "load/scenario/processes/signals.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::load {
namespace {

/// What is written to standard output meanwhile.
std::string written(const std::function<void()>& write) {
  testing::internal::CaptureStdout();
  write();
  return testing::internal::GetCapturedStdout();
}

Start program(const std::string& name, int copy) {
  Start start;
  start.name = name, start.copy = copy;
  return start;
}

/// A line without its time, which must be that of now.
json without_time(const std::string& line, const RunClock& clock) {
  json parsed = json::parse(line);
  EXPECT_GE(parsed.at("t_s").get<double>(), 0);
  EXPECT_LE(parsed.at("t_s").get<double>(), clock.now() + 1e-6);
  EXPECT_GE(parsed.at("t_s").get<double>(), clock.now() - 5);
  parsed.erase("t_s");
  return parsed;
}

TEST(Journal, EventsHaveTheirProgramAndWhatIsMore) {
  const RunClock clock;
  Journal journal(clock, -1);
  const Start about = program("a", 3);
  EXPECT_EQ(without_time(written([&] { journal.event("start", nullptr); }), clock),
            json::parse(R"({"type": "event", "event": "start"})"));
  EXPECT_EQ(without_time(written([&] { journal.event("exit", &about, {{"status", 2}}); }), clock),
            json::parse(R"({"type": "event", "event": "exit", "program": "a", "copy": 3, "status": 2})"));
}

TEST(Journal, ReaderIsNotifiedOfEventsUntilItIsGone) {
  const RunClock clock;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  std::signal(SIGPIPE, SIG_IGN);
  const int fd = ends[1];
  Journal journal(clock, fd);
  char bytes[10];
  written([&] { journal.event("a", nullptr), journal.event("b", nullptr); });
  EXPECT_EQ(::read(ends[0], bytes, sizeof bytes), 2);
  EXPECT_EQ(bytes[0], '\n');
  while (::write(fd, bytes, 1) == 1) {}  // a reader that does not read
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_NE(written([&] { journal.event("c", nullptr); }), "");
  EXPECT_NE(::fcntl(fd, F_GETFD), -1) << "it may read later";
  ::close(ends[0]);
  EXPECT_NE(written([&] { journal.event("d", nullptr); }), "") << "the run continues";
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_NE(written([&] { journal.event("e", nullptr); }), "");
  std::signal(SIGPIPE, SIG_DFL);
}

TEST(Journal, LinesOfAProgramGetItsNameInTheScenario) {
  const RunClock clock;
  const Journal journal(clock, -1);
  const Start made = program("a \"b\"", 2);
  EXPECT_EQ(without_time(written([&] { journal.window(made, R"({"type":"window","w":3,"x":[1]})"); }), clock),
            json::parse(R"({"type": "window", "program": "a \"b\"", "copy": 2, "w": 3, "x": [1]})"));
  const json own = json::parse(R"({"type": "end", "program": "own", "wall_s": 2.5})");
  const std::string line = written([&] { journal.of_program("done", made, own); });
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(without_time(line, clock),
            json::parse(R"({"type": "done", "program": "a \"b\"", "copy": 2, "wall_s": 2.5})"));
  EXPECT_TRUE(is_window(R"({"type":"window","t":1})"));
  for (const char* other :
       {"", R"({"type":"window"})", R"({"type":"end"})", R"( {"type":"window",)", R"({"t":1,"type":"window",)"})
    EXPECT_FALSE(is_window(other)) << other;
}

TEST(Journal, TotalOfAThreadIsItsUseRoundedToNanoseconds) {
  const RunClock clock;
  const Journal journal(clock, -1);
  Thread thread(7, 0, 11, 12);
  thread.command = "worker";
  thread.ran_on = {0, 1, 2, 5};
  thread.migrations = 0;
  Use use;
  use.from_s = 1, use.to_s = 5, use.user_s = 1.0000000004, use.system_s = 0.5, use.waiting_s = 0.25,
  use.sleeping_s = 2.25;
  use.migrations = 9;
  json expected = json::parse(R"({"type": "thread_total", "thread": 7, "program": "a", "copy": 1, "pid": 11, "tid": 12,
      "command": "worker", "from_s": 1.0, "to_s": 5.0, "user_s": 1.0, "system_s": 0.5, "waiting_s": 0.25,
      "sleeping_s": 2.25, "closes": 1.0, "migrations": 9, "migrations_counted": true, "cpus": "0-2,5"})");
  EXPECT_EQ(without_time(written([&] { journal.thread_total(program("a", 1), thread, use); }), clock), expected);
  thread.migrations = -1;
  expected["migrations_counted"] = false;
  EXPECT_EQ(without_time(written([&] { journal.thread_total(program("a", 1), thread, use); }), clock), expected);
}

TEST(Journal, HeaderHasTheProgramsTheirNodesAndTheCpusOfBefore) {
  const RunClock clock;
  const Journal journal(clock, -1);
  RunPlan plan;
  plan.scenario = "night", plan.sample_s = 0.25;
  plan.programs = {program("a", 0), program("b", 1), program("c", 2)};
  plan.programs[0].memory = "bind=0";
  plan.programs[0].cpus = {0};
  plan.programs[0].nice = -3, plan.programs[0].priority = "batch", plan.programs[0].start_s = 1.5;
  plan.programs[1].memory = "nonsense";
  Inherited inherited;
  CPU_ZERO(&inherited.cpus);
  for (const std::size_t cpu : {0U, 2U, 3U, CPU_SETSIZE - 1U}) CPU_SET(cpu, &inherited.cpus);
  const json header = json::parse(written([&] { journal.header(plan, inherited); }));
  EXPECT_EQ(header.at("schema"), 1);
  EXPECT_EQ(header.at("conditions").at("cpus_allowed"), "0,2-3," + std::to_string(CPU_SETSIZE - 1));
  EXPECT_EQ(header.at("programs").size(), 3U);
  EXPECT_EQ(header.at("programs")[0].at("nodes"), "0");
  EXPECT_EQ(header.at("programs")[0].at("start_s"), 1.5);
  EXPECT_EQ(header.at("programs")[1].at("nodes"), "") << "starting it reports the error";
  EXPECT_EQ(header.at("programs")[2].at("nodes"), "");
  EXPECT_EQ(header.at("tick_s"), 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

TEST(Journal, ThatCannotBeWrittenIsAFailure) {
  const RunClock clock;
  const Journal journal(clock, -1);
  const int before = ::dup(STDOUT_FILENO), full = ::open("/dev/full", O_WRONLY);
  ASSERT_TRUE(before >= 0 && full >= 0);
  std::fflush(stdout);
  ::dup2(full, STDOUT_FILENO);
  std::string why;
  try {
    journal.window(program("a", 0), R"({"type":"window","w":3})");
  } catch (const Failure& failure) {
    why = failure.what();
  }
  ::dup2(before, STDOUT_FILENO);
  ::close(before), ::close(full);
  EXPECT_NE(why.find("No space left"), std::string::npos) << why;
}

// ---------------------------------------------------------------- samples

Thread thread_of(std::size_t number, const ThreadSample& last) {
  Thread thread(number, 0, 1, 1);
  thread.last = last;
  return thread;
}

std::string sample_line(std::vector<Thread>& threads) {
  return written([&] {
    SampleLine line(1.23456789);
    for (Thread& thread : threads) line.add(thread);
    line.write();
  });
}

TEST(SampleLine, HasTheGrowthOfEachThreadSinceItsLastLine) {
  std::vector<Thread> threads;
  threads.push_back(thread_of(
      4, {.at_s = 1, .ran_ns = 100, .waited_ns = 20, .user_ticks = 7, .system_ticks = 5, .state = 'R', .cpu = 3}));
  threads.push_back(thread_of(15, {.at_s = 1, .ran_ns = 1, .state = 'S', .cpu = 0}));
  EXPECT_EQ(sample_line(threads),
            "{\"type\":\"sample\",\"t_s\":1.234568,\"threads\":[[4,\"R\",3,100,20,7,5],[15,\"S\",0,1,0,0,0]]}\n");
  threads[0].last = {.at_s = 2,
                     .ran_ns = 5'000'000'100,
                     .waited_ns = 21,
                     .user_ticks = 17,
                     .system_ticks = 6,
                     .state = 'D',
                     .cpu = 11};
  EXPECT_EQ(sample_line(threads),
            "{\"type\":\"sample\",\"t_s\":1.234568,\"threads\":[[4,\"D\",11,5000000000,1,10,1]]}\n");
}

TEST(SampleLine, LeavesOutThreadsThatSlept) {
  const ThreadSample asleep{.at_s = 1, .ran_ns = 9, .waited_ns = 8, .state = 'S', .cpu = 2};
  const auto lines_after = [&](const ThreadSample& next) {
    std::vector<Thread> threads;
    threads.push_back(thread_of(1, asleep));
    sample_line(threads);
    threads[0].last = next;
    return !sample_line(threads).empty();
  };
  ThreadSample next = asleep;
  next.at_s = 2;
  EXPECT_FALSE(lines_after(next));
  next.ran_ns = 10;
  EXPECT_TRUE(lines_after(next));
  next = asleep, next.waited_ns = 9;
  EXPECT_TRUE(lines_after(next));
  next = asleep, next.cpu = 3;
  EXPECT_TRUE(lines_after(next));
  next = asleep, next.state = 'R';
  EXPECT_TRUE(lines_after(next));
  // One that is on a CPU or waits for it is in each line, even if the kernel's counters did not change yet.
  std::vector<Thread> threads;
  threads.push_back(thread_of(1, next));
  EXPECT_FALSE(sample_line(threads).empty());
  EXPECT_EQ(sample_line(threads), "{\"type\":\"sample\",\"t_s\":1.234568,\"threads\":[[1,\"R\",2,0,0,0,0]]}\n");
}

TEST(SampleLine, IsNotWrittenWithoutThreads) {
  std::vector<Thread> none;
  EXPECT_EQ(sample_line(none), "");
}

TEST(MachineUse, IsOfTheCpusOfBothSamples) {
  const double tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const CpuTimes one{.busy = {100}, .steal = {5}}, two{.busy = {103, 9}, .steal = {6, 9}};
  EXPECT_EQ(machine_use(one, two), json({{"busy_s", {3 * tick_s}}, {"steal_s", {tick_s}}}));
  EXPECT_EQ(machine_use({.busy = {1, 2}, .steal = {0, 0}}, {.busy = {2}, .steal = {0}}).at("busy_s").size(), 1U);
}

// ---------------------------------------------------------------- canary

TEST(Canary, IsSilentUntilItIsPrepared) {
  const RunClock clock;
  Canary canary(clock);
  EXPECT_FALSE(canary.ready());
  EXPECT_EQ(written([&] { canary.sample("before"); }), "");
  EXPECT_EQ(canary.cost_s, 0);
  canary.prepare();
  EXPECT_EQ(canary.ready(), watch::can_flush());
  if (!canary.ready()) GTEST_SKIP() << "no canary here";
  const double cpu_s = own_cpu_s();
  const json line = without_time(written([&] { canary.sample("before"); }), clock);
  EXPECT_EQ(line.at("type"), "canary");
  EXPECT_EQ(line.at("when"), "before");
  EXPECT_GT(line.at("load_latency_s"), 0);
  EXPECT_LT(line.at("load_latency_s"), 1e-4);
  EXPECT_GT(line.at("adds_s"), 1e-7);
  EXPECT_LT(line.at("adds_s"), 1);
  double most_s = 0;  // the clock of CPU time may have a resolution of some ms
  for (int i = 0; i < 1000 && canary.cost_s < 0.01; ++i) {
    written([&] { canary.sample("during"); });
    EXPECT_GE(canary.cost_s, most_s);
    most_s = canary.cost_s;
  }
  EXPECT_GT(canary.cost_s, 0);
  EXPECT_LE(canary.cost_s, own_cpu_s() - cpu_s);
}

// ---------------------------------------------------------------- signals

/// Runs this in a process of its own; what it returns is its exit status, and 99 that it threw.
int in_a_process(const std::function<int()>& run) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 98;
    try {
      status = run();
    } catch (const std::exception&) {
      status = 99;
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::set<int> members(const sigset_t& set) {
  std::set<int> found;
  for (int signal = 1; signal < NSIG; ++signal)
    if (sigismember(&set, signal) == 1) found.insert(signal);
  return found;
}

TEST(Signals, OfARunAreThoseThatEndItAndThoseOfItsProcesses) {
  EXPECT_EQ(members(run_signals()), (std::set<int>{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR2}));
}

TEST(Signals, AreBlockedAndTheMaskOfBeforeIsReturned) {
  EXPECT_EQ(in_a_process([] {
              sigset_t before;
              sigemptyset(&before);
              sigaddset(&before, SIGUSR1);
              ::sigprocmask(SIG_SETMASK, &before, nullptr);
              std::signal(SIGCHLD, SIG_IGN);
              const sigset_t told = block_signals();
              if (members(told) != std::set<int>{SIGUSR1}) return 1;
              sigset_t now;
              ::sigprocmask(SIG_SETMASK, nullptr, &now);
              std::set<int> both = members(run_signals());
              both.insert(SIGUSR1);
              if (members(now) != both) return 2;
              if (std::signal(SIGCHLD, SIG_DFL) != SIG_DFL) return 3;
              if (std::signal(SIGPIPE, SIG_DFL) != SIG_IGN) return 4;
              if (std::signal(SIGXFSZ, SIG_DFL) != SIG_IGN) return 5;
              return 0;
            }),
            0);
}

TEST(Notify, DescriptorIsTakenFromTheEnvironment) {
  EXPECT_EQ(in_a_process([] {
              ::unsetenv("MESHMARK_NOTIFY");
              if (notify_descriptor() != -1) return 1;
              int ends[2];
              if (::pipe(ends) != 0) return 2;
              if (::dup2(ends[1], 100) != 100) return 3;
              ::setenv("MESHMARK_NOTIFY", "100", 1);
              if (notify_descriptor() != 100) return 4;
              if (std::getenv("MESHMARK_NOTIFY") != nullptr) return 5;
              if (::fcntl(100, F_GETFD) != FD_CLOEXEC) return 6;
              if ((::fcntl(100, F_GETFL) & O_NONBLOCK) == 0) return 7;
              return ::write(100, "x", 1) == 1 ? 0 : 8;
            }),
            0);
}

TEST(Notify, DescriptorsThatAreNoneAreRefused) {
  for (const char* const wrong : {"", "2", "0", "-1", "x", "3x", " 3", "100000", "99999999999999"})
    EXPECT_EQ(in_a_process([&] {
                ::dup2(0, 3);
                ::setenv("MESHMARK_NOTIFY", wrong, 1);
                notify_descriptor();
                return 0;
              }),
              99)
        << wrong;
}

TEST(Signals, DescendantsAreKilledWithTheirChildren) {
  EXPECT_EQ(in_a_process([] {
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              for (int i = 0; i < 2; ++i)
                if (::fork() == 0) {
                  std::signal(SIGTERM, SIG_IGN);
                  if (::fork() == 0) ::setsid();
                  [[maybe_unused]] const ssize_t n = ::write(ends[1], "x", 1);
                  while (true) ::pause();
                }
              char byte;
              for (int i = 0; i < 4; ++i)
                if (::read(ends[0], &byte, 1) != 1) return 2;
              ::close(ends[1]);
              kill_descendants();
              if (::read(ends[0], &byte, 1) != 0) return 3;  // nobody has the other end
              return ::waitpid(-1, nullptr, 0) == -1 && errno == ECHILD ? 0 : 4;
            }),
            0);
}

/// The status that the parent of a runner ends with.
int waited_for(const std::function<int()>& runner, const std::function<void(pid_t)>& meanwhile = [](pid_t) {}) {
  return in_a_process([&] {
    block_signals();
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(runner());
    meanwhile(pid);
    return wait_for_runner(pid);
  });
}

/// The first signal of a run that arrives.
int next_signal() {
  const sigset_t signals = run_signals();
  return ::sigwaitinfo(&signals, nullptr);
}

TEST(Signals, ParentOfTheRunnerEndsWithItsStatus) {
  EXPECT_EQ(waited_for([] { return 7; }), 7);
  EXPECT_EQ(waited_for([] { return 0; }), 0);
  EXPECT_EQ(waited_for([]() -> int {
              ::raise(SIGKILL);
              return 0;
            }),
            99)
      << "a runner that was killed is a failure";
  // Another child that ends is not the runner.
  EXPECT_EQ(waited_for([] { return next_signal() == SIGTERM ? 8 : 9; },
                       [](pid_t runner) {
                         const pid_t other = ::fork();
                         if (other == 0) ::_exit(3);
                         siginfo_t ended{};
                         ::waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT);
                         ::kill(runner, SIGTERM);
                       }),
            8);
}

TEST(Signals, OfTheParentAreForwardedToTheRunner) {
  for (const auto& [sent, received] :
       {std::pair{SIGTERM, SIGTERM}, {SIGINT, SIGINT}, {SIGQUIT, SIGQUIT}, {SIGHUP, SIGTERM}}) {
    const int signal = sent;
    EXPECT_EQ(waited_for([] { return next_signal(); }, [&](pid_t) { ::kill(::getpid(), signal); }), received);
  }
}

}  // namespace
}  // namespace mm::load

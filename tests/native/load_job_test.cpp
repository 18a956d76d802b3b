/// A running program of a plan: its pipes, its start, and its line at the end.
#include "load/scenario/job.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "load/scenario/processes/spawn.hpp"
#include "load/scenario/run_clock.hpp"
#include "load/scenario/search.hpp"
#include "temporary_folder.hpp"

namespace mm::load {
namespace {

namespace fs = std::filesystem;

/// A job with one pipe, whose other end is the program's.
class JobPipes : public testing::Test {
 protected:
  JobPipes() {
    std::signal(SIGPIPE, SIG_IGN);
    start_.name = "a";
    start_.copy = 3;
  }
  ~JobPipes() override {
    job.close_pipes();
    if (theirs >= 0) ::close(theirs);
    std::signal(SIGPIPE, SIG_DFL);
  }
  /// Connects `ours`, non-blocking, and `theirs`.
  void connect(int& ours) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ours = ends[0], theirs = ends[1];
    ::fcntl(ours, F_SETFL, O_NONBLOCK);
  }
  void say(const std::string& text) {
    ASSERT_EQ(::write(theirs, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void hang_up() {
    ::close(theirs);
    theirs = -1;
  }
  void read_lines() {
    job.read_lines([&](std::string_view line) { lines.emplace_back(line); });
  }

  Start start_;
  Job job{start_};
  int theirs = -1;
  std::vector<std::string> lines;
};

TEST_F(JobPipes, StatusIsReadUntilItIsClosed) {
  connect(job.child.status);
  EXPECT_FALSE(job.read_status()) << "nothing is there";
  EXPECT_GE(job.child.status, 0);
  say("no such");
  EXPECT_TRUE(job.read_status());
  say(" file");
  EXPECT_TRUE(job.read_status());
  EXPECT_EQ(job.status_text, "no such file");
  hang_up();
  EXPECT_FALSE(job.read_status());
  EXPECT_EQ(job.child.status, -1);
  EXPECT_EQ(job.status_text, "no such file");
}

TEST_F(JobPipes, LinesAreHandledWhenTheyAreComplete) {
  connect(job.child.out);
  read_lines();
  EXPECT_GE(job.child.out, 0);
  EXPECT_TRUE(lines.empty());
  say("one\ntw");
  read_lines();
  EXPECT_EQ(lines, (std::vector<std::string>{"one"}));
  say("o\n\nthree\nfo");
  read_lines();
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "", "three"}));
  hang_up();
  read_lines();
  EXPECT_EQ(job.child.out, -1);
  EXPECT_EQ(lines.size(), 4U) << "an incomplete line is none";
}

TEST_F(JobPipes, ALineOfMoreThanAMebibyteIsDropped) {
  connect(job.child.out);
  const std::string part(1 << 15, 'x');
  for (int i = 0; i < 32; ++i) {
    say(part);
    read_lines();
  }
  say("\n");
  read_lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].size(), 1U << 20);
  for (int i = 0; i < 32; ++i) {
    say(part);
    read_lines();
  }
  say("y");
  read_lines();
  say("z\n");
  read_lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], "z");
}

TEST_F(JobPipes, DrainReadsAllThatIsPending) {
  connect(job.child.out);
  const auto handle = [&](std::string_view line) { lines.emplace_back(line); };
  job.drain(handle);  // does not wait
  EXPECT_TRUE(lines.empty());
  std::string text;
  for (int i = 0; i < 25000; ++i) text += "line\n";  // more than one read takes
  int size = 1 << 20;
  ::setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  say(text);
  job.drain(handle);
  EXPECT_EQ(lines.size(), 25000U);
  EXPECT_GE(job.child.out, 0);
  say("last\n");
  hang_up();
  job.drain(handle);
  EXPECT_EQ(lines.back(), "last");
  EXPECT_EQ(job.child.out, -1);
}

TEST_F(JobPipes, GateIsOpenedByALineAndClosed) {
  connect(job.child.gate);
  EXPECT_TRUE(job.open_gate());
  EXPECT_EQ(job.child.gate, -1);
  std::string text(10, '\0');
  EXPECT_EQ(::read(theirs, text.data(), text.size()), 3);
  EXPECT_EQ(text.substr(0, 3), "go\n");
  EXPECT_EQ(::read(theirs, text.data(), text.size()), 0);
  hang_up();
  connect(job.child.gate);
  hang_up();
  EXPECT_FALSE(job.open_gate()) << "the process has died";
  EXPECT_EQ(job.child.gate, -1);
}

TEST_F(JobPipes, AreAllClosed) {
  int all[3];
  for (int& fd : all) fd = ::open("/dev/null", O_RDONLY);
  job.child.gate = all[0], job.child.out = all[1], job.child.status = all[2];
  job.close_pipes();
  for (const int fd : all) EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(job.child.gate, -1);
  EXPECT_EQ(job.child.out, -1);
  EXPECT_EQ(job.child.status, -1);
  int standard_input = 0;
  const int copy = ::dup(0);
  close_if_open(standard_input);  // 0 is a descriptor, too
  EXPECT_EQ(::fcntl(0, F_GETFD), -1);
  ::dup2(copy, 0);
  ::close(copy);
}

TEST(Job, WaitsUntilItIsReleased) {
  const Start start;
  Job job(start);
  EXPECT_TRUE(job.waits());
  for (const auto& [phase, waits] : {std::pair{Phase::ready, true},
                                     {Phase::released, false},
                                     {Phase::ended, false},
                                     {Phase::failed, false},
                                     {Phase::setting_up, true}}) {
    job.phase = phase;
    EXPECT_EQ(job.waits(), waits);
  }
}

// ---------------------------------------------------------------- totals

constexpr int exited(int status) { return status << 8; }

timeval time_of(long s, long us) { return {s, us}; }

Job ended(const Start& start) {
  Job job(start);
  job.phase = Phase::ended;
  job.child.pid = 77;
  job.released_s = 1.5, job.ended_s = 11.75;
  job.use.ru_utime = time_of(5, 500'000);
  job.use.ru_stime = time_of(2, 250'000);
  job.use.ru_minflt = 10, job.use.ru_majflt = 20, job.use.ru_nvcsw = 30, job.use.ru_nivcsw = 40;
  job.use.ru_maxrss = 3;
  return job;
}

TEST(JobTotal, SumsTheTimesOfTheProgramWithoutThoseBeforeItsRelease) {
  Start start;
  start.name = "a", start.copy = 2;
  Job job = ended(start);
  job.started_s = 0.5, job.ready_s = 1.25;
  job.base_cpu_s = 1, job.base_system_s = 0.25;
  job.orphans_user_s = 0.5, job.orphans_system_s = 0.125;
  const JobUse use{.waiting_s = 0.75,
                   .sleeping_s = 1.25,
                   .ran_s = 7,
                   .migrations = 6,
                   .threads = 5,
                   .processes = 4,
                   .bytes = {{0, 100}, {2, 300}}};
  EXPECT_EQ(job.total(use), json::parse(R"({"type": "total", "program": "a", "copy": 2, "pid": 77, "how": "ok",
      "status": 0, "setup_s": 0.75, "released_s": 1.5, "ended_s": 11.75, "wall_s": 10.25, "user_s": 5.25, "system_s": 2.125,
      "waiting_s": 0.75, "sleeping_s": 1.25, "unseen_s": 0.375, "threads": 5, "processes": 4, "migrations": 6,
      "minor_faults": 10, "major_faults": 20, "switches_voluntary": 30, "switches_involuntary": 40,
      "largest_bytes": 3072, "pages": {"0": 100, "2": 300}})"));
}

// The clocks have different resolutions, so that a difference may be below zero.
TEST(JobTotal, HasNoTimesBelowZero) {
  const Start start;
  Job job = ended(start);
  job.base_system_s = 3, job.base_cpu_s = 7;  // of 2.25 and 7.75
  json total = job.total({});
  EXPECT_EQ(total.at("system_s"), 0);
  EXPECT_EQ(total.at("user_s"), 0.75);
  EXPECT_EQ(total.at("unseen_s"), 0.75);
  JobUse more;
  more.ran_s = 2;
  EXPECT_EQ(job.total(more).at("unseen_s"), 0);
  job.base_cpu_s = 9;
  total = job.total({});
  EXPECT_EQ(total.at("user_s"), 0);
  EXPECT_EQ(total.at("system_s"), 0);
  job.base_cpu_s = 6.75, job.base_system_s = 0;  // all is system time
  total = job.total({});
  EXPECT_EQ(total.at("system_s"), 1);
  EXPECT_EQ(total.at("user_s"), 0);
}

TEST(JobTotal, SaysHowItEnded) {
  const Start start;
  Job job = ended(start);
  const auto how = [&](int status) {
    job.wait_status = status;
    return job.total({});
  };
  EXPECT_EQ(how(exited(0)).at("how"), "ok");
  EXPECT_EQ(how(exited(3)).at("how"), "status");
  EXPECT_EQ(how(exited(3)).at("status"), 3);
  EXPECT_FALSE(how(exited(3)).contains("signal"));
  EXPECT_EQ(how(SIGKILL).at("how"), "signal");
  EXPECT_EQ(how(SIGKILL).at("signal"), SIGKILL);
  EXPECT_FALSE(how(SIGKILL).contains("status"));
  job.killed = true;
  EXPECT_EQ(how(SIGTERM).at("how"), "stopped");
  job.timed_out = true;
  EXPECT_EQ(how(SIGTERM).at("how"), "timeout");
  for (const Phase phase : {Phase::failed, Phase::ready, Phase::released, Phase::setting_up}) {
    job.phase = phase;
    EXPECT_EQ(job.total({}), json::parse(R"({"type": "total", "program": "", "copy": 0, "pid": 77, "how": "failed"})"));
  }
  EXPECT_EQ(ending(exited(3)), "ended with status 3");
  EXPECT_EQ(ending(SIGSEGV), "was ended by signal 11");
}

TEST(Job, UseBeforeItsReleaseIsThatOfItsProcess) {
  const Start start;
  Job job(start);
  job.child.pid = ::getpid();
  for (const double end_s = own_cpu_s() + 0.02; own_cpu_s() < end_s;) {}
  const double before_s = own_cpu_s();
  job.set_base();
  EXPECT_GE(job.base_cpu_s, before_s);
  EXPECT_LE(job.base_cpu_s, own_cpu_s());
  rusage use;
  ::getrusage(RUSAGE_SELF, &use);
  EXPECT_LE(job.base_system_s, job.base_cpu_s + 0.02);
  EXPECT_NEAR(job.base_system_s,
              static_cast<double>(use.ru_stime.tv_sec) + 1e-6 * static_cast<double>(use.ru_stime.tv_usec), 0.03);
}

// ---------------------------------------------------------------- starts

class Spawned : public testing::Test {
 protected:
  Spawned() {
    ::sched_getaffinity(0, sizeof inherited.cpus, &inherited.cpus);
    ::getrlimit(RLIMIT_NOFILE, &inherited.files);
    inherited.nice = ::getpriority(PRIO_PROCESS, 0);
    inherited.parent = ::getpid();
    ::sigprocmask(SIG_SETMASK, nullptr, &inherited.mask);
  }
  /// Reads the status pipe to its end, or until a program is ready.
  static std::string status_of(const Child& child) {
    ::fcntl(child.status, F_SETFL, 0);
    std::string text;
    char part[512];
    for (ssize_t n; text != "\n" && (n = ::read(child.status, part, sizeof part)) > 0;)
      text.append(part, static_cast<std::size_t>(n));
    return text;
  }
  static int exit_of(const Child& child) {
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    return status;
  }
  static void close(Child& child) { close_if_open(child.gate), close_if_open(child.status), close_if_open(child.out); }

  Inherited inherited;
  Start start;
};

TEST_F(Spawned, ProgramWaitsAtItsGateInAGroupOfItsOwn) {
  start.argv = {"sh", "-c", "exit 5"};
  Child child = spawn(start, inherited);
  EXPECT_EQ(status_of(child), "\n");
  EXPECT_EQ(::getpgid(child.pid), child.pid);
  EXPECT_EQ(child.out, -1) << "only a synthesised program writes to the runner";
  EXPECT_EQ(::fcntl(child.gate, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(::fcntl(child.gate, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::waitpid(child.pid, nullptr, WNOHANG), 0);
  ASSERT_EQ(::write(child.gate, "go\n", 3), 3);
  EXPECT_EQ(exit_of(child), exited(5));
  close(child);
}

// As when the runner gives up: the program must not wait for a release that cannot come.
TEST_F(Spawned, ProgramEndsIfItsGateIsClosedWithoutBeingOpened) {
  start.argv = {"true"};
  Child child = spawn(start, inherited);
  EXPECT_EQ(status_of(child), "\n");
  close_if_open(child.gate);
  const int status = exit_of(child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 126);
  close(child);
}

TEST_F(Spawned, ProgramOfAnotherParentDoesNotStart) {
  start.argv = {"true"};
  inherited.parent = 1;
  Child child = spawn(start, inherited);
  EXPECT_EQ(status_of(child), "");
  EXPECT_EQ(exit_of(child), exited(126));
  close(child);
}

TEST_F(Spawned, ProgramThatCannotStartSaysWhy) {
  const auto reason = [&](const Start& s) {
    Child child = spawn(s, inherited);
    std::string text = status_of(child);
    if (text == "\n") {
      EXPECT_EQ(::write(child.gate, "go\n", 3), 3);
      text = status_of(child);
    }
    EXPECT_EQ(exit_of(child), exited(127)) << text;
    close(child);
    return text;
  };
  Start wrong;
  wrong.argv = {"true"};
  wrong.cwd = "/no/such/folder";
  EXPECT_EQ(reason(wrong), "cwd /no/such/folder: No such file or directory");
  wrong.cwd = "";
  wrong.out = "/no/such/file";
  EXPECT_EQ(reason(wrong), "/no/such/file: No such file or directory");
  wrong.out = "";
  wrong.error = "/no/such/error";
  EXPECT_EQ(reason(wrong), "/no/such/error: No such file or directory");
  wrong.error = "";
  wrong.cgroup = "/no/such/group";
  EXPECT_EQ(reason(wrong), "cgroup /no/such/group: No such file or directory");
  wrong.cgroup = "";
  wrong.cpus = {100000};
  EXPECT_FALSE(reason(wrong).empty());
  wrong.cpus = {};
  wrong.memory = "nonsense";
  EXPECT_FALSE(reason(wrong).empty());
  wrong.memory = "";
  wrong.argv = {"no-such-program"};
  EXPECT_NE(reason(wrong).find("no-such-program"), std::string::npos);
}

TEST_F(Spawned, SynthesisedProgramIsReleasedByItsInput) {
  start.argv = {"sh", "-c", "echo ready; read word; echo $word; exit 2"};
  start.synthesised = true;
  Child child = spawn(start, inherited);
  EXPECT_EQ(status_of(child), "") << "it runs at once";
  ASSERT_GE(child.out, 0);
  ::fcntl(child.out, F_SETFL, 0);
  std::string text(100, '\0');
  text.resize(static_cast<std::size_t>(::read(child.out, text.data(), 100)));
  EXPECT_EQ(text, "ready\n");
  ASSERT_EQ(::write(child.gate, "go\n", 3), 3);
  EXPECT_EQ(exit_of(child), exited(2));
  text.assign(100, '\0');
  text.resize(static_cast<std::size_t>(::read(child.out, text.data(), 100)));
  EXPECT_EQ(text, "go\n");
  close(child);
}

// What the runner ignores or blocks, its programs do not.
TEST_F(Spawned, ProgramHasTheSignalsAndLimitsOfBefore) {
  const TemporaryFolder folder;
  std::signal(SIGUSR1, SIG_IGN);
  rlimit files = inherited.files;
  files.rlim_cur = std::min<rlim_t>(64, files.rlim_max);
  inherited.files = files;
  sigemptyset(&inherited.mask);
  sigaddset(&inherited.mask, SIGUSR2);
  start.argv = {"grep", "-hE", "^(SigBlk|SigIgn|Max open files)", "/proc/self/status", "/proc/self/limits"};
  start.out = folder.path("out");
  Child child = spawn(start, inherited);
  EXPECT_EQ(status_of(child), "\n");
  ASSERT_EQ(::write(child.gate, "go\n", 3), 3);
  EXPECT_EQ(exit_of(child), exited(0));
  close(child);
  std::signal(SIGUSR1, SIG_DFL);
  std::ifstream in(start.out);
  std::string name, value;
  in >> name >> value;
  EXPECT_EQ(std::stoull(value, nullptr, 16), 1ULL << (SIGUSR2 - 1));
  in >> name >> value;
  // Not 32 and 33, which the C library keeps for itself: what started this test may have ignored them.
  EXPECT_EQ(std::stoull(value, nullptr, 16) & 0x7fffffff, 0U);
  in >> name >> name >> name >> value;  // "Max open files"
  EXPECT_EQ(value, std::to_string(files.rlim_cur));
}

TEST(ControlGroups, AreRemovedWhereTheyWereMade) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("old"));
  {
    ControlGroups groups;
    groups.make(folder.path("old"));
    groups.make(folder.path("new"));
    groups.make(folder.path("no/such"));
    EXPECT_TRUE(fs::is_directory(folder.path("new")));
  }
  EXPECT_TRUE(fs::is_directory(folder.path("old")));
  EXPECT_FALSE(fs::exists(folder.path("new")));
}

// ---------------------------------------------------------------- search of processes

pid_t sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  return child;
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessSearch, OffersNewProcessesWithTheirParentsUntilNoneIsAdopted) {
  const RunClock clock;
  ProcessSearch search(clock);
  const pid_t first = sleeper(), second = sleeper(), mine = sleeper();
  bool have_second = false;
  std::map<pid_t, pid_t> offered;
  std::vector<pid_t> adopted;
  const double from_s = clock.now();
  search.run([&](pid_t pid) { return pid == mine; },
             [&](pid_t pid, pid_t parent) {
               offered[pid] = parent;
               // The first one is adopted after the second one, as a child whose identifier is smaller.
               const bool take = pid == second || (pid == first && have_second);
               have_second = have_second || pid == second;
               if (take) adopted.push_back(pid);
               return take;
             });
  EXPECT_EQ(adopted, (std::vector<pid_t>{second, first}));
  EXPECT_EQ(offered.at(first), ::getpid());
  EXPECT_FALSE(offered.contains(mine)) << "it is known";
  EXPECT_FALSE(offered.contains(::getpid()));
  EXPECT_GE(search.last_s(), from_s);
  EXPECT_LE(search.last_s(), clock.now());
  for (const pid_t pid : {first, second, mine}) end(pid);
}

// A search is not repeated before it took less than a thousandth of the time, but at most a second later.
TEST(ProcessSearch, OffersEachOfTheOthersOnce) {
  const RunClock clock;
  ProcessSearch search(clock);
  std::vector<pid_t> first, later;
  const auto unknown = [](pid_t) { return false; };
  search.run(unknown, [&](pid_t pid, pid_t) {
    first.push_back(pid);
    return false;
  });
  ASSERT_FALSE(first.empty());
  const double last_s = search.last_s();
  const pid_t child = sleeper();
  while (later.empty() && clock.now() < last_s + 5)
    search.run(unknown, [&](pid_t pid, pid_t) {
      later.push_back(pid);
      return false;
    });
  EXPECT_LT(search.last_s(), last_s + 2);
  EXPECT_GT(search.last_s(), last_s);
  EXPECT_NE(std::find(later.begin(), later.end(), child), later.end());
  for (const pid_t pid : first) EXPECT_EQ(std::find(later.begin(), later.end(), pid), later.end()) << pid;
  // Nothing is new: the search is as recent as the kernel's number of the newest process.
  later.clear();
  const double from_s = clock.now();
  while (later.empty() && search.last_s() < from_s && clock.now() < from_s + 5)
    search.run(unknown, [](pid_t, pid_t) { return false; });
  EXPECT_GE(search.last_s(), from_s);
  end(child);
}

}  // namespace
}  // namespace mm::load

/// Verification on this machine: violations are found, correct placements are not reported, and missing observations
/// are stated. Guest tests cover several nodes (tests/guest/test_guest_place_proof.py).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/binding/pages.hpp"
#include "place/observe.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace {

using namespace mm::place;
using mm::machine_of;

std::vector<int> allowed_here() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  return cpus;
}

void pin_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) _exit(99);
}

void spin(double seconds, clockid_t by = CLOCK_MONOTONIC) {
  const auto now_s = [by] { return 1e-9 * static_cast<double>(mm::kernel_ns(by)); };
  for (const double end = now_s() + seconds; now_s() < end;) mm::dependent_adds(1000);
}

/// A program in a separate group; everything that it starts is killed at the end.
class Program {
 public:
  explicit Program(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) {
      setpgid(pid_, pid_);
      return;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    _exit(0);
  }
  ~Program() {
    kill(-pid_, SIGKILL);
    while (waitpid(-pid_, nullptr, 0) > 0) {}
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

/// Set by a program and read here.
class Mark {
 public:
  Mark() : set_(mmap(nullptr, sizeof(Set), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (set_ == MAP_FAILED) throw mm::Failure("cannot map a shared page");
    new (set_) Set(false);
  }
  ~Mark() { munmap(set_, sizeof(Set)); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void set() const { static_cast<Set*>(set_)->store(true); }
  bool is_set() const { return static_cast<Set*>(set_)->load(); }

 private:
  using Set = std::atomic<bool>;
  void* set_;
};

/// Observes the program until that holds of the observer, which is asked after each sample.
Report observe(const Program& program, const Expectation& expected, auto is_done) {
  Observer observer(machine_of("host"), program.pid(), expected);
  do {
    observer.sample();
    std::this_thread::sleep_for(std::chrono::duration<double>(observer.next_s()));
  } while (!is_done(observer));
  return observer.report();
}

/// Waits for that time, and at least until half a second after the program set its mark: others may use its CPU.
Report watch(const Program& program, const Expectation& expected, double seconds, const Mark* mark = nullptr) {
  const double begin = mm::wall_s(), last = begin + 100;
  return observe(program, expected, [&, end = begin + seconds](const Observer&) mutable {
    if (mark && !mark->is_set()) end = std::min(last, std::max(end, mm::wall_s() + 0.5));
    return mm::wall_s() >= end;
  });
}

std::set<Violation> violations(const Report& report) {
  std::set<Violation> found;
  for (const ThreadVerdict& thread : report.threads) found.insert(thread.violations.begin(), thread.violations.end());
  return found;
}

bool reports(const Report& report, const std::string& word) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const std::string& line) { return line.find(word) != std::string::npos; });
}

/// Watches until that holds of the report, at most 100 s: others may use the program's CPU.
Report watch_until(const auto& holds, const Program& program, const Expectation& expected) {
  return observe(program, expected, [&, end = mm::wall_s() + 100](const Observer& observer) {
    return holds(observer.report()) || mm::wall_s() >= end;
  });
}

auto contains(Violation violation) {
  return [violation](const Report& report) { return violations(report).contains(violation); };
}

class PlaceProof : public testing::Test {
 protected:
  void SetUp() override {
    cpus = allowed_here();
    if (cpus.size() < 2) GTEST_SKIP() << "two CPUs are required";
    cpus.resize(2);
  }
  /// Both CPUs, one per part.
  Expectation each() const {
    Expectation e;
    e.cpus = cpus;
    e.each = true;
    for (const int cpu : cpus) e.layout.parts.push_back({cpu});
    return e;
  }
  Expectation one(std::vector<int> these) const {
    Expectation e;
    e.cpus = std::move(these);
    e.layout.parts = {e.cpus};
    return e;
  }
  std::vector<int> cpus;
};

TEST(PlacePages, AreCountedInTheSizeOfTheirMapping) {
  const PageCount count = parse_numa_maps(
      "555500000000 default file=/usr/bin/cat mapped=5 N0=3 N1=2 kernelpagesize_kB=4\n"
      "555500010000 default file=/usr/bin/cat anon=4 dirty=4 N1=4 kernelpagesize_kB=4\n"
      "555500020000 default file=/usr/bin/cat anon=1 dirty=1 mapped=6 N0=6 kernelpagesize_kB=4\n"
      "7f0000000000 bind:1 anon=1024 dirty=1024 N1=1024 kernelpagesize_kB=4\n"
      "7f0010000000 interleave:0-1 file=/anon_hugepage\\040(deleted) huge anon=3 dirty=3 N0=2 N1=1 "
      "kernelpagesize_kB=2048\n"
      "7f0020000000 prefer (many):0 file=/memfd:x\\040(deleted) dirty=8 N10=8 kernelpagesize_kB=4\n"
      "7f0030000000 weighted interleave:0-1 heap anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=16\n"
      "7fff00000000 default stack anon=5 dirty=5 swapcache=2 N0=5 kernelpagesize_kB=4\n"
      "7fff10000000 default\n");
  EXPECT_EQ(count.files, (std::map<int, std::uint64_t>{{0, 9 * 4096}, {1, 2 * 4096}}));
  EXPECT_EQ(count.own,
            (std::map<int, std::uint64_t>{
                {0, (4U << 20) + 16384 + 5 * 4096}, {1, 4 * 4096 + (4U << 20) + (2U << 20) + 16384}, {10, 8 * 4096}}));
  EXPECT_EQ(count.huge_bytes, 6U << 20);
  EXPECT_EQ(count.by_policy.at({1, "bind:1"}), 4U << 20);
  EXPECT_EQ(count.by_policy.at({10, "prefer (many):0"}), 8U * 4096);
  EXPECT_EQ(count.by_policy.at({1, "weighted interleave:0-1"}), 16384U);
}

TEST(PlacePages, OfThisProcessGrowByWhatItTouches) {
  constexpr std::size_t kBytes = 64U << 20;
  const auto all = [] {
    std::uint64_t n = 0;
    for (const auto& [node, bytes] : count_pages(getpid()).own) n += bytes;
    return n;
  };
  const std::uint64_t before = all();
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  // According to the Linux kernel: an instrumented program also writes shadow memory of the sanitizer.
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  for (std::size_t done = 0; done < kBytes;) {
    const long n = syscall(SYS_read, zeros, static_cast<char*>(at) + done, kBytes - done);
    ASSERT_GT(n, 0);
    done += static_cast<std::size_t>(n);
  }
  close(zeros);
  const std::uint64_t after = all();
  munmap(at, kBytes);
  EXPECT_NEAR(static_cast<double>(after - before), kBytes, 0.03 * kBytes);  // counting itself uses some
}

TEST_F(PlaceProof, ARightPlacementHolds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer runs threads in every process";
#endif
  const Program program([&] {
    pin_to(cpus);
    std::thread other([] { spin(10); });
    spin(10);
  });
  const Report report = watch(program, one(cpus), 0.6);
  EXPECT_TRUE(report.held) << to_text(report);
  EXPECT_EQ(report.threads.size(), 2U);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_GT(report.samples, 5);
  for (const ThreadVerdict& thread : report.threads) {
    EXPECT_EQ(thread.allowed, cpus);
    EXPECT_GT(thread.user_s + thread.system_s + thread.waiting_s, 0.1) << thread.thread;
    for (const int cpu : thread.ran_on) EXPECT_TRUE(cpu == cpus[0] || cpu == cpus[1]);
  }
}

TEST_F(PlaceProof, RanksOnTheirOwnPartsHold) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer runs threads in every process";
#endif
  const Program program([&] {
    pin_to(cpus);
    for (const int cpu : cpus)
      if (fork() == 0) {
        pin_to({cpu});
        spin(10);
        _exit(0);
      }
    pause();
  });
  const Report report = watch(program, each(), 0.8);
  EXPECT_TRUE(report.held) << to_text(report);
  EXPECT_EQ(report.threads.size(), 3U);
}

TEST_F(PlaceProof, AMaskThatTheProgramNarrowsIsFound) {
  const Program program([&] {
    pin_to(cpus);
    spin(0.2);
    pin_to({cpus[1]});
    spin(100);
  });
  const Report report = watch_until(contains(Violation::mask_changed), program, one(cpus));
  EXPECT_EQ(violations(report), std::set{Violation::mask_changed}) << to_text(report);
  EXPECT_TRUE(reports(report, "the program narrowed it")) << to_text(report);
}

TEST_F(PlaceProof, AMaskThatTheProgramWidensIsFoundAndWhereItRan) {
  const Mark ran;
  const Program program([&] {
    pin_to({cpus[0]});
    spin(0.1);
    pin_to({cpus[1]});
    spin(0.1, CLOCK_PROCESS_CPUTIME_ID);
    ran.set();
    spin(60);
  });
  const Report report = watch(program, one({cpus[0]}), 0.6, &ran);
  EXPECT_EQ(violations(report), (std::set{Violation::mask_changed, Violation::ran_outside})) << to_text(report);
  EXPECT_TRUE(reports(report, "the program replaced it")) << to_text(report);
}

TEST_F(PlaceProof, AProgramThatNothingBindsIsNotAccusedOfWideningItsMask) {
  const Mark ready;
  const Program program([&] {
    ready.set();
    spin(60);
  });
  while (!ready.is_set()) usleep(1000);
  usleep(700'000);  // a program that is half a second older ran before the observation
  const Report report = watch_until(contains(Violation::mask_changed), program, one({cpus[0]}));
  EXPECT_TRUE(violations(report).contains(Violation::mask_changed)) << to_text(report);
  EXPECT_TRUE(reports(
      report, "it is not bound; bind it when it starts (meshmark run --bind list=" + std::to_string(cpus[0]) + ")"))
      << to_text(report);
  EXPECT_FALSE(reports(report, "widened")) << to_text(report);
}

TEST_F(PlaceProof, AProgramThatWasBoundBeforeIsNotAccusedOfReplacingItsMask) {
  const Mark ready;
  const Program program([&] {
    pin_to({cpus[1]});
    ready.set();
    spin(60);
  });
  while (!ready.is_set()) usleep(1000);
  usleep(700'000);
  const Report report = watch_until(contains(Violation::mask_changed), program, one({cpus[0]}));
  EXPECT_TRUE(reports(report, "it was bound before the observation")) << to_text(report);
  EXPECT_FALSE(reports(report, "the program replaced it")) << to_text(report);
}

TEST_F(PlaceProof, AMaskThatComesBackIsFound) {
  const Mark is_back;
  const Program program([&] {
    pin_to(cpus);
    spin(0.2);
    pin_to({cpus[0]});
    spin(0.2, CLOCK_PROCESS_CPUTIME_ID);  // a mask with which the thread did not run does not count
    pin_to(cpus);
    is_back.set();
    spin(100);
  });
  const Report report = watch(program, one(cpus), 0.6, &is_back);
  EXPECT_TRUE(violations(report).contains(Violation::mask_changed)) << to_text(report);
  EXPECT_EQ(report.threads.at(0).allowed, cpus) << "the last observed mask";
}

TEST_F(PlaceProof, AMaskOfAMomentIsNoChangeThoughItsOwnerWaitsForACpu) {
  std::vector<std::unique_ptr<Program>> crowd;
  for (int i = 0; i < 30; ++i)
    crowd.push_back(std::make_unique<Program>([&] {
      pin_to({cpus[0]});
      spin(60);
    }));
  const Program program([&] {
    pin_to(cpus);
    spin(0.1);
    pin_to({cpus[0]});
    spin(0.01, CLOCK_THREAD_CPUTIME_ID);
    pin_to(cpus);
    spin(60);
  });
  const Report report = watch(program, one(cpus), 3);
  EXPECT_EQ(violations(report), std::set<Violation>{}) << to_text(report);
}

TEST_F(PlaceProof, ALauncherThatBindsAllRanksAlikeIsNamedWithItsRemedy) {
  const Program program([&] {
    pin_to(cpus);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);  // the environment of this process does not change: ranks need an exec
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        pin_to({cpus[0]});
        execl("/bin/sh", "sh", "-c", "while :; do :; done", nullptr);
      }
    pause();
  });
  const auto names_both = [](const Report& r) { return reports(r, "the launcher bound all 2 ranks"); };
  const Report report = watch_until(names_both, program, one(cpus));
  EXPECT_EQ(violations(report), std::set{Violation::mask_changed}) << to_text(report);
  EXPECT_TRUE(reports(report, "the launcher bound all 2 ranks to the same CPUs")) << to_text(report);
  EXPECT_TRUE(reports(report, "mpirun --bind-to none")) << to_text(report);
}

TEST_F(PlaceProof, ARunTimeThatPinsItsThreadsIsNamedByItsVariable) {
  const Program program([&] {
    pin_to(cpus);
    setenv("OMP_PROC_BIND", "true", 1);
    pin_to({cpus[1]});
    execl("/bin/sh", "sh", "-c", "while :; do :; done", nullptr);
  });
  const auto names_the_variable = [](const Report& r) { return reports(r, "OMP_PROC_BIND"); };
  const Report report = watch_until(names_the_variable, program, one(cpus));
  EXPECT_TRUE(reports(report, "OMP_PROC_BIND=true")) << to_text(report);
}

TEST_F(PlaceProof, TwoRanksOnOnePartAreFoundWhileAnotherIsEmpty) {
  const Program program([&] {
    pin_to(cpus);
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        pin_to({cpus[1]});
        spin(10);
        _exit(0);
      }
    pause();
  });
  const Report report = watch_until(contains(Violation::doubled), program, each());
  EXPECT_EQ(violations(report), std::set{Violation::doubled}) << to_text(report);
  EXPECT_TRUE(reports(report, "shared CPU " + std::to_string(cpus[1]) + " while CPU " + std::to_string(cpus[0])));
}

TEST_F(PlaceProof, TwoThreadsOnOnePartAreFound) {
  const Program program([&] {
    pin_to(cpus);
    std::thread other([&] {
      pin_to({cpus[0]});
      spin(10);
    });
    pin_to({cpus[0]});
    spin(10);
  });
  const Report report = watch_until(contains(Violation::doubled), program, each());
  EXPECT_EQ(violations(report), std::set{Violation::doubled}) << to_text(report);
}

TEST_F(PlaceProof, TwoOnAPartThatIsMeantForTwoAreRight) {
  const Program program([&] {
    pin_to({cpus[0]});
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        spin(10);
        _exit(0);
      }
    pause();
  });
  Expectation twice = each();
  twice.layout.parts = {{cpus[0]}, {cpus[0]}, {cpus[1]}};
  EXPECT_TRUE(watch(program, twice, 0.8).held);
}

TEST_F(PlaceProof, SleepersOnOnePartAreNotDoubled) {
  const Program program([&] {
    pin_to(cpus);
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        pin_to({cpus[1]});
        for (;;) spin(0.0005), usleep(20000);
      }
    pause();
  });
  EXPECT_TRUE(watch(program, each(), 0.8).held);
}

TEST_F(PlaceProof, SleepersThatWaitForOtherProgramsAreNotDoubled) {
  const Program others([&] {
    pin_to({cpus[1]});
    for (int i = 0; i < 4; ++i)
      if (fork() == 0) {
        spin(10);
        _exit(0);
      }
    pause();
  });
  const Program program([&] {
    pin_to(cpus);
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        pin_to({cpus[1]});
        for (;;) spin(0.0005), usleep(20000);
      }
    pause();
  });
  EXPECT_TRUE(watch(program, each(), 0.8).held);
}

TEST_F(PlaceProof, OrphansAndShortProcessesAreSeen) {
  // A separate process is the subreaper, since the setting is permanent.
  const Program supervisor([&] {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    bool found = false;
    {
      const Program root([&] {
        pin_to(cpus);
        if (fork() == 0) {
          if (fork() != 0) _exit(0);  // the parent of the next one ends at once
          usleep(100000);
          pin_to({cpus[0]});
          spin(10);
          _exit(0);
        }
        pause();
      });
      const Report report = watch_until(contains(Violation::mask_changed), root, one(cpus));
      found = violations(report) == std::set{Violation::mask_changed};
      if (!found) std::fputs(to_text(report).c_str(), stderr);
    }
    _exit(found ? 0 : 1);
  });
  int status = 0;
  ASSERT_EQ(waitpid(supervisor.pid(), &status, 0), supervisor.pid());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(PlaceProof, AProgramThatEndedBeforeIsToldAsUnseen) {
  const Program program([] {});
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(program.pid()), &info, WEXITED);
  const Report report = watch(program, one(cpus), 0.01);
  ASSERT_EQ(report.absent.size(), 1U);
  EXPECT_NE(report.absent[0].find("ended"), std::string::npos);
}

TEST_F(PlaceProof, LookingIsCheapAndItsCostIsTold) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer runs threads in every process";
#endif
  const Program program([&] {
    pin_to(cpus);
    std::vector<std::thread> threads;
    for (int i = 0; i < 64; ++i) threads.emplace_back([] { pause(); });
    pause();
  });
  usleep(100000);
  const Report report = watch(program, one(cpus), 2);
  EXPECT_EQ(report.threads.size(), 65U);
  EXPECT_GT(report.cost_s, 0);
  // 5 % for samples and 2 % for pages, plus the initial allowance.
  EXPECT_LT(report.cost_s, 0.07 * report.seconds + 0.1);
}

TEST_F(PlaceProof, AReportIsOneJsonObject) {
  const Program program([&] {
    pin_to(cpus);
    spin(10);
  });
  const mm::json report = to_json(watch(program, one({cpus[0]}), 0.3));
  EXPECT_FALSE(report.at("held").get<bool>());
  const mm::json& thread = report.at("threads").at(0);
  EXPECT_EQ(thread.at("process"), program.pid());
  EXPECT_EQ(thread.at("allowed"), mm::cpu_list(cpus));
  EXPECT_EQ(thread.at("violations").at(0), "mask_changed");
  EXPECT_GT(report.at("pages").at("0").get<std::uint64_t>(), 0U);
  EXPECT_EQ(mm::json::parse(report.dump()), report);
}

int call(int (*verb)(int, char**), std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  int status = -1;
  try {
    status = verb(static_cast<int>(argv.size()), argv.data());
  } catch (...) {
    std::fflush(stdout);
    testing::internal::GetCapturedStdout();
    throw;
  }
  std::fflush(stdout);
  testing::internal::GetCapturedStdout();
  return status;
}

TEST_F(PlaceProof, PlacedAnswersByItsStatus) {
  const Program program([&] {
    pin_to(cpus);
    spin(10);
  });
  usleep(50000);
  const std::string pid = std::to_string(program.pid()), list = mm::cpu_list(cpus);
  EXPECT_EQ(call(placed_verb, {"placed", pid, "--duration", "0.1s"}), 0);
  EXPECT_EQ(call(placed_verb, {"placed", pid, "--duration", "0.2s", "--cpus", list, "--json"}), 0);
  EXPECT_EQ(call(placed_verb, {"placed", pid, "--duration", "0.2s", "--cpus", std::to_string(cpus[0])}), 1);
  EXPECT_THROW(call(placed_verb, {"placed", pid, "--cpus", "99999"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed", pid, "--nodes", "77"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed", pid, "--each"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed", pid, "--interval", "0s"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed", "x"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed"}), mm::UsageError);
  EXPECT_THROW(call(placed_verb, {"placed", "4194303"}), mm::Failure);
}

// Measured by the bytes read, not by time: the whole page map would be 2 GiB.
TEST_F(PlaceProof, MigrateDoesNotReadWhatIsNotThere) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer maps terabytes";
#endif
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Program program([&] {
    constexpr std::size_t kSize = 1UL << 40;
    void* const block =
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool mapped = block != MAP_FAILED;
    if (mapped) madvise(block, kSize, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; mapped && i < 1000; ++i) static_cast<char*>(block)[i * (1 << 20)] = 1;
    if (write(pipe_ends[1], &mapped, sizeof mapped) == sizeof mapped) pause();
  });
  bool mapped = false;
  ASSERT_EQ(read(pipe_ends[0], &mapped, sizeof mapped), static_cast<ssize_t>(sizeof mapped));
  if (!mapped) GTEST_SKIP() << "no terabyte can be reserved here";
  const auto read_so_far = [] { return mm::leading_number(mm::value_of(mm::read_text("/proc/self/io"), "rchar:")); };
  const std::uint64_t before = read_so_far();
  const std::string node = std::to_string(count_pages(getpid()).own.begin()->first);
  EXPECT_EQ(call(migrate_verb, {"migrate", std::to_string(program.pid()), "--to", node}), 0);
  EXPECT_LT(read_so_far() - before, 64ULL << 20);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(PlaceProof, MigrateRefusesWhatCannotBe) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer maps terabytes, and a Linux kernel before 6.7 lists every page of a map";
#endif
  const Program program([] { pause(); });
  const std::string pid = std::to_string(program.pid());
  const std::string node = std::to_string(count_pages(getpid()).own.begin()->first);
  EXPECT_EQ(call(migrate_verb, {"migrate", pid, "--to", node, "--from", node, "--json"}), 0);
  EXPECT_THROW(call(migrate_verb, {"migrate", pid, "--to", "77"}), mm::UsageError);
  EXPECT_THROW(call(migrate_verb, {"migrate", pid, "--to", "x"}), mm::UsageError);
  EXPECT_THROW(call(migrate_verb, {"migrate", pid}), mm::UsageError);
  EXPECT_THROW(call(migrate_verb, {"migrate", "4194303", "--to", node}), mm::Failure);
}

}  // namespace

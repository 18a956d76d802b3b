/// Proof on this machine: what is put wrong is found, what is right is not accused, and what cannot be seen is told.
/// Several nodes are tested in guests (tests/guest/test_guest_place_proof.py).
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
#include "base/options.hpp"
#include "place/observe.hpp"
#include "place/pages.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace {

using namespace mm::place;

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

/// A program in a group of its own, with everything that it starts killed at the end.
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

/// Set by a program, and seen here.
class Mark {
 public:
  Mark() : set_(mmap(nullptr, sizeof(Set), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (set_ == MAP_FAILED) throw mm::Failure("no page to share");
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

/// For so long, and no less than until half a second after the program set its mark: others may have its CPU.
Report watch(const Program& program, const Expectation& expected, double seconds, const Mark* mark = nullptr) {
  Observer observer(machine_of("host"), program.pid(), expected);
  const double last = mm::wall_s() + 100;
  for (double end = mm::wall_s() + seconds; mm::wall_s() < end;) {
    observer.sample();
    std::this_thread::sleep_for(std::chrono::duration<double>(observer.next_s()));
    if (mark && !mark->is_set()) end = std::min(last, std::max(end, mm::wall_s() + 0.5));
  }
  return observer.report();
}

std::set<Violation> violations(const Report& report) {
  std::set<Violation> found;
  for (const ThreadVerdict& thread : report.threads) found.insert(thread.violations.begin(), thread.violations.end());
  return found;
}

bool said(const Report& report, const std::string& word) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const std::string& line) { return line.find(word) != std::string::npos; });
}

class PlaceProof : public testing::Test {
 protected:
  void SetUp() override {
    cpus = allowed_here();
    if (cpus.size() < 2) GTEST_SKIP() << "two CPUs are needed";
    cpus.resize(2);
  }
  /// Of both CPUs, one a part.
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
  // By the kernel: what an instrumented program writes touches memory of the sanitizer too.
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  for (std::size_t done = 0; done < kBytes;) {
    const long n = syscall(SYS_read, zeros, static_cast<char*>(at) + done, kBytes - done);
    ASSERT_GT(n, 0);
    done += static_cast<std::size_t>(n);
  }
  close(zeros);
  const std::uint64_t after = all();
  munmap(at, kBytes);
  EXPECT_NEAR(static_cast<double>(after - before), kBytes, 0.03 * kBytes);  // counting itself takes some
}

TEST_F(PlaceProof, ARightPlacementHolds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer has threads of its own in every process";
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
  GTEST_SKIP() << "the sanitizer has threads of its own in every process";
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
    spin(10);
  });
  const Report report = watch(program, one(cpus), 0.6);
  EXPECT_EQ(violations(report), std::set{Violation::mask_changed}) << to_text(report);
  EXPECT_TRUE(said(report, "the program narrowed it")) << to_text(report);
}

TEST_F(PlaceProof, AMaskThatTheProgramWidensIsFoundAndWhereItRan) {
  const Program program([&] {
    pin_to({cpus[0]});
    spin(0.1);
    pin_to({cpus[1]});
    spin(10);
  });
  const Report report = watch(program, one({cpus[0]}), 0.6);
  EXPECT_EQ(violations(report), (std::set{Violation::mask_changed, Violation::ran_outside})) << to_text(report);
  EXPECT_TRUE(said(report, "the program replaced it")) << to_text(report);
}

TEST_F(PlaceProof, AMaskThatComesBackIsFound) {
  const Mark is_back;
  const Program program([&] {
    pin_to(cpus);
    spin(0.2);
    pin_to({cpus[0]});
    spin(0.2, CLOCK_PROCESS_CPUTIME_ID);  // one that its owner did not run with is none
    pin_to(cpus);
    is_back.set();
    spin(100);
  });
  const Report report = watch(program, one(cpus), 0.6, &is_back);
  EXPECT_TRUE(violations(report).contains(Violation::mask_changed)) << to_text(report);
  EXPECT_EQ(report.threads.at(0).allowed, cpus) << "the last mask seen";
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
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);  // this process's own environment stays as it was: ranks need an exec
    for (int rank = 0; rank < 2; ++rank)
      if (fork() == 0) {
        pin_to({cpus[0]});
        execl("/bin/sh", "sh", "-c", "while :; do :; done", nullptr);
      }
    pause();
  });
  const Report report = watch(program, one(cpus), 0.6);
  EXPECT_EQ(violations(report), std::set{Violation::mask_changed}) << to_text(report);
  EXPECT_TRUE(said(report, "the launcher bound all 2 ranks to the same CPUs")) << to_text(report);
  EXPECT_TRUE(said(report, "mpirun --bind-to none")) << to_text(report);
}

TEST_F(PlaceProof, ARunTimeThatPinsItsThreadsIsNamedByItsVariable) {
  const Program program([&] {
    pin_to(cpus);
    setenv("OMP_PROC_BIND", "true", 1);
    pin_to({cpus[1]});
    execl("/bin/sh", "sh", "-c", "while :; do :; done", nullptr);
  });
  const Report report = watch(program, one(cpus), 0.5);
  EXPECT_TRUE(said(report, "OMP_PROC_BIND=true")) << to_text(report);
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
  const Report report = watch(program, each(), 1.0);
  EXPECT_EQ(violations(report), std::set{Violation::doubled}) << to_text(report);
  EXPECT_TRUE(said(report, "shared CPU " + std::to_string(cpus[1]) + " while CPU " + std::to_string(cpus[0])));
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
  EXPECT_EQ(violations(watch(program, each(), 1.0)), std::set{Violation::doubled});
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

TEST_F(PlaceProof, OrphansAndShortProcessesAreSeen) {
  // The subreaper is a process of its own, since the setting stays.
  const Program supervisor([&] {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    bool seen = false;
    {
      const Program root([&] {
        pin_to(cpus);
        if (fork() == 0) {
          if (fork() != 0) _exit(0);  // the parent of the next ends at once
          usleep(100000);
          pin_to({cpus[0]});
          spin(10);
          _exit(0);
        }
        pause();
      });
      const Report report = watch(root, one(cpus), 0.6);
      seen = violations(report) == std::set{Violation::mask_changed};
      if (!seen) std::fputs(to_text(report).c_str(), stderr);
    }
    _exit(seen ? 0 : 1);
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
  GTEST_SKIP() << "the sanitizer has threads of its own in every process";
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
  // 5 % for looks and 2 % for pages, and what is allowed at once at the start.
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

// Counted by what is read, not by the clock: all of the page map would be 2 GiB.
TEST_F(PlaceProof, MigrateDoesNotReadWhatIsNotThere) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer maps terabytes of its own";
#endif
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const Program program([&] {
    constexpr std::size_t kSize = 1UL << 40;
    void* const block =
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool there = block != MAP_FAILED;
    if (there) madvise(block, kSize, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; there && i < 1000; ++i) static_cast<char*>(block)[i * (1 << 20)] = 1;
    if (write(told[1], &there, sizeof there) == sizeof there) pause();
  });
  bool there = false;
  ASSERT_EQ(read(told[0], &there, sizeof there), static_cast<ssize_t>(sizeof there));
  if (!there) GTEST_SKIP() << "no terabyte can be reserved here";
  const auto read_so_far = [] { return mm::leading_number(mm::value_of(mm::read_text("/proc/self/io"), "rchar:")); };
  const std::uint64_t before = read_so_far();
  const std::string node = std::to_string(count_pages(getpid()).own.begin()->first);
  EXPECT_EQ(call(migrate_verb, {"migrate", std::to_string(program.pid()), "--to", node}), 0);
  EXPECT_LT(read_so_far() - before, 64ULL << 20);
  close(told[0]);
  close(told[1]);
}

TEST_F(PlaceProof, MigrateRefusesWhatCannotBe) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer maps terabytes, and a kernel before 6.7 tells of every page of a map";
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

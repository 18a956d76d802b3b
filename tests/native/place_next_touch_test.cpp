/// Pages that move to the thread that touches them next: each regains access once, unchanged, and no thread sees a
/// fault. Guest tests check that they move (tests/guest/test_guest_place_proof.py).
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "place/meshmark_place.h"

namespace {

/// Touched memory filled with its addresses.
class Field {
 public:
  explicit Field(std::size_t bytes, int access = PROT_READ | PROT_WRITE) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    words_ = static_cast<std::uintptr_t*>(at);
    for (std::size_t i = 0; i < size(); ++i) words_[i] = i;
    mprotect(words_, bytes, access);
  }
  ~Field() { munmap(words_, bytes_); }
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;
  std::size_t size() const { return bytes_ / sizeof *words_; }
  volatile std::uintptr_t* at(std::size_t i) const { return words_ + i; }
  void* data() const { return words_; }
  bool whole() const {
    for (std::size_t i = 0; i < size(); ++i)
      if (words_[i] != i) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  std::uintptr_t* words_ = nullptr;
};

mm_next_touch_counts counts() {
  mm_next_touch_counts now{};
  mm_next_touch_count(&now);
  return now;
}

TEST(NextTouch, GivesBackEveryPageOnceAndUnchanged) {
  const Field field(64 * 4096);
  madvise(field.data(), 64 * 4096, MADV_NOHUGEPAGE);
  const auto before = counts();
  ASSERT_EQ(mm_next_touch(field.data(), 64 * 4096), 0);
  EXPECT_EQ(counts().touched, before.touched);
  EXPECT_TRUE(field.whole());
  EXPECT_EQ(counts().touched - before.touched, 64U);
  EXPECT_TRUE(field.whole());
  EXPECT_EQ(counts().touched - before.touched, 64U) << "a mark was used twice";
  ASSERT_EQ(mm_next_touch(field.data(), 64 * 4096), 0);
  *field.at(5) = 5;
  EXPECT_EQ(counts().touched - before.touched, 65U);
  ASSERT_EQ(mm_next_touch(field.data(), 64 * 4096), 0) << "marked again, one page touched";
  EXPECT_TRUE(field.whole());
  EXPECT_EQ(counts().touched - before.touched, 65U + 64U);
}

/// A sanitizer's handler would end the program instead.
bool ended_by_fault(int status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return WIFEXITED(status) && WEXITSTATUS(status) != 0;
#else
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
#endif
}

TEST(NextTouch, MarksWholePagesOnlyAndKeepsTheAccessThatWas) {
  const Field field(8 * 4096);
  madvise(field.data(), 8 * 4096, MADV_NOHUGEPAGE);
  mprotect(static_cast<char*>(field.data()) + 4 * 4096, 4 * 4096, PROT_READ);  // two mappings
  const auto before = counts();
  ASSERT_EQ(mm_next_touch(static_cast<char*>(field.data()) + 100, 7 * 4096), 0);
  EXPECT_TRUE(field.whole());
  EXPECT_EQ(counts().touched - before.touched, 6U);
  *field.at(0) = 0;
  EXPECT_EXIT(
      {
        *field.at(6 * 4096 / sizeof(std::uintptr_t)) = 0;
        _exit(0);
      },
      ended_by_fault, "")
      << "memory that was read-only can be written";
}

TEST(NextTouch, RefusesWhatCannotBeMarked) {
  const Field field(4 * 4096), closed(4 * 4096, PROT_NONE);
  errno = 0;
  EXPECT_EQ(mm_next_touch(field.data(), 100), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mm_next_touch(closed.data(), 4 * 4096), -1);
  EXPECT_EQ(errno, EACCES);
  const auto below = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - 3 * 4096;  // below the stack
  // NOLINTNEXTLINE(performance-no-int-to-ptr): no object exists there
  EXPECT_EQ(mm_next_touch(reinterpret_cast<char*>(below), 6 * 4096), -1);
  EXPECT_EQ(errno, EINVAL);
  void* const hole = mmap(nullptr, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(hole, 4 * 4096);
  EXPECT_EQ(mm_next_touch(hole, 4 * 4096), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(mm_where(hole), -1);
  EXPECT_GE(mm_where(field.data()), 0);
  EXPECT_EQ(mm_migrate(field.data(), 4 * 4096, mm_where(field.data())), 0);
  EXPECT_EQ(mm_migrate(field.data(), 4 * 4096, 77), -1);
  EXPECT_TRUE(field.whole());
}

// Many threads access the same pages, which are marked repeatedly: no thread may see a fault or a wrong value.
TEST(NextTouch, ManyThreadsMayTouchTheSamePages) {
  constexpr std::size_t kBytes = 256 * 4096;
  const Field field(kBytes);
  madvise(field.data(), kBytes, MADV_NOHUGEPAGE);
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0}, read{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t * 7919; !stop; i = (i * 31 + 17) % field.size()) {
        wrong += *field.at(i) != i;
        *field.at(i) = i;
        ++read;
      }
    });
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(mm_next_touch(field.data(), kBytes), 0);
    usleep(2000);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(read, 1000);
  EXPECT_TRUE(field.whole());
}

// The first call for a range removes access while others touch it: they wait until it is marked. The last page is
// marked last.
TEST(NextTouch, ARangeIsKnownBeforeItLosesItsAccess) {
  constexpr std::size_t kBytes = 1024 * 4096;
  std::vector<std::unique_ptr<Field>> fields;  // kept, so that each lies at a new address
  for (int i = 0; i < 60; ++i) fields.push_back(std::make_unique<Field>(kBytes));
  const std::size_t last = fields[0]->size() - 1;
  std::atomic<std::size_t> now{0};
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) wrong += *fields[now]->at(last) != last;
    });
  for (std::size_t f = 0; f < fields.size(); ++f) {
    now = f;
    sched_yield();
    ASSERT_EQ(mm_next_touch(fields[f]->data(), kBytes), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A thread that is second at the same word, mark after mark, sees no real fault.
TEST(NextTouch, BeingLateAgainAndAgainIsNoFault) {
  const Field field(4096);
  std::atomic<bool> stop{false};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (!stop) wrong += *field.at(3) != 3;
    });
  const auto before = counts();
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(mm_next_touch(field.data(), 4096), 0);
    sched_yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(counts().touched, before.touched);
}

sigjmp_buf back;
TEST(NextTouch, FaultsOfOthersGoToTheHandlerThatWasThere) {
  EXPECT_EXIT(
      {
        struct sigaction theirs{};
        theirs.sa_sigaction = [](int, siginfo_t*, void*) { siglongjmp(back, 1); };
        theirs.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &theirs, nullptr);
        const Field field(4 * 4096);
        const Field closed(4096, PROT_NONE);
        if (mm_next_touch(field.data(), 4 * 4096) != 0) _exit(1);
        if (!field.whole()) _exit(2);
        volatile int caught = 0;
        if (sigsetjmp(back, 1) == 0)
          *closed.at(0) = 1;
        else
          caught = caught + 1;
        // No longer ours, though in a marked range: a page that its owner protected.
        mprotect(field.data(), 4096, PROT_NONE);
        if (sigsetjmp(back, 1) == 0)
          *field.at(0) = 1;
        else
          caught = caught + 1;
        _exit(caught == 2 ? 0 : 3);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NextTouch, WithoutAnotherHandlerAFaultEndsTheProgram) {
  const Field closed(4096, PROT_NONE), field(4096);
  EXPECT_EXIT(
      {
        mm_next_touch(field.data(), 4096);
        *closed.at(0) = 1;
        _exit(0);
      },
      ended_by_fault, "");
  EXPECT_EXIT(
      {
        mm_next_touch(field.data(), 4096);
        raise(SIGSEGV);
        _exit(0);
      },
      ended_by_fault, "");
}

TEST(NextTouch, AChildHasItsParentsMarks) {
  const Field field(16 * 4096);
  ASSERT_EQ(mm_next_touch(field.data(), 16 * 4096), 0);
  const pid_t child = fork();
  if (child == 0) _exit(field.whole() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(field.whole());
}

}  // namespace

/// Work of the operating system for a program: page faults, system calls, context switches, files; and idle time.
///
/// Counts of bytes and lines cover the program, without what the operating system itself reads and writes (zeroing of
/// pages, copies to and from the page cache).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "base/error.hpp"
#include "workloads/access.hpp"

namespace mm::workloads {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr std::size_t kUnits = 1024;  // per pass, of kernels without a volume

std::string error_text(int error) { return std::strerror(error); }

template <class A>
void count_calls(double times = 1) {
  if constexpr (std::is_same_v<A, Counted>) tally().counts.system_calls += times;
}

/// Kernels with one number per unit, written when the unit is done.
template <class A, class T, std::size_t N = kUnits>
class Marks : public Kernel {
 public:
  Marks(const Shape&, Memory& memory, std::size_t units = N) : marks_{memory.take<T>(units)}, units_(units) {}
  std::size_t units() const override { return units_; }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(marks_.p, units_)); }

 protected:
  /// Verifies that each mark is 0, or expected(unit).
  template <class Expected>
  std::string check(const Expected& expected) const {
    for (std::size_t u = 0; u < units_; ++u)
      if (marks_.p[u] != 0 && marks_.p[u] != expected(u))
        return "unit " + std::to_string(u) + " left " + std::to_string(marks_.p[u]) + ", not " +
               std::to_string(expected(u));
    return "";
  }
  typename A::template Array<T> marks_;
  std::size_t units_;
};

/// Returns pages to the system and writes to them: each write faults, and the system zeroes a new page.
template <class A>
class PageTouch final : public Kernel {
  using Word = typename A::template Value<u64>;

 public:
  PageTouch(const Shape& shape, Memory& memory)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), units_(shape.volume_bytes / (kPages * page_)) {
    if (units_ < static_cast<std::size_t>(shape.threads))
      throw Absent("a volume of " + std::to_string(shape.volume_bytes) + " B has fewer units than threads");
    const auto address = reinterpret_cast<std::uintptr_t>(memory.take<std::byte>(bytes() + page_));
    words_ = {reinterpret_cast<u64*>((address + page_ - 1) / page_ * page_)};  // NOLINT(performance-no-int-to-ptr)
    // A huge page would be one fault for many pages. This call fails harmlessly without huge pages.
    madvise(words_.p, bytes(), MADV_NOHUGEPAGE);
    madvise(words_.p, bytes(), MADV_DONTNEED);
  }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    Counts c;
    c.store_bytes = 8 * kPages;
    c.line_read_bytes = c.line_write_bytes = static_cast<double>(kLine * kPages);
    c.system_calls = 1;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto words = words_;
    const std::size_t page = page_ / sizeof(u64);
    for (std::size_t u = first; u < last; ++u) {
      madvise(words.p + u * kPages * page, kPages * page_, MADV_DONTNEED);
      count_calls<A>();
      for (std::size_t k = u * kPages; k < (u + 1) * kPages; ++k) words[k * page] = Word(mark(k));
      A::end_unit();
    }
  }
  std::string verify() const override {
    const std::size_t page = page_ / sizeof(u64);
    for (std::size_t i = 0; i < bytes() / sizeof(u64); ++i)
      if (words_.p[i] != 0 && (i % page != 0 || words_.p[i] != mark(i / page)))
        return "word " + std::to_string(i) + " is " + std::to_string(words_.p[i]);
    return "";
  }
  std::span<std::byte> result() override { return std::as_writable_bytes(std::span(words_.p, bytes() / sizeof(u64))); }

 private:
  static constexpr std::size_t kPages = 2;
  static u64 mark(std::size_t page) { return scramble(page) | 1; }
  std::size_t bytes() const { return units_ * kPages * page_; }
  std::size_t page_, units_;
  typename A::template Array<u64> words_;
};

/// The minimum cost of a system call: getppid, bypassing the C library.
template <class A>
struct SystemCall final : Marks<A, u32> {
  using Marks<A, u32>::Marks;
  Counts counts() const override {
    Counts c;
    c.store_bytes = sizeof(u32);
    c.line_read_bytes = c.line_write_bytes = kLine;
    c.system_calls = kCalls;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    const auto marks = this->marks_;
    for (std::size_t u = first; u < last; ++u) {
      u32 answers = 0;  // not the ID itself: the parent may end meanwhile
      for (u32 i = 0; i < kCalls; ++i) {
        answers += syscall(SYS_getppid) >= 0 ? 1 : 0;
        count_calls<A>();
      }
      marks[u] = typename A::template Value<u32>(answers);
      A::end_unit();
    }
  }
  std::string verify() const override {
    return this->check([](std::size_t) { return kCalls; });
  }

 private:
  static constexpr u32 kCalls = 4;
};

/// A pipe with both ends in this process.
struct LocalPipe {
  std::array<int, 2> ends{-1, -1};
  LocalPipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Absent("cannot create a pipe: " + error_text(errno));
  }
  ~LocalPipe() {
    close(ends[0]);
    close(ends[1]);
  }
  LocalPipe(const LocalPipe&) = delete;
  LocalPipe& operator=(const LocalPipe&) = delete;
  void put(u8 byte) const {
    while (write(ends[1], &byte, 1) != 1)
      if (errno != EINTR) throw Failure("cannot write to a pipe: " + error_text(errno));
  }
  u8 take() const {
    u8 byte = 0;
    while (read(ends[0], &byte, 1) != 1)
      if (errno != EINTR) throw Failure("cannot read from a pipe: " + error_text(errno));
    return byte;
  }
};

/// Each thread sends bytes to itself.
template <class A>
struct PipeSelf final : Marks<A, u32> {
  PipeSelf(const Shape& shape, Memory& memory)
      : Marks<A, u32>(shape, memory), pipes_(static_cast<std::size_t>(shape.threads)) {}
  Counts counts() const override {
    Counts c;
    c.store_bytes = sizeof(u32);
    c.line_read_bytes = c.line_write_bytes = kLine;
    c.system_calls = 2;
    return c;
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    const auto marks = this->marks_;
    const LocalPipe& pipe = pipes_[static_cast<std::size_t>(thread)];
    for (std::size_t u = first; u < last; ++u) {
      pipe.put(static_cast<u8>(u));
      marks[u] = typename A::template Value<u32>(mark(pipe.take()));
      count_calls<A>(2);
      A::end_unit();
    }
  }
  std::string verify() const override {
    return this->check([](std::size_t u) { return mark(static_cast<u8>(u)); });
  }

 private:
  static u32 mark(u8 byte) { return 256u + byte; }
  std::vector<LocalPipe> pipes_;
};

/// Two threads wake each other through pipes, with one byte in each direction. Each thread sleeps until the other
/// answers.
template <class A>
struct PipeSwitch final : Marks<A, u64, 2> {
  using Marks<A, u64, 2>::Marks;
  std::size_t units() const override { return kUnits / 4; }
  Counts counts() const override {  // of both threads: each counts the correct bytes that it receives
    Counts c;
    c.int_ops = 2;
    c.load_bytes = c.store_bytes = 2 * sizeof(u64);
    c.line_read_bytes = c.line_write_bytes = 2 * kLine;
    c.system_calls = 4;
    return c;
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    const auto me = static_cast<std::size_t>(thread);
    const auto correct_bytes = this->marks_;
    for (std::size_t u = first; u < last; ++u) {
      const auto ball = static_cast<u8>(done_[me].units);
      if (me == 0) pipes_[0].put(ball);
      const u8 byte = pipes_[1 - me].take();
      if (me == 1) pipes_[1].put(static_cast<u8>(byte + 1));
      if (byte == static_cast<u8>(ball + 1 - me)) correct_bytes[me] += 1;
      ++done_[me].units;
      count_calls<A>(2);
      A::end_unit();
    }
  }
  std::string verify() const override {
    for (std::size_t t = 0; t < 2; ++t)
      if (this->marks_.p[t] != done_[t].units)
        return "thread " + std::to_string(t) + " received " + std::to_string(this->marks_.p[t]) +
               " correct bytes, not " + std::to_string(done_[t].units);
    return "";
  }

 private:
  struct alignas(kLine) Done {
    u64 units = 0;
  };
  std::array<Done, 2> done_;
  std::array<LocalPipe, 2> pipes_;  ///< from thread 0, from thread 1
};

constexpr std::size_t kBlock = 64 << 10;  // B of a file

/// A file without a name, in MESHMARK_SCRATCH, TMPDIR or /tmp, whichever is set first. Block u contains, once it is
/// written, the pattern from word u % 512 on, so that blocks share one pattern.
class ScratchFile {
 public:
  explicit ScratchFile(std::size_t blocks) : blocks_(blocks), pattern_(kBlock / sizeof(u64) + kShifts) {
    for (std::size_t i = 0; i < pattern_.size(); ++i) pattern_[i] = scramble(i) | 1;
    for (const char* const name : {"MESHMARK_SCRATCH", "TMPDIR"})
      if (const char* const folder = std::getenv(name); folder != nullptr && *folder != '\0') {
        folder_ = folder;
        break;
      }
    file_ = open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file_ < 0) {  // not every file system supports O_TMPFILE
      std::string path = folder_ + "/meshmark-XXXXXX";
      file_ = mkostemp(path.data(), O_CLOEXEC);
      if (file_ < 0)
        throw Absent("cannot create a file in " + quote(folder_) + ": " + error_text(errno),
                     "set MESHMARK_SCRATCH to a writable folder");
      unlink(path.c_str());
    }
  }
  ~ScratchFile() {
    if (map_ != nullptr) munmap(map_, bytes());
    close(file_);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::size_t bytes() const { return blocks_ * kBlock; }
  const u64* block(std::size_t u) const { return pattern_.data() + u % kShifts; }
  /// Fills the file, so that later writes do not need more space. Throws Failure if the disk is full.
  void fill(bool with_pattern) {
    const std::vector<u64> zeros(with_pattern ? 0 : kBlock / sizeof(u64));
    for (std::size_t u = 0; u < blocks_; ++u)
      if (const int error = put(u, with_pattern ? block(u) : zeros.data()); error != 0)
        throw Failure("cannot write a file of " + std::to_string(bytes()) + " B in '" + folder_ +
                      "': " + error_text(error));
  }
  /// Writes a block. Returns 0, or the error.
  int put(std::size_t u, const u64* from) const {
    const auto* const data = reinterpret_cast<const char*>(from);
    return whole(u, [&](std::size_t offset, std::size_t n, off_t file_offset) {
      return pwrite(file_, data + offset, n, file_offset);
    });
  }
  int take(std::size_t u, u64* to) const {
    auto* const data = reinterpret_cast<char*>(to);
    return whole(u, [&](std::size_t offset, std::size_t n, off_t file_offset) {
      return pread(file_, data + offset, n, file_offset);
    });
  }
  /// Returns the file as memory if the file system supports it, otherwise an empty span.
  std::span<std::byte> mapped() {
    if (map_ == nullptr) {
      void* const map = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
      if (map == MAP_FAILED) return {};
      map_ = map;
    }
    return {static_cast<std::byte*>(map_), bytes()};
  }

 private:
  static constexpr std::size_t kShifts = 512;
  /// Transfers a block in one call, or in more calls if a call is partial. Returns 0, or the error.
  template <class Move>
  static int whole(std::size_t u, const Move& move) {
    for (std::size_t offset = 0; offset < kBlock;) {
      const ssize_t n = move(offset, kBlock - offset, static_cast<off_t>(u * kBlock + offset));
      if (n > 0)
        offset += static_cast<std::size_t>(n);
      else if (n == 0)
        return EIO;
      else if (errno != EINTR)
        return errno;
    }
    return 0;
  }
  std::size_t blocks_;
  std::vector<u64> pattern_;
  std::string folder_ = "/tmp";
  int file_ = -1;
  void* map_ = nullptr;
};

std::size_t blocks(const Shape& shape) {
  const std::size_t n = shape.volume_bytes / kBlock;
  if (n < static_cast<std::size_t>(shape.threads))
    throw Absent("a file of " + std::to_string(shape.volume_bytes) + " B has fewer blocks than threads");
  return n;
}

/// Writes blocks of a file. The volume is the size of the file.
template <class A>
class FileWrite final : public Kernel {
 public:
  FileWrite(const Shape& shape, Memory&) : units_(blocks(shape)), file_(units_) { file_.fill(false); }
  std::size_t units() const override { return units_; }
  Counts counts() const override {
    Counts c;
    c.io_write_bytes = kBlock;
    c.system_calls = 1;
    return c;
  }
  void run(std::size_t first, std::size_t last, int) override {
    for (std::size_t u = first; u < last; ++u) {
      if (const int error = file_.put(u, file_.block(u)); error != 0) error_ = error;
      if constexpr (std::is_same_v<A, Counted>) tally().counts.io_write_bytes += kBlock;
      count_calls<A>();
      A::end_unit();
    }
  }
  std::string verify() const override {
    if (const int error = error_; error != 0) return "a block could not be written: " + error_text(error);
    std::vector<u64> actual(kBlock / sizeof(u64));
    const std::vector<u64> zeros(actual.size());
    for (std::size_t u = 0; u < units_; ++u) {
      if (const int error = file_.take(u, actual.data()); error != 0)
        return "block " + std::to_string(u) + " cannot be read: " + error_text(error);
      if (std::memcmp(actual.data(), file_.block(u), kBlock) != 0 && actual != zeros)
        return "block " + std::to_string(u) + " of the file differs from what was written";
    }
    return "";
  }
  std::span<std::byte> result() override { return file_.mapped(); }

 private:
  std::size_t units_;
  ScratchFile file_;
  std::atomic<int> error_{0};  ///< reported by verify, since an exception must not leave a thread of the team
};

/// Reads blocks of a file, and loads a word of each 4 KiB.
template <class A>
class FileRead final : public Marks<A, u64> {
  using Word = typename A::template Value<u64>;

 public:
  FileRead(const Shape& shape, Memory& memory)
      : Marks<A, u64>(shape, memory, blocks(shape)),
        file_(this->units_),
        buffers_(memory.take<u64>(kBlock / sizeof(u64) * static_cast<std::size_t>(shape.threads))) {
    file_.fill(true);
  }
  Counts counts() const override {
    constexpr double kLooks = kBlock / 4096.0;
    Counts c;
    c.int_ops = kLooks;
    c.load_bytes = 8 * kLooks;
    c.store_bytes = 8;
    c.line_read_bytes = kLine * (kLooks + 1);
    c.line_write_bytes = kLine;
    c.io_read_bytes = kBlock;
    c.system_calls = 1;
    return c;
  }
  void run(std::size_t first, std::size_t last, int thread) override {
    const auto marks = this->marks_;
    const typename A::template Array<u64> buffer{buffers_ + kBlock / sizeof(u64) * static_cast<std::size_t>(thread)};
    for (std::size_t u = first; u < last; ++u) {
      if (const int error = file_.take(u, buffer.p); error != 0) error_ = error;
      if constexpr (std::is_same_v<A, Counted>) tally().counts.io_read_bytes += kBlock;
      count_calls<A>();
      Word sum(0);
      for (std::size_t i = 0; i < kBlock / sizeof(u64); i += kStep) sum += buffer[i];
      marks[u] = sum;
      A::end_unit();
    }
  }
  std::string verify() const override {
    if (const int error = error_; error != 0) return "a block could not be read: " + error_text(error);
    return this->check([&](std::size_t u) {
      u64 sum = 0;
      for (std::size_t i = 0; i < kBlock / sizeof(u64); i += kStep) sum += file_.block(u)[i];
      return sum;
    });
  }

 private:
  static constexpr std::size_t kStep = 4096 / sizeof(u64);
  ScratchFile file_;
  u64* buffers_;
  std::atomic<int> error_{0};
};

/// Sleeps to absolute times: 100 microseconds per unit from the start of the call, so that late wake-ups do not add up.
template <class A>
struct Idle final : Kernel {
  Idle(const Shape&, Memory&) {}
  std::size_t units() const override { return 64; }
  Counts counts() const override { return {}; }
  void run(std::size_t first, std::size_t last, int) override {
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    for (std::size_t u = first; u < last; ++u) {
      until.tv_nsec += 100'000;
      if (until.tv_nsec >= 1'000'000'000) {
        until.tv_nsec -= 1'000'000'000;
        ++until.tv_sec;
      }
      while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {}
      A::end_unit();
    }
  }
  std::string verify() const override { return ""; }
  std::span<std::byte> result() override { return {}; }
};

const Register<PageTouch> page_touch{{.name = "page_touch",
                                      .kind = "system",
                                      .summary = "pages returned to the system and written again",
                                      .source = "will-it-scale page_fault",
                                      .min_bytes = 16384,
                                      .stands_for = "u64"}};
const Register<SystemCall> system_call{{.name = "system_call",
                                        .kind = "system",
                                        .summary = "getppid system calls",
                                        .source = "lmbench lat_syscall; will-it-scale getppid",
                                        .sized = false,
                                        .stands_for = "u32"}};
const Register<PipeSelf> pipe_self{{.name = "pipe_self",
                                    .kind = "system",
                                    .summary = "each thread sends bytes to itself through a pipe",
                                    .source = "will-it-scale pipe",
                                    .sized = false,
                                    .stands_for = "u32"}};
const Register<PipeSwitch> pipe_switch{{.name = "pipe_switch",
                                        .kind = "system",
                                        .summary = "two threads wake each other through pipes",
                                        .source = "lmbench lat_ctx; perf bench sched pipe",
                                        .sized = false,
                                        .team = true,
                                        .min_threads = 2,
                                        .max_threads = 2,
                                        .stands_for = "u64"}};
const Register<FileWrite> file_write{{.name = "file_write",
                                      .kind = "system",
                                      .summary = "64 KiB blocks of a file written, to the page cache if there is one",
                                      .source = "IOR; fio",
                                      .parity = true,
                                      .min_bytes = kBlock,
                                      .max_bytes = 64 << 20,
                                      .stands_for = "u8"}};
const Register<FileRead> file_read{{.name = "file_read",
                                    .kind = "system",
                                    .summary = "64 KiB blocks of a file read, from the page cache if there is one",
                                    .source = "IOR; fio",
                                    .parity = true,
                                    .min_bytes = kBlock,
                                    .max_bytes = 64 << 20,
                                    .stands_for = "u8"}};
const Register<Idle> idle{{.name = "idle",
                           .kind = "idle",
                           .summary = "sleeps 100 microseconds",
                           .source = "rt-app sleep",
                           .sized = false,
                           .stands_for = "none"}};

}  // namespace
}  // namespace mm::workloads

/// libmeshmark-place.so. Its signal handler may run anywhere, so it uses only system calls and atomics: no locks, no
/// allocation, no C++ run time.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "place/meshmark_place.h"

// Ranges are numbers for arithmetic, and files of /proc and /sys do not block.
// NOLINTBEGIN(performance-no-int-to-ptr, clang-analyzer-unix.BlockInCriticalSection)
namespace {

constexpr std::uintptr_t kHuge = 2U << 20;
constexpr int kMax = 1024;          ///< ranges
constexpr int kNodes = 1024;        ///< maximum nodes in the Linux kernel
constexpr int kMove = 1 << 1;       ///< MPOL_MF_MOVE
constexpr std::size_t kBatch = 64;  ///< pages per call: the handler may run on a small stack

/// State of a chunk: unmarked, marked, or being processed by one thread, for which all others wait. The previous access
/// is stored beside the state.
enum : std::uint8_t {
  kFree = 0,
  kMarked = 1,
  kTaken = 2,
  kState = 3,
  kRead = 4,
  kWrite = 8,
  kExecute = 16,
  kToMark = 32
};

/// A range of memory that was marked. It is never freed, because a handler may be reading it. Marking it again reuses
/// it.
struct MarkedRange {
  std::uintptr_t begin, end, chunk;  ///< chunks are aligned to their size and cut at both ends
  std::atomic<std::uint8_t>* state;  ///< [chunk]
  std::size_t index(std::uintptr_t at) const { return at / chunk - begin / chunk; }
  std::uintptr_t low(std::size_t i) const { return i == 0 ? begin : (begin / chunk + i) * chunk; }
  std::uintptr_t high(std::size_t i) const {
    const std::uintptr_t next = (begin / chunk + i + 1) * chunk;
    return next < end ? next : end;
  }
};

const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
std::atomic<MarkedRange*> ranges[kMax];
std::atomic<int> range_count{0};
int memory_node[kNodes];  ///< by node of the CPU: that node, or the nearest one with memory
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct sigaction before;  ///< the previous handler
std::atomic<unsigned long> touched{0}, moved{0}, kept{0}, lost{0};
std::atomic<unsigned long> calls{0};  ///< calls of mm_next_touch, counted before a page loses its access

int protection(std::uint8_t state) {
  return ((state & kRead) != 0 ? PROT_READ : 0) | ((state & kWrite) != 0 ? PROT_WRITE : 0) |
         ((state & kExecute) != 0 ? PROT_EXEC : 0);
}

MarkedRange* find(std::uintptr_t at) {
  const int n = range_count.load(std::memory_order_acquire);
  for (int i = 0; i < n; ++i) {
    MarkedRange* const range = ranges[i].load(std::memory_order_acquire);
    if (at >= range->begin && at < range->end) return range;
  }
  return nullptr;
}

/// Queries (node < 0) or moves up to kBatch pages from `at`. `status` receives their nodes or negative errors.
long call(std::uintptr_t at, std::size_t count, int node, int* status) {
  void* pages[kBatch];
  int nodes[kBatch];
  for (std::size_t i = 0; i < count; ++i) {
    pages[i] = reinterpret_cast<void*>(at + i * page);
    nodes[i] = node;
    status[i] = -ENOENT;
  }
  return syscall(SYS_move_pages, 0, count, pages, node < 0 ? nullptr : nodes, status, kMove);
}

/// Queries the nodes of pages. Some Linux kernels (6.1) report no node for a page that awaits a hinting fault of NUMA
/// balancing, until it is read. A marked page without access cannot be read, which is harmless here.
long query_or_move(std::uintptr_t at, std::size_t count, int* status) {
  if (call(at, count, -1, status) < 0) return -1;
  bool hidden = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (status[i] != -ENOENT) continue;
    char byte = 0;
    const iovec to{&byte, 1}, from{reinterpret_cast<void*>(at + i * page), 1};
    hidden = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || hidden;
  }
  return hidden ? call(at, count, -1, status) : 0;
}

/// Returns the number of pages in [low, high) on another node, after moving them (up to kBatch per call) if requested.
long away(std::uintptr_t low, std::uintptr_t high, int node, bool move) {
  long count = 0;
  for (std::uintptr_t at = low; at < high; at += kBatch * page) {
    const std::size_t left = (high - at) / page, n = left < kBatch ? left : kBatch;
    int status[kBatch];
    if (move) call(at, n, node, status);
    // A call that stops early reports nothing about the rest: query where the pages are.
    if (call(at, n, -1, status) < 0) return count;
    for (std::size_t i = 0; i < n; ++i) count += status[i] >= 0 && status[i] != node;
  }
  return count;
}

void bring_here(std::uintptr_t low, std::uintptr_t high) {
  unsigned cpu = 0, cpu_node = 0;
  syscall(SYS_getcpu, &cpu, &cpu_node, nullptr);
  const int node = cpu_node < kNodes ? memory_node[cpu_node] : -1;
  if (node < 0) return;
  const long before_move = away(low, high, node, false);
  if (before_move == 0) return;
  const long after_move = away(low, high, node, true);
  kept.fetch_add(static_cast<unsigned long>(after_move), std::memory_order_relaxed);
  if (before_move > after_move)
    moved.fetch_add(static_cast<unsigned long>(before_move - after_move), std::memory_order_relaxed);
}

/// Restores the access. The Linux kernel keeps one mapping per run of equal access, and limits their number. If that
/// limit is reached, the whole range regains access and loses its marks.
void open_chunk(MarkedRange& range, std::size_t i, std::uint8_t state) {
  if (mprotect(reinterpret_cast<void*>(range.low(i)), range.high(i) - range.low(i), protection(state)) == 0) return;
  mprotect(reinterpret_cast<void*>(range.begin), range.end - range.begin, protection(state));
  for (std::size_t k = 0; k <= range.index(range.end - 1); ++k) {
    std::uint8_t s = range.state[k].load();
    if ((s & kState) == kMarked && range.state[k].compare_exchange_strong(s, kFree)) lost.fetch_add(1);
  }
}

/// Forwards a fault that this library did not cause.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  // Restore the default action: a fault recurs after the return, but a signal that was sent does not.
  struct sigaction end{};
  end.sa_handler = SIG_DFL;
  sigaction(signal, &end, nullptr);
  if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  // Initial-exec: plain thread-local storage of a library may be allocated at its first use.
  static thread_local std::uintptr_t last __attribute__((tls_model("initial-exec"))) = 0;
  static thread_local int times __attribute__((tls_model("initial-exec"))) = 0;
  static thread_local unsigned long last_call __attribute__((tls_model("initial-exec"))) = 0;
  const int error = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  MarkedRange* const range = info->si_code == SEGV_ACCERR ? find(at) : nullptr;
  if (range == nullptr) return pass_on(signal, info, context);
  const std::size_t i = range->index(at);
  std::atomic<std::uint8_t>& state = range->state[i];
  for (;;) {
    std::uint8_t s = state.load(std::memory_order_acquire);
    if ((s & kState) == kFree) break;
    if ((s & kState) == kTaken) {  // another thread moves it to its node; it never waits for this one
      sched_yield();
      continue;
    }
    if (!state.compare_exchange_strong(s, static_cast<std::uint8_t>((s & ~kState) | kTaken))) continue;
    open_chunk(*range, i, s);  // restore access first: many Linux kernels cannot move pages without it
    bring_here(range->low(i), range->high(i));
    state.store(static_cast<std::uint8_t>(s & ~kState), std::memory_order_release);
    touched.fetch_add(1, std::memory_order_relaxed);
    times = 0;
    errno = error;
    return;
  }
  // Not marked: either another thread has opened it, so a retry succeeds, or the fault is real. Repeated faults at an
  // address count as real only if mm_next_touch was not called in between: after a call, another thread may have opened
  // the memory again.
  const unsigned long call_now = calls.load();
  times = last == at && last_call == call_now ? times + 1 : 1;
  last = at;
  last_call = call_now;
  errno = error;
  if (times > 3) pass_on(signal, info, context);
}

long file_text(const char* path, char* text, std::size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (file >= 0) close(file);
  text[length > 0 ? length : 0] = 0;
  return length;
}

/// Fills `memory_node`: each node itself if it has memory, otherwise the nearest node with memory by distance.
void learn_nodes() {
  char text[8192], path[96];
  bool has[kNodes] = {};
  bool any = false;
  file_text("/sys/devices/system/node/has_memory", text, sizeof text);
  for (char* at = text; *at >= '0' && *at <= '9'; at += *at == ',') {
    const long low = strtol(at, &at, 10), high = *at == '-' ? strtol(at + 1, &at, 10) : low;
    for (long n = low; n <= high && n < kNodes; ++n) has[n] = any = true;
  }
  for (int node = 0; node < kNodes; ++node) {
    memory_node[node] = has[node] ? node : -1;
    if (has[node] || !any) continue;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", node);
    if (file_text(path, text, sizeof text) <= 0) continue;
    long nearest = -1;
    int other = 0;
    for (char *at = text, *end = nullptr;; at = end, ++other) {  // one number per online node, ascending
      const long distance = strtol(at, &end, 10);
      if (end == at || other >= kNodes) break;
      char path[64];
      while (other < kNodes) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", other);
        if (access(path, F_OK) == 0) break;
        ++other;
      }
      if (other < kNodes && has[other] && (nearest < 0 || distance < nearest))
        nearest = distance, memory_node[node] = other;
    }
  }
}

/// Marks again, in the child, the chunks that other threads were moving: the child has only one thread.
void after_fork() {
  for (int r = 0; r < range_count.load(); ++r) {
    MarkedRange& range = *ranges[r].load();
    for (std::size_t i = 0; i <= range.index(range.end - 1); ++i) {
      const std::uint8_t s = range.state[i].load();
      if ((s & kState) == kTaken) range.state[i].store(static_cast<std::uint8_t>((s & ~kState) | kMarked));
    }
  }
  pthread_mutex_unlock(&lock);
}

bool install() {
  static bool ready = false;
  if (!ready) {
    learn_nodes();
    pthread_atfork([] { pthread_mutex_lock(&lock); }, [] { pthread_mutex_unlock(&lock); }, after_fork);
    ready = true;
  }
  struct sigaction current{};
  if (sigaction(SIGSEGV, nullptr, &current) != 0) return false;
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_fault) return true;
  before = current;
  struct sigaction handler{};
  handler.sa_sigaction = on_fault;
  handler.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&handler.sa_mask);  // a handler of the program that touches the same chunk would wait for itself
  return sigaction(SIGSEGV, &handler, nullptr) == 0;
}

/// A mapping, or a part of one, to be marked.
struct Piece {
  std::uintptr_t begin, end, chunk;
  std::uint8_t access;
};

/// Reads lines of a file without the heap, since a thread may hold the heap's lock while it waits for us.
class LineReader {
 public:
  explicit LineReader(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~LineReader() {
    if (file_ >= 0) close(file_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  /// The next line, cut at 255 characters; nullptr at the end.
  const char* next() {
    std::size_t n = 0;
    for (;;) {
      if (at_ == have_) {
        const ssize_t length = file_ < 0 ? -1 : read(file_, text_, sizeof text_);
        if (length <= 0) return nullptr;
        at_ = 0;
        have_ = static_cast<std::size_t>(length);
      }
      const char c = text_[at_++];
      if (c == '\n') break;
      if (n < sizeof line_ - 1) line_[n++] = c;
    }
    line_[n] = 0;
    return line_;
  }

 private:
  int file_;
  std::size_t at_ = 0, have_ = 0;
  char line_[256];
  static inline char text_[1 << 16];  // protected by `lock`
};

/// Writes the pieces of /proc/self/smaps in [begin, end) to `pieces`. Returns their number, or -1 if a part is not
/// mapped.
long pieces_of(std::uintptr_t begin, std::uintptr_t end, Piece* pieces) {
  long count = 0;
  std::uintptr_t covered_end = begin;
  bool inside = false;
  LineReader lines("/proc/self/smaps");
  while (const char* line = lines.next()) {
    char* at = nullptr;
    const bool digit = (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
    if (const std::uintptr_t low = strtoul(line, &at, 16); digit && *at == '-') {
      if (low >= end) break;
      const std::uintptr_t high = strtoul(at + 1, &at, 16);
      inside = high > begin;
      if (!inside) continue;
      if (low > covered_end) return -1;
      pieces[count++] = {low > begin ? low : begin, high < end ? high : end, page,
                         static_cast<std::uint8_t>((at[1] == 'r' ? kRead : 0) | (at[2] == 'w' ? kWrite : 0) |
                                                   (at[3] == 'x' ? kExecute : 0))};
      covered_end = pieces[count - 1].end;
    } else if (inside) {
      std::uintptr_t& chunk = pieces[count - 1].chunk;
      for (const char* key : {"AnonHugePages:", "ShmemPmdMapped:"})
        if (strncmp(line, key, strlen(key)) == 0 && strtoul(line + strlen(key), nullptr, 10) > 0) chunk = kHuge;
      if (strncmp(line, "KernelPageSize:", 15) == 0)
        if (const std::uintptr_t bytes = strtoul(line + 15, nullptr, 10) << 10; bytes > chunk) chunk = bytes;
    }
  }
  return covered_end >= end ? count : -1;
}

MarkedRange* make(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t chunk) {
  const int n = range_count.load();
  if (n == kMax) return nullptr;
  const std::size_t chunks = (end - 1) / chunk - begin / chunk + 1, head = (sizeof(MarkedRange) + 63) / 64 * 64;
  void* const at = mmap(nullptr, head + chunks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* const range = static_cast<MarkedRange*>(at);
  range->begin = begin;
  range->end = end;
  range->chunk = chunk;
  range->state = reinterpret_cast<std::atomic<std::uint8_t>*>(static_cast<char*>(at) + head);
  // The chunks stay taken until release(): a thread that found an unmarked chunk without access would treat its fault
  // as real.
  for (std::size_t i = 0; i < chunks; ++i) range->state[i].store(kTaken, std::memory_order_relaxed);
  ranges[n].store(range, std::memory_order_release);
  range_count.store(n + 1, std::memory_order_release);
  return range;
}

/// Returns the first address after `at` at which a range begins, or `end`.
std::uintptr_t next_known(std::uintptr_t at, std::uintptr_t end) {
  for (int i = 0; i < range_count.load(); ++i)
    if (const std::uintptr_t begin = ranges[i].load()->begin; begin > at && begin < end) end = begin;
  return end;
}

/// Calls the function for every chunk of a range that overlaps [begin, end).
template <class Function>
void each_state(std::uintptr_t begin, std::uintptr_t end, Function&& function) {
  for (int r = 0; r < range_count.load(); ++r) {
    MarkedRange& range = *ranges[r].load();
    const std::uintptr_t low = begin > range.begin ? begin : range.begin, high = end < range.end ? end : range.end;
    if (low >= high) continue;
    for (std::size_t i = range.index(low); i <= range.index(high - 1); ++i) function(range.state[i]);
  }
}

/// Prevents other threads from opening chunks there, so that the access reported by the Linux kernel stays valid.
void acquire(std::uintptr_t begin, std::uintptr_t end) {
  each_state(begin, end, [](std::atomic<std::uint8_t>& state) {
    for (;;) {
      std::uint8_t s = state.load();
      const int to_mark = (s & kState) == kMarked ? kToMark : 0;
      if ((s & kState) != kTaken &&
          state.compare_exchange_strong(s, static_cast<std::uint8_t>((s & ~kState) | kTaken | to_mark)))
        return;
      sched_yield();
    }
  });
}

void release(std::uintptr_t begin, std::uintptr_t end) {
  each_state(begin, end, [](std::atomic<std::uint8_t>& state) {
    const std::uint8_t s = state.load();
    state.store(static_cast<std::uint8_t>((s & ~(kState | kToMark)) | ((s & kToMark) != 0 ? kMarked : kFree)),
                std::memory_order_release);
  });
}

/// Removes the access of a piece.
bool mark(const Piece& piece) {
  for (std::uintptr_t at = piece.begin; at < piece.end;) {
    MarkedRange* range = find(at);
    if (range == nullptr) range = make(at, next_known(at, piece.end), piece.chunk);
    if (range == nullptr) return false;
    const std::uintptr_t stop = piece.end < range->end ? piece.end : range->end;
    if (mprotect(reinterpret_cast<void*>(at), stop - at, PROT_NONE) != 0) return false;
    each_state(at, stop, [&](std::atomic<std::uint8_t>& state) {
      // Already marked and untouched: it has no access, and the previous access is known.
      const int access = piece.access != 0 ? piece.access : state.load() & (kRead | kWrite | kExecute);
      state.store(static_cast<std::uint8_t>(access | kTaken | kToMark));
    });
    at = stop;
  }
  return true;
}

int mark_all(std::uintptr_t begin, std::uintptr_t end) {
  const std::size_t bytes = ((end - begin) / page + 1) * sizeof(Piece);
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return ENOMEM;
  auto* const pieces = static_cast<Piece*>(room);
  calls.fetch_add(1);
  acquire(begin, end);
  const long n = pieces_of(begin, end, pieces);
  int error = n < 0 ? ENOMEM : 0;
  for (long i = 0; i < n && error == 0; ++i)
    for (std::uintptr_t at = pieces[i].begin; pieces[i].access == 0 && at < pieces[i].end && error == 0; at += page) {
      const MarkedRange* const range = find(at);
      if (range == nullptr || (range->state[range->index(at)].load() & kToMark) == 0) error = EACCES;
    }
  for (long i = 0; i < n && error == 0; ++i)
    if (!mark(pieces[i])) error = ENOMEM;
  release(begin, end);
  munmap(room, bytes);
  return error;
}

}  // namespace

extern "C" {

int mm_next_touch(void* addr, size_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(addr);
  const std::uintptr_t begin = (start + page - 1) / page * page, end = (start + bytes) / page * page;
  int error = 0;
  const auto stack = reinterpret_cast<std::uintptr_t>(&error);
  if (begin >= end || end < start || (stack >= begin && stack < end)) {
    errno = EINVAL;
    return -1;
  }
  // A handler of this thread that touches a locked chunk would wait forever.
  sigset_t all, old;
  sigfillset(&all);
  pthread_mutex_lock(&lock);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  error = install() ? mark_all(begin, end) : errno;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_mutex_unlock(&lock);
  if (error != 0) errno = error;
  return error == 0 ? 0 : -1;
}

void mm_next_touch_count(struct mm_next_touch_counts* counts) {
  *counts = {touched.load(), moved.load(), kept.load(), lost.load()};
}

long mm_migrate(void* addr, size_t bytes, int node) {
  const auto start = reinterpret_cast<std::uintptr_t>(addr);
  if (bytes == 0 || node < 0 || start + bytes < start) {
    errno = EINVAL;
    return -1;
  }
  long misplaced = 0;
  const std::uintptr_t end = (start + bytes + page - 1) / page * page;
  for (std::uintptr_t at = start / page * page; at < end; at += kBatch * page) {
    const std::size_t left = (end - at) / page, count = left < kBatch ? left : kBatch;
    int status[kBatch];
    if (query_or_move(at, count, status) < 0) return -1;
    // A call stops at the first page that cannot move; the rest is retried as long as some pages move.
    for (std::size_t before_call = count + 1;;) {
      if (call(at, count, node, status) < 0 && errno != ENOMEM) return -1;
      if (query_or_move(at, count, status) < 0) return -1;
      std::size_t misplaced_in_batch = 0;
      for (std::size_t i = 0; i < count; ++i) misplaced_in_batch += status[i] >= 0 && status[i] != node;
      if (misplaced_in_batch == 0 || misplaced_in_batch >= before_call) {
        misplaced += static_cast<long>(misplaced_in_batch);
        break;
      }
      before_call = misplaced_in_batch;
    }
  }
  return misplaced;
}

int mm_where(const void* addr) {
  int status = 0;
  if (query_or_move(reinterpret_cast<std::uintptr_t>(addr) / page * page, 1, &status) < 0) return -1;
  if (status >= 0) return status;
  void* at = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(addr) / page * page);
  unsigned char present = 0;
  errno = mincore(at, page, &present) == 0 ? ENOENT : EFAULT;
  return -1;
}

}  // extern "C"
// NOLINTEND(performance-no-int-to-ptr, clang-analyzer-unix.BlockInCriticalSection)

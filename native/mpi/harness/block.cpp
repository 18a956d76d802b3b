#include "mpi/harness/block.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/marks.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {
namespace {

constexpr std::uint64_t kReferenceAdds = 1 << 13;  // about 2 µs
constexpr double kSlowReference = 1.3;
constexpr double kWaited_s = 2e-6;  // an interrupt takes as long; a time slice of another program takes 1000 times that
constexpr double kWaitedShare = 0.02;  // … or this share of the block, whichever is greater
constexpr double kStolen_s = 20e-6;    // interrupts that the operating system accounts for are as short
constexpr double kStolenShare = 0.02;

/// Detects on a rank whether something else used its CPU during a block.
class BlockObserver {
 public:
  BlockObserver() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~BlockObserver() {
    if (file_ >= 0) close(file_);
  }
  BlockObserver(const BlockObserver&) = delete;
  BlockObserver& operator=(const BlockObserver&) = delete;

  /// Call some time before a block; call begin() immediately before it.
  void prepare() { ratio_before_ = reference_ratio(); }
  void begin() {
    cpu_ = sched_getcpu();
    before_ = read();
  }
  int end(double block_s) {
    const Reading now = read();
    int marks = sched_getcpu() != cpu_ ? kMoved : 0;
    const double waited = now.waited_s - before_.waited_s;
    const bool switched = !now.counts_waiting && now.switches > before_.switches;
    if (waited > std::max(kWaited_s, kWaitedShare * block_s) || switched) marks |= kSwitched;
    // Neither running, waiting nor sleeping: a hypervisor took the CPU away.
    const double stolen = seconds(now.at - before_.at) - (now.ran_s - before_.ran_s) - waited;
    if (now.counts_waiting && now.sleeps == before_.sleeps && stolen > std::max(kStolen_s, kStolenShare * block_s))
      marks |= kStolen;
    if (std::max(ratio_before_, reference_ratio()) > kSlowReference) marks |= kDisturbed;
    return marks;
  }

 private:
  struct Reading {
    Ticks at = 0;
    double ran_s = 0, waited_s = 0;
    long switches = 0, sleeps = 0;
    bool counts_waiting = false;
  };
  Reading read() const {
    Reading r;
    char text[128];
    const ssize_t n = file_ < 0 ? 0 : pread(file_, text, sizeof text - 1, 0);
    if (n > 0) {
      text[n] = 0;
      unsigned long long ran = 0, waited = 0;
      if (std::sscanf(text, "%llu %llu", &ran, &waited) == 2) {
        r.waited_s = static_cast<double>(waited) * 1e-9;
        r.counts_waiting = ran > 0;  // a Linux kernel without these counters reports 0
      }
    }
    rusage use{};
    getrusage(RUSAGE_THREAD, &use);
    r.switches = use.ru_nivcsw;
    r.sleeps = use.ru_nvcsw;
    r.ran_s = static_cast<double>(kernel_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9;
    r.at = ticks();
    return r;
  }
  /// Time of fixed work over its minimum so far. It takes the better of two attempts, since an interrupt in one of them
  /// does not concern the block.
  double reference_ratio() {
    double took = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < 2; ++turn) {
      const Ticks begin = ticks();
      keep(dependent_adds(kReferenceAdds));
      took = std::min(took, seconds(ticks() - begin));
    }
    best_ = std::min(best_, took);
    return took / best_;
  }

  int file_, cpu_ = -1;
  double ratio_before_ = 1, best_ = std::numeric_limits<double>::infinity();
  Reading before_;
};

/// Combines the slowest rank's time, the marks of all ranks and the time of rank 0: the same result on all ranks.
TimedBlock agree(double mine_s, int marks, bool taking_part) {
  World& world = World::get();
  const double line[3] = {taking_part ? mine_s : -1, static_cast<double>(marks), wall_s()};
  std::vector<double> all(static_cast<std::size_t>(world.size()) * 3);
  check(MPI_Allgather(line, 3, MPI_DOUBLE, all.data(), 3, MPI_DOUBLE, world.all()), "MPI_Allgather");
  TimedBlock found;
  found.ended_s = all[2];
  bool late = false;
  for (std::size_t r = 0; r < all.size(); r += 3) {
    late = late || (static_cast<int>(all[r + 1]) & kLate) != 0;
    if (all[r] < 0) continue;
    found.block.ranks.push_back(all[r]);
    found.block.seconds = std::max(found.block.seconds, all[r]);
    found.block.marks |= static_cast<int>(all[r + 1]);
  }
  world.adjust_lead(late);
  return found;
}

BlockObserver& observer() {
  static BlockObserver one;
  return one;
}

}  // namespace

TimedBlock time_block(const Case& c, std::uint64_t iterations) {
  World& world = World::get();
  observer().prepare();
  const bool in_time = world.start_together([] { observer().begin(); });
  const double begun_s = wall_s();
  const Ticks begin = ticks();
  if (c.run) c.run(iterations);
  const double took = seconds(ticks() - begin);
  int marks = c.run ? observer().end(took) : 0;
  if (!in_time) marks |= kLate;
  TimedBlock found = agree(took / static_cast<double>(iterations), marks, static_cast<bool>(c.run));
  found.block.begun_s = begun_s;
  return found;
}

std::string find_defect(const Case& c, std::uint32_t tag, bool whole) {
  World& world = World::get();
  const std::vector<Defect> mine = c.defects && c.run ? c.defects(tag, whole) : std::vector<Defect>{};
  int count = static_cast<int>(mine.size()), max_count = 0;
  check(MPI_Allreduce(&count, &max_count, 1, MPI_INT, MPI_MAX, world.all()), "MPI_Allreduce");
  if (max_count == 0) return c.verify ? c.verify() : "";
  json first = json(nullptr);
  if (count > 0)
    first = {{"where", mine.front().where},
             {"index", mine.front().index},
             {"expected", mine.front().expected},
             {"got", mine.front().got}};
  const auto all = world.gather(first);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].is_null()) continue;
    char text[200];
    std::snprintf(text, sizeof text, "wrong data: rank %zu, %s, word %llu: expected %016llx, got %016llx", r,
                  all[r]["where"].get<std::string>().c_str(), all[r]["index"].get<unsigned long long>(),
                  all[r]["expected"].get<unsigned long long>(), all[r]["got"].get<unsigned long long>());
    return text;
  }
  return "";
}

}  // namespace mm::mpi

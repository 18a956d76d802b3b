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
constexpr double kWaited_s = 2e-6;     // as long as an interrupt; a time slice of another program takes 1000 times that
constexpr double kWaitedShare = 0.02;  // … or this share of the block, whichever is greater
constexpr double kStolen_s = 20e-6;    // as long as interrupts that the operating system accounts for
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

  /// Times the reference work. Call it some time before a block, and begin() immediately before the block.
  void prepare() { ratio_before_ = reference_ratio(); }
  void begin() {
    cpu_ = sched_getcpu();
    before_ = read();
  }
  int end(double block_s) {
    const Reading reading = read();
    int marks = sched_getcpu() != cpu_ ? kMoved : 0;
    const double waited_s = reading.waited_s - before_.waited_s;
    const bool switched = !reading.counts_waiting && reading.switches > before_.switches;
    if (waited_s > std::max(kWaited_s, kWaitedShare * block_s) || switched) marks |= kSwitched;
    // The thread was neither running, waiting nor sleeping: a hypervisor took the CPU away.
    const double stolen_s = seconds(reading.at - before_.at) - (reading.ran_s - before_.ran_s) - waited_s;
    if (reading.counts_waiting && reading.sleeps == before_.sleeps &&
        stolen_s > std::max(kStolen_s, kStolenShare * block_s))
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
      unsigned long long run_ns = 0, waiting_ns = 0;
      if (std::sscanf(text, "%llu %llu", &run_ns, &waiting_ns) == 2) {
        r.waited_s = static_cast<double>(waiting_ns) * 1e-9;
        r.counts_waiting = run_ns > 0;  // a Linux kernel without these counters reports 0
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
  /// Returns the time of fixed work over its minimum so far. The better of two attempts counts, since an interrupt in
  /// one of them does not concern the block.
  double reference_ratio() {
    double elapsed_s = std::numeric_limits<double>::infinity();
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Ticks begin = ticks();
      keep(dependent_adds(kReferenceAdds));
      elapsed_s = std::min(elapsed_s, seconds(ticks() - begin));
    }
    best_ = std::min(best_, elapsed_s);
    return elapsed_s / best_;
  }

  int file_, cpu_ = -1;
  double ratio_before_ = 1, best_ = std::numeric_limits<double>::infinity();
  Reading before_;
};

/// Combines the slowest rank's time, the marks of all ranks and the time of rank 0. The result is the same on all
/// ranks.
TimedBlock agree(double mine_s, int marks, bool taking_part) {
  World& world = World::get();
  const double local_values[3] = {taking_part ? mine_s : -1, static_cast<double>(marks), wall_s()};
  std::vector<double> all_values(static_cast<std::size_t>(world.size()) * 3);
  check(MPI_Allgather(local_values, 3, MPI_DOUBLE, all_values.data(), 3, MPI_DOUBLE, world.all()), "MPI_Allgather");
  TimedBlock result;
  result.ended_s = all_values[2];
  bool late = false;
  for (std::size_t r = 0; r < all_values.size(); r += 3) {
    late = late || (static_cast<int>(all_values[r + 1]) & kLate) != 0;
    if (all_values[r] < 0) continue;
    result.block.ranks.push_back(all_values[r]);
    result.block.seconds = std::max(result.block.seconds, all_values[r]);
    result.block.marks |= static_cast<int>(all_values[r + 1]);
  }
  world.adjust_lead(late);
  return result;
}

BlockObserver& observer() {
  static BlockObserver instance;
  return instance;
}

}  // namespace

TimedBlock time_block(const Case& c, std::uint64_t iterations) {
  World& world = World::get();
  observer().prepare();
  const bool in_time = world.start_together([] { observer().begin(); });
  const double begun_s = wall_s();
  const Ticks begin = ticks();
  if (c.run) c.run(iterations);
  const double elapsed_s = seconds(ticks() - begin);
  int marks = c.run ? observer().end(elapsed_s) : 0;
  if (!in_time) marks |= kLate;
  TimedBlock result = agree(elapsed_s / static_cast<double>(iterations), marks, static_cast<bool>(c.run));
  result.block.begun_s = begun_s;
  return result;
}

std::string find_defect(const Case& c, std::uint32_t tag, bool whole) {
  World& world = World::get();
  const std::vector<Defect> defects = c.defects && c.run ? c.defects(tag, whole) : std::vector<Defect>{};
  int count = static_cast<int>(defects.size()), max_count = 0;
  check(MPI_Allreduce(&count, &max_count, 1, MPI_INT, MPI_MAX, world.all()), "MPI_Allreduce");
  if (max_count == 0) return c.verify ? c.verify() : "";
  json first = json(nullptr);
  if (count > 0)
    first = {{"where", defects.front().where},
             {"index", defects.front().index},
             {"expected", defects.front().expected},
             {"got", defects.front().got}};
  const auto first_defects = world.gather(first);
  for (std::size_t r = 0; r < first_defects.size(); ++r) {
    if (first_defects[r].is_null()) continue;
    char text[200];
    std::snprintf(
        text, sizeof text, "wrong data: rank %zu, %s, word %llu: expected %016llx, got %016llx", r,
        first_defects[r]["where"].get<std::string>().c_str(), first_defects[r]["index"].get<unsigned long long>(),
        first_defects[r]["expected"].get<unsigned long long>(), first_defects[r]["got"].get<unsigned long long>());
    return text;
  }
  return "";
}

}  // namespace mm::mpi

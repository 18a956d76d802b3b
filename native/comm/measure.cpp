#include "measure.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/stats.hpp"

namespace mm::comm {
namespace {

enum Mark : int { kMoved = 1, kWaited = 2, kSlow = 4, kLate = 8, kStolen = 16 };

constexpr double kBlock_s = 0.5e-3;
constexpr std::uint64_t kMostIterations = 1 << 20;
constexpr std::size_t kLeastSamples = 7, kMostSamples = 300;
constexpr useconds_t kReading_us = 300;         // a CPU for whoever reads what was written
constexpr std::uint64_t kCanaryAdds = 1 << 13;  // about 2 µs
constexpr double kSlowCanary = 1.3;
constexpr double kWaited_s = 2e-6;     // an interrupt takes as long; a neighbour's turn takes a thousand times that
constexpr double kWaitedShare = 0.02;  // … or so much of the block, if that is more
constexpr double kStolen_s = 20e-6;    // interrupts, where the kernel accounts for them, are as short
constexpr double kStolenShare = 0.02;

/// What tells on a rank that its block was not its own.
class Sentinel {
 public:
  Sentinel() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~Sentinel() {
    if (file_ >= 0) close(file_);
  }
  Sentinel(const Sentinel&) = delete;
  Sentinel& operator=(const Sentinel&) = delete;

  /// Some time before a block, and just before it.
  void look() { canary_ = canary(); }
  void begin() {
    cpu_ = sched_getcpu();
    before_ = read();
  }
  int end(double block_s) {
    const Reading now = read();
    int marks = sched_getcpu() != cpu_ ? kMoved : 0;
    const double waited = now.waited_s - before_.waited_s;
    const bool switched = !now.counts_waiting && now.switches > before_.switches;
    if (waited > std::max(kWaited_s, kWaitedShare * block_s) || switched) marks |= kWaited;
    // Neither ran nor waited nor slept: the CPU itself was away, as a hypervisor takes one.
    const double stolen = seconds(now.at - before_.at) - (now.ran_s - before_.ran_s) - waited;
    if (now.counts_waiting && now.sleeps == before_.sleeps && stolen > std::max(kStolen_s, kStolenShare * block_s))
      marks |= kStolen;
    if (std::max(canary_, canary()) > kSlowCanary) marks |= kSlow;
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
        r.counts_waiting = ran > 0;  // a kernel that does not count says 0
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
  /// Time of fixed work over the least it ever took here: of two turns the better one, since an interrupt in one of
  /// them says nothing of the block.
  double canary() {
    double took = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < 2; ++turn) {
      const Ticks begin = ticks();
      keep(dependent_adds(kCanaryAdds));
      took = std::min(took, seconds(ticks() - begin));
    }
    best_ = std::min(best_, took);
    return took / best_;
  }

  int file_, cpu_ = -1;
  double canary_ = 1, best_ = std::numeric_limits<double>::infinity();
  Reading before_;
};

struct Block {
  double seconds = 0;  ///< an iteration, the slowest rank's
  int marks = 0;       ///< of all ranks
  std::vector<double> ranks;
  Values also;         ///< the case's further metrics
  double begun_s = 0;  ///< by this rank's wall_s()
};

struct Progress {
  Case what;
  std::size_t index = 0;
  std::uint64_t iterations = 1;
  std::vector<Block> blocks;
  bool done = false, resumed = false;
  std::string start, failure;
  double spent_s = 0, value = std::numeric_limits<double>::quiet_NaN();

  std::vector<double> samples(bool clean) const {
    std::vector<double> all;
    for (const Block& b : blocks)
      if (!clean || b.marks == 0) all.push_back(b.seconds * what.share);
    return all;
  }
  /// Whether only undisturbed blocks count: what others did to a block says nothing of the library. But half of the
  /// blocks gone is no measurement.
  bool only_clean() const {
    const auto clean = samples(true).size();
    return !World::get().oversubscribed() && clean >= kLeastSamples && 2 * clean >= blocks.size();
  }
  /// Share of the blocks with any of these marks.
  double marked(int marks) const {
    const auto n = std::count_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.marks & marks; });
    return static_cast<double>(n) / static_cast<double>(blocks.size());
  }
  std::vector<std::string> flags(double percent) const {
    std::vector<std::string> all;
    const bool clean = only_clean();
    if (!clean && marked(~0) > 0.25) all.emplace_back("noisy");
    if (!clean && marked(kStolen) > 0.25) all.emplace_back("stolen");
    if (!clean && marked(kMoved) > 0) all.emplace_back("migrated");
    if (World::get().oversubscribed()) all.emplace_back("oversubscribed");
    if (!inside_width(samples(clean), percent)) all.emplace_back("truncated");
    return all;
  }
  bool enough(double percent) const {
    const auto kept = samples(!World::get().oversubscribed());
    return kept.size() >= kLeastSamples && inside_width(kept, percent);
  }
};

/// Agrees on the slowest rank's time, every rank's marks and the job's time: the same on all ranks.
struct Agreed {
  double told_s = 0;  ///< when, by rank 0's clock
  Block block;
};

Agreed agree(double mine_s, int marks, bool taking_part) {
  World& world = World::get();
  const double line[3] = {taking_part ? mine_s : -1, static_cast<double>(marks), wall_s()};
  std::vector<double> all(static_cast<std::size_t>(world.size()) * 3);
  check(MPI_Allgather(line, 3, MPI_DOUBLE, all.data(), 3, MPI_DOUBLE, world.all()), "MPI_Allgather");
  Agreed found;
  found.told_s = all[2];
  bool late = false;
  for (std::size_t r = 0; r < all.size(); r += 3) {
    late = late || (static_cast<int>(all[r + 1]) & kLate) != 0;
    if (all[r] < 0) continue;
    found.block.ranks.push_back(all[r]);
    found.block.seconds = std::max(found.block.seconds, all[r]);
    found.block.marks |= static_cast<int>(all[r + 1]);
  }
  world.appoint(late);
  return found;
}

Sentinel& sentinel() {
  static Sentinel one;
  return one;
}

/// One block, timed on each rank.
Agreed timed(const Case& c, std::uint64_t iterations) {
  World& world = World::get();
  sentinel().look();
  const bool in_time = world.together([] { sentinel().begin(); });
  const double begun_s = wall_s();
  const Ticks begin = ticks();
  if (c.run) c.run(iterations);
  const double took = seconds(ticks() - begin);
  int marks = c.run ? sentinel().end(took) : 0;
  if (!in_time) marks |= kLate;
  Agreed found = agree(took / static_cast<double>(iterations), marks, static_cast<bool>(c.run));
  found.block.begun_s = begun_s;
  return found;
}

/// What a case is, for people.
std::string named(const Case& c) {
  std::string text;
  for (const char* key : {"paradigm", "protocol", "operation", "algorithm", "mode", "distance", "from_rank", "to_rank",
                          "words", "message_bytes", "kernel", "class"})
    if (c.conditions.contains(key)) {
      const json& value = c.conditions[key];
      text += (text.empty() ? "" : ", ") + std::string(key) + " " +
              (value.is_string() ? value.get<std::string>() : value.dump());
    }
  return text.empty() ? c.metric : text;
}

/// "" or the first defect of the lowest rank, in words; the same on all ranks.
std::string wrong(const Case& c, std::uint32_t tag, bool whole) {
  World& world = World::get();
  const std::vector<Defect> mine = c.defects && c.run ? c.defects(tag, whole) : std::vector<Defect>{};
  int count = static_cast<int>(mine.size()), most = 0;
  check(MPI_Allreduce(&count, &most, 1, MPI_INT, MPI_MAX, world.all()), "MPI_Allreduce");
  if (most == 0) return c.proof ? c.proof() : "";
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

// Whether this process has timed a block, or took up a run that had: the same on every rank. Until then nothing is too
// late for the one point that is furthest, or a short budget would be spent on proofs and bring no number at all.
bool any_block = false;

}  // namespace

bool too_late(const Run& run) {
  // Until the first call ranks met and networks were looked at: on crowded hosts that alone outlasts a short budget.
  static const double begun_s = wall_s();
  int late = wall_s() > std::max(run.last_call_s(), begun_s + run.budget_s() + 1);
  check(MPI_Bcast(&late, 1, MPI_INT, 0, World::get().all()), "MPI_Bcast");
  return late != 0;
}

std::vector<double> measure(Run& run, std::vector<Case> cases, double share, bool tied) {
  World& world = World::get();
  const double percent = run.real("interval_percent");
  const double end_s = world.tell(wall_s() + run.left_s() * share);  // by rank 0's clock, as `told_s` is
  std::vector<Progress> all;
  for (Case& c : cases) {
    Progress p;
    const auto [index, finished] = run.next_point();
    p.index = index;
    p.resumed = p.done = world.tell(finished).get<bool>();
    any_block = any_block || p.resumed;
    p.what = std::move(c);
    if (p.what.missing) {
      p.done = true;
      p.failure = *p.what.missing;
    }
    all.push_back(std::move(p));
  }
  std::uint32_t tag = 0;

  const auto finish = [&](Progress& p) {
    p.done = true;
    json conditions = p.what.conditions;
    if (p.blocks.empty()) {
      if (p.failure.empty()) return;
      conditions.update({{"ranks", world.size()}, {"mpi", world.kind()}});
      run.absent(p.what.metric, conditions, named(p.what) + ": " + p.failure, p.what.enable);
      return;
    }
    conditions.update(world.conditions());
    // Not as they come: whoever reads a line wants a CPU, and mostly that of a rank.
    for (const Block& b : p.blocks) {
      Values line = {b.seconds};
      line.insert(line.end(), b.ranks.begin(), b.ranks.end());
      run.sample(p.index, line, b.marks, b.begun_s);
    }
    const bool clean = p.only_clean();
    const std::vector<double> samples = p.samples(clean);
    p.value = median(samples);
    const std::vector<std::string> flags = p.flags(percent);
    if (p.what.flags) p.what.flags->insert(flags.begin(), flags.end());
    if (p.what.rounds)
      for (const Block& b : p.blocks)
        p.what.rounds->push_back(clean && b.marks != 0 ? std::numeric_limits<double>::quiet_NaN()
                                                       : b.seconds * p.what.share);
    double fastest = 0, slowest = 0;
    for (std::size_t r = 0; r < p.blocks.front().ranks.size(); ++r) {
      std::vector<double> of;
      for (const Block& b : p.blocks) of.push_back(b.ranks[r]);
      const double m = median(of) * p.what.share;
      fastest = r == 0 ? m : std::min(fastest, m);
      slowest = std::max(slowest, m);
    }
    conditions["block_iterations"] = p.iterations;
    conditions["disturbed_share"] = p.marked(~0);
    conditions["blocks"] = p.blocks.size();
    conditions["fastest_rank"] = fastest;
    conditions["slowest_rank"] = slowest;
    const json where = world.gather(sched_getcpu());
    std::string cpus;
    for (const json& cpu : where) cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu.get<int>());
    conditions["rank_cpus"] = cpus;
    if (p.what.observe) conditions.update(p.what.observe());
    run.report(p.index, p.what.metric, samples, conditions, flags, p.start, p.spent_s);
    if (p.what.bytes > 0) {
      std::vector<double> rates;
      for (double s : samples) rates.push_back(p.what.bytes * p.what.share / s);
      run.report(p.index, "bandwidth_net", rates, conditions, flags, p.start, p.spent_s);
    }
    for (std::size_t m = 0; m < p.what.also.size(); ++m) {
      std::vector<double> of;
      for (const Block& b : p.blocks)
        if (!clean || b.marks == 0) of.push_back(b.also[m]);
      run.report(p.index, p.what.also[m], of, conditions, flags, p.start, p.spent_s);
    }
    run.finish(p.index, conditions);
    if (world.rank() == 0 && !world.oversubscribed()) usleep(kReading_us);
  };

  const auto give_up_on = [&](Progress& p) {
    const Absent why = run.out_of_budget();
    p.failure = why.what();
    p.what.enable = why.enable;
    finish(p);
  };

  for (Progress& p : all)
    if (p.what.missing && !p.resumed) finish(p);

  // Nothing is timed that was not seen to bring the right data.
  bool any_proven = false;
  for (Progress& p : all) {
    if (p.done) continue;
    if ((any_proven || any_block) && too_late(run)) {
      give_up_on(p);
      continue;
    }
    for (std::uint64_t iterations : {1u, 3u}) {
      if (p.what.proof && iterations > 1) break;  // a program's run is long, and each is proven
      if (p.what.mark && p.what.run)
        p.what.mark(++tag, true);
      else
        ++tag;
      check(MPI_Barrier(world.all()), "MPI_Barrier");
      if (p.what.run) p.what.run(iterations);
      if (p.what.passive) check(MPI_Barrier(world.all()), "MPI_Barrier");
      if (p.failure = wrong(p.what, tag, true); !p.failure.empty() || p.what.single) break;
    }
    if (!p.failure.empty()) {
      finish(p);
      continue;
    }
    any_proven = true;
    while (!p.what.single) {
      // Twice, since one that was disturbed is no measure of how many a block needs.
      double took = timed(p.what, p.iterations).block.seconds * static_cast<double>(p.iterations);
      if (took >= kBlock_s)
        took = std::min(took, timed(p.what, p.iterations).block.seconds * static_cast<double>(p.iterations));
      if (took >= 0.8 * kBlock_s || p.iterations >= kMostIterations) break;
      const double factor = took > 0 ? std::clamp(1.2 * kBlock_s / took, 1.5, 10.0) : 10.0;
      p.iterations =
          std::min(kMostIterations, static_cast<std::uint64_t>(static_cast<double>(p.iterations) * factor) + 1);
    }
  }

  std::mt19937_64 random(run.seed());
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto to_do = [](const Progress& p) { return !p.done; };
  while (std::any_of(all.begin(), all.end(), to_do)) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t at : order) {
      Progress& p = all[at];
      if (p.done) continue;
      if (p.blocks.empty() && any_block && too_late(run)) {
        give_up_on(p);
        continue;
      }
      if (p.start.empty()) p.start = utc_now();
      ++tag;
      if (p.what.mark && p.what.run) p.what.mark(tag, false);
      Agreed found = timed(p.what, p.iterations);
      if (p.failure = wrong(p.what, tag, false); !p.failure.empty()) {
        p.blocks.clear();
        finish(p);
        continue;
      }
      if (p.what.values) found.block.also = p.what.values();
      p.spent_s += found.block.seconds * static_cast<double>(p.iterations);
      p.blocks.push_back(found.block);
      any_block = true;
      if ((!tied && p.enough(percent)) || p.blocks.size() >= kMostSamples || found.told_s > end_s) finish(p);
      run.beat(p.what.metric);
    }
    if (tied && std::all_of(all.begin(), all.end(), [&](const Progress& p) { return p.done || p.enough(percent); }))
      for (Progress& p : all)
        if (!p.done) finish(p);
  }
  std::vector<double> medians;
  for (Progress& p : all) {
    if (p.resumed) {
      for (const auto& [values, marks] : run.earlier(p.index))  // rank 0 has them
        if (!values.empty()) p.blocks.push_back({values.front(), marks, {}, {}, 0});
      if (!p.blocks.empty()) {
        p.value = median(p.samples(p.only_clean()));
        if (const auto flags = p.flags(percent); p.what.flags) p.what.flags->insert(flags.begin(), flags.end());
      }
      const json told = world.tell(p.value);  // what is no number is null in JSON
      if (told.is_number()) p.value = told.get<double>();
    }
    medians.push_back(p.value);
  }
  return medians;
}

void Batch::add(Case what, double bytes, const std::function<Case()>& make) {
  World& world = World::get();
  double room = static_cast<double>(world.room());
  if (bytes > room / 2 && !held_.empty()) {
    measure_held(0.5 / static_cast<double>(rounds_));
    room = static_cast<double>(world.room());
  }
  try {
    const bool any = any_block || std::any_of(held_.begin(), held_.end(), [](const Case& c) { return !c.missing; });
    if (any && too_late(run_)) throw run_.out_of_budget();
    if (bytes > room)
      throw Absent("it needs " + std::to_string(static_cast<long long>(bytes) >> 20) + " MiB on each rank, " +
                       std::to_string(static_cast<long long>(room) >> 20) + " may be used",
                   "smaller messages, fewer ranks on a host, or more memory");
    what = world.all_or_none(make);
  } catch (const Absent& why) {
    const bool first = said_.insert(what.conditions.value("protocol", "") + why.what()).second;
    what.missing = first ? why.what() : "";
    what.enable = why.enable;
  }
  held_.push_back(std::move(what));
}

void Batch::measure_held(double share) {
  if (!std::exchange(begun_, true)) flags_->clear();
  for (Case& c : held_)
    if (!c.flags) c.flags = flags_;
  const auto medians = measure(run_, std::exchange(held_, {}), share);
  medians_.insert(medians_.end(), medians.begin(), medians.end());
}

std::vector<double> Batch::done() {
  measure_held(1.0 / static_cast<double>(rounds_));
  rounds_ -= rounds_ > 1 ? 1 : 0;
  begun_ = false;
  return std::exchange(medians_, {});
}

}  // namespace mm::comm

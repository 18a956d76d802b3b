/// The one loop that measures: rounds over points, a burst a visit, with everything that could spoil it watched.
///
/// Rounds, because noise comes in stretches: a point whose samples all fall into one bad second would look
/// precise and be wrong. Visited in turn, every point sees every stretch, and the shape of a curve does not
/// depend on when its parts were measured.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <thread>

#include "instrument.hpp"
#include "options.hpp"
#include "output.hpp"
#include "run_state.hpp"
#include "stats.hpp"
#include "topology.hpp"

namespace mm {
namespace {

// Marks of one sample; a share of marked samples becomes a flag of the point.
enum Mark : int { kMoved = 1, kSwitched = 2, kFaulted = 4, kSlowClock = 8, kDisturbed = 16 };

constexpr std::uint64_t kCanaryAdds = 1 << 16;  // about 20 us of work that touches no memory
constexpr double kSlow = 1.05;                  // canary this much over its best: the clock or the CPU was taken
constexpr int kMostSamples = 400;
constexpr double kRealTimeShare = 0.7;  // of wall time, well below the kernel's throttle at 0.95

struct Progress {
  Point point;
  std::size_t index = 0;
  std::vector<std::vector<double>> samples;  // by metric
  std::vector<int> marks;
  std::vector<double> canary;  // ratio to the best
  std::string start;
  double spent_s = 0, overhead = 0;
  bool done = false, resumed = false, shielded = false, wide = true;
  bool inside = false;  // the burst runs on the one member's thread; else it calls team->run itself
};

/// Holds the CPUs that do not take part, at real-time priority, while a burst runs.
class Holder {
 public:
  explicit Holder(const std::vector<int>& cpus) {
    for (int cpu : cpus) threads_.emplace_back([this, cpu] { hold(cpu); });
  }
  ~Holder() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  void hold(int cpu) {
    try {
      pin(cpu);
    } catch (const Failure&) {
      return;  // taken offline: nothing to hold
    }
    sched_param param{};
    param.sched_priority = 5;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) return;
    while (!stop_.load(std::memory_order_relaxed)) {
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
  }
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

double share_marked(const Progress& p, int mark) {
  if (p.marks.empty()) return 0;
  const auto n = std::count_if(p.marks.begin(), p.marks.end(), [&](int m) { return (m & mark) != 0; });
  return static_cast<double>(n) / static_cast<double>(p.marks.size());
}

/// Asks the kernel where the pages are and how large. Of many arenas a few, evenly: each answer reads all mappings.
void observe_arenas(const std::vector<std::shared_ptr<Arena>>& arenas, json& conditions,
                    std::vector<std::string>& flags) {
  constexpr std::size_t kMost = 8;
  const std::size_t step = (arenas.size() + kMost - 1) / kMost;
  double huge = 1, least_share = 1;
  std::vector<int> nodes;
  for (std::size_t i = 0; i < arenas.size(); i += step) {
    const Arena& arena = *arenas[i];
    const MemoryRequest& asked = arena.request();
    const double here = arena.huge_share();
    huge = std::min(huge, here);
    if (asked.pages == Pages::thp ? here < 0.95 && asked.bytes >= page_bytes(Pages::thp)
                                  : asked.pages == Pages::base && here > 0)
      flags.emplace_back("page_size");
    const auto shares = arena.node_shares();
    const auto most =
        std::max_element(shares.begin(), shares.end(), [](auto& a, auto& b) { return a.second < b.second; });
    nodes.push_back(most->first);
    least_share = std::min(least_share, most->second);
    if (asked.policy == Policy::node && (most->first != asked.node || most->second < 0.99))
      flags.emplace_back("misplaced");
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  conditions["huge_share"] = huge;
  conditions["observed_node"] = nodes.size() == 1 ? json(nodes.front()) : json(cpu_list(nodes));
  conditions["observed_node_share"] = least_share;
}

}  // namespace

void Run::absent(const std::string& metric, const json& conditions, const std::string& reason,
                 const std::string& enable) {
  state_.write_header(0);
  ++state_.absences;
  emit(json{{"type", "absent"},
            {"instrument", state_.description->name},
            {"metric", metric.empty() ? json(nullptr) : json(metric)},
            {"conditions", conditions.is_null() ? json::object() : conditions},
            {"reason", reason},
            {"enable", enable}});
}

std::shared_ptr<Arena> Run::arena(std::size_t bytes, Pages pages, int node, int touch_cpu, const std::string& metric,
                                  const json& conditions) {
  MemoryRequest request{bytes, pages, node >= 0 ? Policy::node : policy(), node, touch_cpu};
  if (node < 0 && request.policy == Policy::node) request.policy = Policy::local;
  try {
    return Arena::make(request);
  } catch (const Absent& why) {
    absent(metric, conditions, why.what(), why.enable);
    return nullptr;
  }
}

std::size_t Run::affordable_bytes(Pages pages, double share) const {
  constexpr std::size_t kTrial = std::size_t{16} << 20;
  const double begin_s = wall_s();
  // A pool of explicit pages may be spent to the last one.
  Arena::make({kTrial, pages == Pages::base ? pages : Pages::thp, Policy::local, -1, -1});
  const double rate = static_cast<double>(kTrial) / std::max(wall_s() - begin_s, 1e-6);
  return static_cast<std::size_t>(rate * left_s() * share);
}

std::shared_ptr<Team> Run::team(const std::vector<int>& cpus) {
  std::shared_ptr<Team>& team = state_.teams[cpus];
  if (!team) team = std::make_shared<Team>(cpus);
  return team;
}

void Run::release_teams() { state_.teams.clear(); }

void Run::allot(double share) {
  const double now = wall_s(), end = state_.started_s + budget_s();
  state_.budget_end_s = now + std::max(0.0, end - now) * share;
}

void Run::beat(const std::string& note) {
  const double now = wall_s();
  if (now - state_.last_beat_s < 1) return;
  state_.last_beat_s = now;
  state_.write_header(0);
  emit(json{{"type", "progress"},
            {"done", state_.points + state_.resumed},
            {"total", std::max(state_.next_index, state_.points + state_.resumed)},
            {"elapsed_s", now - state_.started_s},
            {"remaining_s", std::max(0.0, state_.budget_end_s - now)},
            {"note", note}});
}

json Run::State::result(const std::string& metric, const std::vector<double>& samples, json conditions,
                        const std::vector<std::string>& flags, json made) const {
  const auto& metrics = description->metrics;
  const auto m = std::find_if(metrics.begin(), metrics.end(), [&](const Metric& x) { return x.name == metric; });
  if (m == metrics.end()) throw std::logic_error("metric not described: " + metric);
  const auto interval = median_interval(samples);
  return {{"type", "result"},
          {"schema", 1},
          {"source", "host"},
          {"machine", machine},
          {"instrument", description->name},
          {"metric", metric},
          {"unit", m->unit},
          {"better", better_name(m->better)},
          {"value", median(samples)},
          {"interval", interval ? json::array({interval->first, interval->second}) : json(nullptr)},
          {"samples", samples},
          {"flags", flags},
          {"conditions", std::move(conditions)},
          {"provenance", std::move(made)}};
}

json Run::State::identity(const json& conditions) const {
  json key;
  for (const std::string& k : description->identity)
    if (conditions.contains(k)) key[k] = conditions[k];
  return key;
}

void Run::derive(const std::string& metric, const std::vector<double>& samples, json conditions,
                 const std::vector<std::string>& flags, const std::string& derived_from) {
  conditions["derived_from"] = derived_from;
  const json line = state_.result(metric, samples, std::move(conditions), flags, state_.provenance(utc_now(), 0));
  ++state_.results;
  emit(line);
}

double Run::last_call_s() const {
  // Something is to come of it, if only late; then little more.
  const bool any = state_.sampled || state_.results > 0 || state_.resumed > 0;
  return state_.started_s + budget_s() + (any ? std::clamp(0.5 * budget_s(), 0.5, 10.0) : std::max(budget_s(), 1.0));
}

Absent Run::out_of_budget() const {
  return Absent("the budget of " + brief(budget_s()) + " s ended before its first sample", "a larger --budget");
}

double Run::left_s() const { return std::max(0.0, state_.started_s + budget_s() - wall_s()); }

std::pair<std::size_t, bool> Run::next_point() {
  const std::size_t index = state_.next_index++;
  const bool finished = state_.earlier.finished.contains(index);
  state_.resumed += finished ? 1 : 0;
  return {index, finished};
}

std::vector<std::pair<Values, int>> Run::earlier(std::size_t point) const {
  const auto found = state_.earlier.samples.find(point);
  return found == state_.earlier.samples.end() ? std::vector<std::pair<Values, int>>{} : found->second;
}

void Run::processes(const json& all) { state_.processes = all; }

void Run::sample(std::size_t point, const Values& values, int marks, double begun_s) {
  state_.write_header(0);
  json line = {{"type", "sample"}, {"point", point}, {"values", values}, {"marks", marks}};
  if (begun_s >= 0) line["begun_s"] = begun_s;
  emit(line);
}

void Run::report(std::size_t point, const std::string& metric, const std::vector<double>& samples, json conditions,
                 const std::vector<std::string>& flags, const std::string& start, double spent_s) {
  state_.write_header(0);
  json line = state_.result(metric, samples, std::move(conditions), flags, state_.provenance(start, spent_s));
  line["point"] = point;
  ++state_.results;
  emit(line);
}

void Run::finish(std::size_t point, const json& conditions) {
  emit(json{{"type", "point"}, {"index", point}, {"key", state_.identity(conditions)}});
  ++state_.points;
}

std::vector<Outcome> Run::measure(std::vector<Point> points) {
  State& s = state_;
  const double percent = real("interval_percent");
  const std::string shield = text("shield");
  const std::vector<int> all_cpus = cpus();
  const double begun = wall_s();

  std::vector<Progress> all;
  for (Point& point : points) {
    Progress p;
    p.inside = point.team == nullptr;
    if (p.inside && !point.missing) point.team = team({point.cpu >= 0 ? point.cpu : all_cpus.front()});
    p.index = s.next_index++;
    p.samples.resize(point.metrics.size());
    if (const auto old = s.earlier.samples.find(p.index); old != s.earlier.samples.end())
      for (const auto& [values, marks] : old->second)
        if (values.size() == point.metrics.size()) {
          for (std::size_t m = 0; m < values.size(); ++m) p.samples[m].push_back(values[m]);
          p.marks.push_back(marks);
        }
    p.resumed = s.earlier.finished.contains(p.index) && !p.samples.empty() && !p.samples[0].empty();
    p.done = p.resumed;
    s.resumed += p.resumed ? 1 : 0;
    p.point = std::move(point);
    all.push_back(std::move(p));
  }
  s.write_header(all.size());

  const CpuTimes before = read_cpu_times();
  const auto finish = [&](Progress& p) {
    p.done = true;
    if (p.point.missing || p.samples.empty() || p.samples[0].empty()) {
      const Absent why = p.point.missing.value_or(out_of_budget());
      absent(p.point.metrics.empty() ? "" : p.point.metrics[0], p.point.conditions, why.what(), why.enable);
      return;
    }
    json conditions = p.point.conditions;
    std::vector<std::string> flags;
    const Point& point = p.point;
    if (point.observe) {
      const json observed = point.observe();  // named: a range-for does not keep a temporary's temporary alive
      for (const auto& [key, value] : observed.items()) conditions[key] = value;
    }
    if (point.check)
      for (const std::string& f : point.check()) flags.push_back(f);
    if (!point.arenas.empty()) observe_arenas(point.arenas, conditions, flags);
    if (!conditions.contains("observed_cpus")) conditions["observed_cpus"] = cpu_list(point.team->cpus());
    const CpuTimes now = read_cpu_times();
    double stolen = 0;
    for (int cpu : point.team->cpus()) {
      const auto c = static_cast<std::size_t>(cpu);
      if (c < now.steal.size() && c < before.steal.size())
        stolen = std::max(stolen, static_cast<double>(now.steal[c] - before.steal[c]) / ticks_per_second() /
                                      std::max(wall_s() - begun, 0.01));
    }
    conditions["steal_share"] = stolen;
    conditions["canary_ratio"] = p.canary.empty() ? json(nullptr) : json(median(p.canary));
    conditions["disturbed_share"] = share_marked(p, kSwitched | kDisturbed);
    conditions["load_1min"] = load_1min();
    conditions["shield"] = p.shielded ? (shield == "hold" ? "fifo+hold" : "fifo") : "none";
    // The accounting of stolen time has a grain of 10 ms: a share counts only once it is more than one grain.
    if (stolen > 0.02 && stolen * (wall_s() - begun) > 0.015) flags.emplace_back("stolen");
    if (share_marked(p, kMoved) > 0) flags.emplace_back("migrated");
    if (share_marked(p, kFaulted) > 0.25) flags.emplace_back("faulted");
    if (share_marked(p, kSlowClock) > 0.5) flags.emplace_back("throttled");
    if (share_marked(p, kSwitched | kDisturbed) > 0.25 || relative_mad(p.samples[0]) > 0.1) flags.emplace_back("noisy");
    if (p.wide) flags.emplace_back("truncated");
    std::vector<int> distinct = point.team->cpus();
    std::sort(distinct.begin(), distinct.end());
    if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) flags.emplace_back("oversubscribed");
    std::sort(flags.begin(), flags.end());
    flags.erase(std::unique(flags.begin(), flags.end()), flags.end());

    const json provenance = s.provenance(p.start, p.spent_s);
    for (std::size_t m = 0; m < point.metrics.size(); ++m) {
      json line = s.result(point.metrics[m], p.samples[m], conditions, flags, provenance);
      line["point"] = p.index;
      ++s.results;
      emit(line);
    }
    emit(json{{"type", "point"}, {"index", p.index}, {"key", s.identity(conditions)}});
    ++s.points;
    s.worst_overhead = std::max(s.worst_overhead, p.overhead);
  };

  const auto canary = [&](Team& t) {
    // Every member does the same fixed work; the slowest of them tells whether one was disturbed.
    const auto& spans = t.run([](int) { keep(dependent_adds(kCanaryAdds)); });
    double worst = 1;
    for (int i = 0; i < t.size(); ++i) {
      const auto& span = spans[static_cast<std::size_t>(i)];
      const double took = seconds(span.end - span.begin);
      auto [best, fresh] = s.best_canary_s.emplace(t.cpus()[static_cast<std::size_t>(i)], took);
      best->second = std::min(best->second, took);
      worst = std::max(worst, took / best->second);
    }
    return worst;
  };

  const auto visit = [&](Progress& p) {
    const Point& point = p.point;
    Team& t = *point.team;
    const double came = wall_s();
    if (p.start.empty()) p.start = utc_now();
    if (point.prepare) {
      if (p.inside)
        t.run([&](int) { point.prepare(); });
      else
        point.prepare();
    }
    std::unique_ptr<Holder> holder;
    const bool real_time = shield != "off" && point.shield && t.real_time(true);
    if (real_time && shield == "hold") {
      std::vector<int> others;
      for (int cpu : all_cpus)
        if (std::find(t.cpus().begin(), t.cpus().end(), cpu) == t.cpus().end()) others.push_back(cpu);
      holder = std::make_unique<Holder>(others);
    }
    const double rt_from = wall_s();
    const double ratio_before = canary(t);
    Values values;
    int marks = 0;
    std::vector<Team::Span> spans;
    double burst_s = 0;
    try {
      const double canary_s = t.elapsed_s(), from = wall_s();
      if (p.inside) {
        spans = t.run([&](int) { values = point.burst(); });
      } else {
        values = point.burst();
        spans = t.last();
      }
      // A library with threads of its own leaves the team alone, whose last run is still the canary's.
      burst_s = t.elapsed_s() != canary_s ? t.elapsed_s() : wall_s() - from;
    } catch (...) {
      t.real_time(false);
      throw;
    }
    const double ratio_after = canary(t);
    holder.reset();
    t.real_time(false);
    const double rt_s = wall_s() - rt_from;
    for (const Team::Span& span : point.timed_inside ? spans : std::vector<Team::Span>{}) {
      if (span.moved) marks |= kMoved;
      if (span.switched > 0) marks |= kSwitched;
      if (span.faults > 0) marks |= kFaulted;
    }
    if (ratio_before > kSlow && ratio_after > kSlow) marks |= kSlowClock;
    if (std::max(ratio_before, ratio_after) > 1.5) marks |= kDisturbed;
    p.canary.push_back(std::max(ratio_before, ratio_after));
    p.shielded = p.shielded || real_time;
    if (values.size() != point.metrics.size()) throw std::logic_error("a burst returned the wrong number of values");
    for (double v : values)
      if (!std::isfinite(v) || v < 0) throw Failure("a sample is not a number or below zero");
    for (std::size_t m = 0; m < values.size(); ++m) p.samples[m].push_back(values[m]);
    p.marks.push_back(marks);
    // What is computed once is not timed: a residual takes as long as it takes.
    if (burst_s > 0 && !p.point.once) p.overhead = std::max(p.overhead, 2 * clock_info().overhead_s / burst_s);
    emit(json{{"type", "sample"}, {"point", p.index}, {"values", values}, {"marks", marks}});
    p.spent_s += wall_s() - came;
    if (real_time) {
      // Let the others run: over any stretch real-time work stays below its share.
      s.burst_s += rt_s;
      const double owed = s.burst_s / kRealTimeShare - (wall_s() - s.window_s);
      if (s.burst_s > 0.1) {
        if (owed > 0) usleep(static_cast<useconds_t>(owed * 1e6));
        s.burst_s = 0;
        s.window_s = wall_s();
      }
    } else {
      s.burst_s = 0;
      s.window_s = wall_s();
    }
  };

  s.window_s = wall_s();
  // A point may be finished in a few milliseconds, and a machine is rarely quiet or busy for so short a time:
  // the samples of every point span at least this long.
  const double least_span_s = std::min(0.4, budget_s() / 10);
  for (bool more = true; more;) {
    more = false;
    for (Progress& p : all) {
      if (p.done) continue;
      const bool first = p.samples.empty() || p.samples[0].empty();
      if (wall_s() > s.budget_end_s && !first) {
        finish(p);
        continue;
      }
      // Even an exhausted budget gives a point its one sample, and the first one does get it; but late is late.
      if (p.point.missing || (first && wall_s() > last_call_s() && s.sampled)) {
        finish(p);
        continue;
      }
      s.sampled = true;
      try {
        visit(p);
      } catch (const Absent& why) {
        p.point.missing = why;
        for (auto& m : p.samples) m.clear();
        finish(p);
        continue;
      } catch (const Failure& why) {
        p.point.missing = Absent(why.what());
        for (auto& m : p.samples) m.clear();
        finish(p);
        continue;
      }
      const auto n = static_cast<int>(p.samples[0].size());
      if (p.point.once) {
        p.wide = n < p.point.least_samples;
      } else if (n >= p.point.least_samples && wall_s() - begun >= least_span_s) {
        const std::size_t narrow = p.point.width_of_first_only ? 1 : p.samples.size();
        p.wide = !std::all_of(p.samples.begin(), p.samples.begin() + static_cast<std::ptrdiff_t>(narrow),
                              [&](const auto& m) { return inside_width(m, percent); });
      }
      if (!p.wide || n >= kMostSamples) finish(p);
      more = more || !p.done;
      beat(p.point.metrics.empty() ? "" : p.point.metrics[0]);
    }
  }

  std::vector<Outcome> outcomes;
  for (const Progress& p : all)
    for (std::size_t m = 0; m < p.samples.size(); ++m)
      if (!p.samples[m].empty()) {
        Outcome o{p.point.conditions, p.point.metrics[m], p.samples[m], median(p.samples[m]), {}};
        if (share_marked(p, kMoved) > 0) o.flags.emplace_back("migrated");
        if (share_marked(p, kSwitched | kDisturbed) > 0.25) o.flags.emplace_back("noisy");
        outcomes.push_back(std::move(o));
      }
  return outcomes;
}

std::uint64_t iterations_for(double target_s, const std::function<double(std::uint64_t)>& batch_s, std::uint64_t start,
                             std::uint64_t most) {
  std::uint64_t n = std::max<std::uint64_t>(1, start);
  for (;;) {
    const double took = batch_s(n);
    if (took >= target_s || n >= most) return n;
    // Grow by what is missing, but never more than tenfold: the first batch may have been disturbed.
    const double factor = took > 0 ? std::clamp(1.2 * target_s / took, 1.5, 10.0) : 10.0;
    n = std::min(most, static_cast<std::uint64_t>(static_cast<double>(n) * factor) + 1);
  }
}

}  // namespace mm

#include "base/harness/rounds.hpp"

#include <algorithm>
#include <cmath>

#include "base/harness/output.hpp"
#include "base/harness/stats.hpp"
#include "base/resources/shield.hpp"

namespace mm {
namespace {

constexpr std::uint64_t kReferenceAdds = 1 << 16;  // about 20 us of work without memory accesses
constexpr double kDisturbedRatio = 1.5;            // no clock slows down that much during work of the same kind
constexpr int kMaxSamples = 400;

}  // namespace

Rounds::Rounds(Run& run, Run::State& state, std::vector<Point> points)
    : run_(run),
      state_(state),
      percent_(run.real("interval_percent")),
      shield_(run.text("shield")),
      cpus_(run.cpus()),
      begun_s_(wall_s()),
      min_span_s_(std::min(0.4, run.budget_s() / 10)) {
  for (Point& point : points) points_.push_back(begin(std::move(point)));
  state_.write_header(points_.size());
}

PointProgress Rounds::begin(Point point) {
  PointProgress p;
  p.inside = point.team == nullptr;
  if (p.inside && !point.missing) point.team = run_.team({point.cpu >= 0 ? point.cpu : cpus_.front()});
  p.index = state_.next_index++;
  p.samples.resize(point.metrics.size());
  if (const auto earlier = state_.earlier.samples.find(p.index); earlier != state_.earlier.samples.end())
    for (const auto& [values, marks] : earlier->second)
      if (values.size() == point.metrics.size()) {
        for (std::size_t m = 0; m < values.size(); ++m) p.samples[m].push_back(values[m]);
        p.marks.push_back(marks);
      }
  p.done = state_.earlier.finished.contains(p.index) && !p.without_samples();
  if (p.done) p.flags = state_.earlier.flags[p.index];
  state_.resumed += p.done ? 1 : 0;
  p.point = std::move(point);
  return p;
}

void Rounds::run() {
  other_.start();
  state_.real_time.start();
  for (bool has_unfinished = true; has_unfinished;) {
    has_unfinished = false;
    for (PointProgress& p : points_) {
      if (p.done) continue;
      step(p);
      has_unfinished = has_unfinished || !p.done;
    }
  }
}

void Rounds::step(PointProgress& p) {
  const bool first = p.without_samples();
  if (wall_s() > state_.budget_end_s && !first) return finish(p);
  // A point without a sample may still take one shortly after the budget ends; the first point always takes one.
  if (p.point.missing || (first && wall_s() > run_.last_call_s() && state_.sampled)) return finish(p);
  state_.sampled = true;
  try {
    visit(p);
  } catch (const Absent& error) {
    return fail(p, error);
  } catch (const Failure& error) {
    return fail(p, Absent(error.what()));
  }
  p.wide = p.wide && !narrow(p);
  if (!p.wide || static_cast<int>(p.samples[0].size()) >= kMaxSamples) finish(p);
  run_.beat(p.point.metrics.empty() ? "" : p.point.metrics[0]);
}

/// Takes and records one sample of a point.
void Rounds::visit(PointProgress& p) {
  const Point& point = p.point;
  const double visit_s = wall_s();
  if (p.start.empty()) p.start = utc_now();
  if (point.prepare) {
    if (p.inside)
      point.team->run([&](int) { point.prepare(); });
    else
      point.prepare();
  }
  const Sample sample = take_sample(p);
  p.clock_ratios.push_back(sample.clock_ratio);
  p.shielded = p.shielded || sample.real_time_s > 0;
  if (sample.values.size() != point.metrics.size())
    throw std::logic_error("a burst returned the wrong number of values");
  for (const double v : sample.values)
    if (!std::isfinite(v) || v < 0) throw Failure("a sample is negative or not a finite number");
  for (std::size_t m = 0; m < sample.values.size(); ++m) p.samples[m].push_back(sample.values[m]);
  p.marks.push_back(sample.marks);
  // Values that are computed once, such as residuals, are not timed.
  if (sample.burst_s > 0 && !point.once)
    p.overhead = std::max(p.overhead, 2 * clock_info().overhead_s / sample.burst_s);
  emit(json{{"type", "sample"}, {"point", p.index}, {"values", sample.values}, {"marks", sample.marks}});
  p.spent_s += wall_s() - visit_s;
  state_.real_time.ran(sample.real_time_s);
}

/// Runs one burst inside the shield, between two runs of the reference loop.
Rounds::Sample Rounds::take_sample(const PointProgress& p) {
  const Point& point = p.point;
  Team& team = *point.team;
  Sample sample;
  std::vector<Team::Span> spans;
  Shield shield(team, point.shield ? shield_ : "off", cpus_);
  const double before = reference_ratio(team);
  const double reference_s = team.elapsed_s(), burst_begin_s = wall_s();
  if (p.inside) {
    spans = team.run([&](int) { sample.values = point.burst(); });
  } else {
    sample.values = point.burst();
    spans = team.last();
  }
  // If the burst does not use the team (a library with its own threads), the last run of the team is still the
  // reference loop, and the wall-clock time counts.
  sample.burst_s = team.elapsed_s() != reference_s ? team.elapsed_s() : wall_s() - burst_begin_s;
  const double after = reference_ratio(team);
  sample.real_time_s = shield.release();
  if (point.timed_inside)
    for (const Team::Span& span : spans) {
      if (span.moved) sample.marks |= kMoved;
      if (span.switched > 0) sample.marks |= kSwitched;
      if (span.faults > 0) sample.marks |= kFaulted;
    }
  if (std::max(before, after) > kDisturbedRatio) sample.marks |= kDisturbed;
  sample.clock_ratio = std::min(before, after);  // an interruption of one loop is not a change of the clock
  return sample;
}

/// Runs the reference loop, which is the same fixed work for each member of the team. Returns the largest ratio of a
/// member's time to the best time so far on the same CPU, which shows whether any member was disturbed.
double Rounds::reference_ratio(Team& team) {
  const auto& spans = team.run([](int) { keep(dependent_adds(kReferenceAdds)); });
  double worst = 1;
  for (int i = 0; i < team.size(); ++i) {
    const auto& span = spans[static_cast<std::size_t>(i)];
    const double elapsed_s = seconds(span.end - span.begin);
    auto [best, fresh] = state_.best_reference_s.emplace(team.cpus()[static_cast<std::size_t>(i)], elapsed_s);
    best->second = std::min(best->second, elapsed_s);
    worst = std::max(worst, elapsed_s / best->second);
  }
  return worst;
}

/// Returns whether a point has converged.
bool Rounds::narrow(const PointProgress& p) const {
  const int sample_count = static_cast<int>(p.samples[0].size());
  const bool has_enough = sample_count >= p.point.least_samples;
  if (p.point.once || !has_enough) return has_enough;
  if (wall_s() - begun_s_ < min_span_s_ && sample_count < kMaxSamples) return false;
  const auto metrics = static_cast<std::ptrdiff_t>(p.point.width_of_first_only ? 1 : p.samples.size());
  return std::all_of(p.samples.begin(), p.samples.begin() + metrics,
                     [&](const auto& samples) { return inside_width(samples, percent_); });
}

void Rounds::fail(PointProgress& p, const Absent& error) {
  p.point.missing = error;
  for (auto& samples : p.samples) samples.clear();
  finish(p);
}

/// Writes the results of a point, or the reason why it has no results.
void Rounds::finish(PointProgress& p) {
  p.done = true;
  const Point& point = p.point;
  if (point.missing || p.without_samples()) {
    const Absent error = point.missing.value_or(run_.out_of_budget());
    run_.absent(point.metrics.empty() ? "" : point.metrics[0], point.conditions, error.what(), error.enable);
    return;
  }
  auto [conditions, flags] = observed(p, shield_, percent_, other_);
  const json provenance = state_.provenance(p.start, p.spent_s);
  for (std::size_t m = 0; m < point.metrics.size(); ++m) {
    json line = state_.result(point.metrics[m], p.samples[m], conditions, flags, provenance);
    line["point"] = p.index;
    ++state_.results;
    emit(line);
  }
  p.flags = std::move(flags);
  run_.finish(p.index, conditions);
  state_.worst_overhead = std::max(state_.worst_overhead, p.overhead);
}

std::vector<Outcome> Rounds::outcomes() const {
  std::vector<Outcome> outcomes;
  for (const PointProgress& p : points_)
    for (std::size_t m = 0; m < p.samples.size(); ++m)
      if (!p.samples[m].empty())
        outcomes.push_back({p.point.conditions, p.point.metrics[m], p.samples[m], median(p.samples[m]), p.flags});
  return outcomes;
}

}  // namespace mm

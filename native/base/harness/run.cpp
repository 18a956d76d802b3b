/// Services of Run beside the rounds: memory, teams, the budget, and the lines of output.
#include <algorithm>
#include <cstdio>

#include "base/harness/instrument.hpp"
#include "base/harness/output.hpp"
#include "base/harness/rounds.hpp"
#include "base/harness/run_state.hpp"
#include "base/harness/stats.hpp"
#include "base/text.hpp"

namespace mm {
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
  } catch (const Absent& error) {
    absent(metric, conditions, error.what(), error.enable);
    return nullptr;
  }
}

std::size_t Run::affordable_bytes(Pages pages, double share) const {
  constexpr std::size_t kTrial = std::size_t{16} << 20;
  const double begin_s = wall_s();
  // Explicit huge pages are not used for the trial, since the point may need the whole pool.
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
                 std::vector<std::string> flags, const std::string& derived_from) {
  conditions["derived_from"] = derived_from;
  const json line = state_.result(metric, samples, std::move(conditions), distinct(std::move(flags)),
                                  state_.provenance(utc_now(), 0));
  ++state_.results;
  emit(line);
}

double Run::last_call_s() const {
  // The first point gets more time, so that the run has at least one result.
  const bool has_results = state_.sampled || state_.results > 0 || state_.resumed > 0;
  return state_.started_s + budget_s() +
         (has_results ? std::clamp(0.1 * budget_s(), 0.3, 10.0) : std::max(budget_s(), 1.0));
}

Absent Run::out_of_budget() const {
  return Absent("the budget of " + four_digits(budget_s()) + " s ended before its first sample", "a larger --budget");
}

double Run::left_s() const { return std::max(0.0, state_.started_s + budget_s() - wall_s()); }

std::pair<std::size_t, bool> Run::next_point() {
  const std::size_t index = state_.next_index++;
  const bool finished = state_.earlier.finished.contains(index);
  state_.resumed += finished ? 1 : 0;
  return {index, finished};
}

std::vector<std::pair<Values, int>> Run::earlier(std::size_t point) const {
  const auto entry = state_.earlier.samples.find(point);
  return entry == state_.earlier.samples.end() ? std::vector<std::pair<Values, int>>{} : entry->second;
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
  Rounds rounds(*this, state_, std::move(points));
  rounds.run();
  return rounds.outcomes();
}

constexpr double kInterrupted = 20;  // times the target; interruptions rarely make a batch take that long

std::uint64_t iterations_for(double target_s, const std::function<double(std::uint64_t)>& batch_s, std::uint64_t start,
                             std::uint64_t max) {
  std::uint64_t n = std::max<std::uint64_t>(1, start);
  for (;;) {
    double elapsed_s = batch_s(n);
    // An interruption can last longer than the target, so a batch that seems long enough is timed again. Interruptions
    // seldom last many times as long, so a batch that takes that long is not timed again: doing so would cost a slow
    // machine its budget.
    if (elapsed_s >= target_s && elapsed_s < kInterrupted * target_s) elapsed_s = std::min(elapsed_s, batch_s(n));
    if (elapsed_s >= target_s || n >= max) return n;
    // Grow in proportion, but at most tenfold: the batch may have been disturbed.
    const double factor = elapsed_s > 0 ? std::clamp(1.2 * target_s / elapsed_s, 1.5, 10.0) : 10.0;
    n = std::min(max, static_cast<std::uint64_t>(static_cast<double>(n) * factor) + 1);
  }
}

void time_batches(Point& point, double target_s, const std::function<double(std::uint64_t)>& batch_s,
                  const std::function<Values(double n, double took_s)>& values, std::uint64_t start) {
  const auto n = std::make_shared<std::uint64_t>(0);
  point.prepare = [=] {
    if (*n == 0) *n = iterations_for(target_s, batch_s, start);
  };
  point.burst = [=] { return values(static_cast<double>(*n), batch_s(*n)); };
}

}  // namespace mm

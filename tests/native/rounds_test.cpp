/// Rounds over points: how many samples each takes, what ends it, what is written of it, and under which conditions.
#include "base/harness/rounds.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/harness/conditions.hpp"
#include "base/harness/run_state.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"

namespace mm {
namespace {

using Flags = std::vector<std::string>;

const Description kDescription{.name = "test",
                               .summary = "a test",
                               .detail = "",
                               .source = "",
                               .spoils = {},
                               .needs = {},
                               .parameters = {},
                               .metrics = {{"a", "first", "s", Better::lower}, {"b", "second", "1", Better::higher}},
                               .identity = {"k"}};

constexpr double kBurst_s = 2e-4;  // so that 400 bursts, the most, span a tenth of a budget of 0.5 s

std::string written(const std::function<void()>& write) {
  testing::internal::CaptureStdout();
  write();
  return testing::internal::GetCapturedStdout();
}

class RoundsOf : public testing::Test {
 protected:
  RoundsOf() {
    state.description = &kDescription;
    state.parameters = common_parameters(kDescription);
    for (const Parameter& p : state.parameters) state.values[p.name] = p.default_value;
    state.values["shield"] = "off";
    within("0.5s");
  }
  void within(const std::string& budget) {
    for (auto& [name, value] : state.values)
      if (name.starts_with("budget")) value = budget;
    state.started_s = wall_s();
    state.budget_end_s = state.started_s + run.budget_s();
  }
  /// A point of metric a whose bursts return these values, the last one again and again.
  Point point(std::vector<double> values, const std::string& k = "x") {
    Point p;
    p.conditions = {{"k", k}};
    p.metrics = {"a"};
    p.burst = [this, k, values, n = std::size_t{0}]() mutable {
      for (const double from_s = wall_s(); wall_s() - from_s < kBurst_s;) {}
      visits += k;
      return Values{values[std::min(n++, values.size() - 1)]};
    };
    return p;
  }
  std::vector<Outcome> measure(std::vector<Point> points) {
    std::vector<Outcome> outcomes;
    const std::string text = written([&] { outcomes = run.measure(std::move(points)); });
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      lines.push_back(json::parse(text.substr(at, end - at)));
    return outcomes;
  }
  std::vector<json> all(const std::string& type) const {
    std::vector<json> found;
    for (const json& line : lines)
      if (line.at("type") == type) found.push_back(line);
    return found;
  }

  mm::Run::State state;
  mm::Run run{state};
  std::string visits;
  std::vector<json> lines;
};

bool has(const json& flags, const std::string& flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::vector<double> alternating(double low, double high) {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(i % 2 == 0 ? low : high);
  return values;
}

TEST_F(RoundsOf, PointsAreVisitedInTurn) {
  Point a = point({1}, "a"), b = point({2}, "b");
  a.least_samples = b.least_samples = 3;
  a.once = b.once = true;
  const auto outcomes = measure({a, b});
  EXPECT_EQ(visits, "ababab");
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].samples, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(outcomes[1].value, 2);
  EXPECT_EQ(outcomes[1].conditions.at("k"), "b");
  EXPECT_EQ(outcomes[1].metric, "a");
}

// The samples of a point span a tenth of the budget, or 0.4 s, even if all are equal.
TEST_F(RoundsOf, APointEndsWhereItsIntervalIsNarrow) {
  const double from_s = wall_s();
  const auto outcomes = measure({point({3})});
  EXPECT_GE(wall_s() - from_s, 0.05);
  EXPECT_GE(outcomes[0].samples.size(), 7U);
  EXPECT_EQ(outcomes[0].value, 3);
  EXPECT_EQ(all("result")[0].at("conditions").at("interval_asked"), 0.02);
}

// A wide interval is a property of the value, which its reader can see, and no violated condition.
TEST_F(RoundsOf, APointOfManyWideSamplesEndsWithoutAFlag) {
  within("100s");
  const auto outcomes = measure({point(alternating(1, 9))});
  EXPECT_EQ(outcomes[0].samples.size(), 400U);
  EXPECT_EQ(outcomes[0].value, 5);
  EXPECT_EQ(all("sample").size(), 400U);
}

TEST_F(RoundsOf, OnlyTheFirstMetricNeedsANarrowInterval) {
  std::vector<std::size_t> samples;
  double begin_s = 0;
  for (const bool first_only : {true, false}) {
    lines.clear();
    within("5s");
    begin_s = wall_s();
    Point p = point({1});
    p.metrics = {"a", "b"};
    p.burst = [n = 0]() mutable {
      usleep(3000);  // so that a tenth of the budget has passed before the most samples are taken
      return Values{1, n++ % 2 == 0 ? 1.0 : 9.0};
    };
    p.width_of_first_only = first_only;
    const auto outcomes = measure({p});
    ASSERT_EQ(outcomes.size(), 2U);
    EXPECT_EQ(outcomes[1].metric, "b");
    samples.push_back(outcomes[1].samples.size());
    EXPECT_EQ(all("result")[1].at("unit"), "1");
  }
  // On a busy machine, the second run may spend its whole budget on few samples, which also shows that it went on.
  EXPECT_TRUE(samples[0] < samples[1] || wall_s() - begin_s >= 5) << samples[0] << " and " << samples[1];
}

TEST_F(RoundsOf, LinesOfAPoint) {
  Point p = point({1, 2, 4});
  p.once = true;
  p.least_samples = 3;
  int prepared = 0;
  p.prepare = [&] { ++prepared; };
  p.observe = [] { return json{{"seen", 7}}; };
  p.check = [] { return Flags{"unverified", "unverified"}; };
  measure({p});
  EXPECT_EQ(prepared, 3);
  EXPECT_EQ(all("header").size(), 1U);
  EXPECT_EQ(all("header")[0].at("points"), 1);
  const auto samples = all("sample");
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[1].at("values"), json({2.0}));
  EXPECT_EQ(samples[1].at("point"), 0);
  EXPECT_GE(samples[1].at("marks"), 0);
  const json result = all("result").at(0);
  EXPECT_EQ(result.at("samples"), json({1.0, 2.0, 4.0}));
  EXPECT_EQ(result.at("value"), 2);
  EXPECT_EQ(result.at("point"), 0);
  EXPECT_EQ(result.at("conditions").at("k"), "x");
  EXPECT_EQ(result.at("conditions").at("seen"), 7);
  EXPECT_EQ(result.at("conditions").at("shield"), "none");
  EXPECT_EQ(result.at("conditions").at("observed_cpus"), std::to_string(run.cpus().front()));
  EXPECT_GE(result.at("conditions").at("canary_ratio"), 1);
  EXPECT_GE(result.at("provenance").at("duration_s"), 0);
  EXPECT_FALSE(result.at("provenance").at("start").get<std::string>().empty());
  EXPECT_EQ(std::count(result.at("flags").begin(), result.at("flags").end(), "unverified"), 1);
  EXPECT_EQ(all("point").at(0).at("key"), json({{"k", "x"}}));
  EXPECT_EQ(state.results, 1U);
  EXPECT_EQ(state.points, 1U);
  EXPECT_EQ(state.worst_overhead, 0) << "what is computed once is not timed";
  measure({p});
  EXPECT_EQ(all("result").at(1).at("point"), 1) << "numbers go on";
}

TEST_F(RoundsOf, OverheadIsTheShareOfReadingTheClock) {
  measure({point({1})});
  EXPECT_GT(state.worst_overhead, 0);
}

TEST_F(RoundsOf, APointThatFailsIsAbsentAndTheOthersGoOn) {
  within("60s");
  const auto throwing = [this](const std::function<void()>& fail) {
    Point p = point({1}, "bad");
    p.burst = [n = 0, fail]() mutable {
      if (n++ == 1) fail();
      return Values{1};
    };
    return p;
  };
  Point good = point({1}, "good"), missing = point({1}, "missing"), negative = point({1, -1}, "negative"),
        infinite = point({std::numeric_limits<double>::infinity()}, "infinite");
  good.once = missing.once = true;
  good.least_samples = 3;
  missing.missing = Absent("not here", "another machine");
  const auto outcomes = measure({throwing([] { throw Absent("no counter", "root"); }),
                                 throwing([] { throw Failure("wrong result"); }), missing, negative, infinite, good});
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].conditions.at("k"), "good");
  EXPECT_EQ(visits.find("missing"), std::string::npos);
  const auto absent = all("absent");
  ASSERT_EQ(absent.size(), 5U);
  std::vector<std::string> reasons;
  for (const json& line : absent) reasons.push_back(line.at("reason"));
  EXPECT_EQ(reasons[0], "not here");  // in the first round, as that of the infinite value
  EXPECT_NE(reasons[1].find("finite"), std::string::npos);
  EXPECT_EQ(reasons[2], "no counter");
  EXPECT_EQ(absent[2].at("enable"), "root");
  EXPECT_EQ(reasons[3], "wrong result");
  EXPECT_NE(reasons[4].find("negative"), std::string::npos);
  EXPECT_EQ(absent[2].at("metric"), "a");
  EXPECT_EQ(all("result").size(), 1U);
}

TEST_F(RoundsOf, ABurstOfTheWrongNumberOfValuesIsABug) {
  Point p = point({1});
  p.metrics = {"a", "b"};
  EXPECT_THROW(measure({p}), std::logic_error);
  testing::internal::GetCapturedStdout();
}

// After the end of the budget, a point gets one sample, but not much later.
TEST_F(RoundsOf, TheBudgetEndsPointsAfterTheirFirstSample) {
  within("100s");
  state.started_s -= 101, state.budget_end_s -= 101;
  EXPECT_EQ(measure({point({1}, "a"), point({2}, "b")}).size(), 2U);
  EXPECT_EQ(visits, "ab");
  visits.clear(), lines.clear();
  state.started_s -= 1000, state.budget_end_s -= 1000;
  state.sampled = false;
  EXPECT_EQ(measure({point({1}, "a"), point({2}, "b")}).size(), 1U) << "the very first one in any case";
  EXPECT_EQ(visits, "a");
  ASSERT_EQ(all("absent").size(), 1U);
  EXPECT_NE(all("absent")[0].at("reason").get<std::string>().find("budget of 100 s"), std::string::npos);
}

TEST_F(RoundsOf, AnEarlierOutputIsContinued) {
  state.earlier.samples[0] = {{{5}, 0}, {{6}, kMoved}, {{7, 8}, 0}};  // the last one is of other metrics
  state.earlier.samples[1] = {{{9}, 0}};
  state.earlier.finished[1] = true;
  state.earlier.finished[2] = true;  // without samples
  Point p = point({7}, "a"), done = point({1}, "b"), again = point({4}, "c");
  p.once = done.once = again.once = true;
  p.least_samples = 3, again.least_samples = 1;
  const auto outcomes = measure({p, done, again});
  EXPECT_EQ(visits, "ac");
  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_EQ(outcomes[0].samples, (std::vector<double>{5, 6, 7}));
  EXPECT_TRUE(has(outcomes[0].flags, "migrated"));
  EXPECT_EQ(outcomes[1].samples, (std::vector<double>{9}));
  EXPECT_FALSE(has(outcomes[1].flags, "migrated"));
  EXPECT_EQ(outcomes[2].samples, (std::vector<double>{4}));
  EXPECT_EQ(state.resumed, 1U);
  EXPECT_EQ(all("result").size(), 2U);
}

TEST_F(RoundsOf, ATeamIsRunByTheBurst) {
  Point p = point({1});
  p.team = run.team({run.cpus().front()});
  p.once = true, p.least_samples = 2;
  int ranks = 0, prepared = 0;
  p.prepare = [&] { ++prepared; };
  p.burst = [&, team = p.team] {
    team->run([&](int) { ++ranks; });
    return Values{1};
  };
  measure({p});
  EXPECT_EQ(ranks, 2);
  EXPECT_EQ(prepared, 2);
}

// ---------------------------------------------------------------- conditions

/// A point with these marks of its samples, which are all equal.
PointProgress progress(const std::vector<int>& marks) {
  PointProgress p;
  p.point.team = std::make_shared<Team>(std::vector<int>{allowed_cpus().front()});
  p.point.conditions = {{"k", 1}};
  p.samples = {std::vector<double>(std::max<std::size_t>(marks.size(), 1), 2.0)};
  p.marks = marks;
  p.wide = false;
  return p;
}

std::pair<json, Flags> observed_of(const PointProgress& p, const std::string& shield = "off") {
  for (;;) {
    OtherUse other;
    other.start();
    auto [conditions, flags] = observed(p, shield, 2, other);
    if (other.elapsed_s() > 0.02) continue;  // long enough for other processes to count
    std::erase(flags, "stolen");             // this machine may be a virtual one
    return {conditions, flags};
  }
}

Flags flags_of(const PointProgress& p) { return observed_of(p).second; }

TEST(Marks, CountByTheirShareOfTheSamples) {
  EXPECT_EQ(progress({}).share_marked(kMoved), 0);
  EXPECT_EQ(progress({0, kMoved, kSwitched, kMoved | kFaulted}).share_marked(kMoved), 0.5);
  EXPECT_EQ(progress({0, kMoved, kSwitched, kMoved | kFaulted}).share_marked(kSwitched | kFaulted), 0.5);
}

TEST(Conditions, AFlagNeedsAShareOfMarkedSamples) {
  EXPECT_EQ(flags_of(progress({0, 0, 0, 0})), Flags{});
  EXPECT_EQ(flags_of(progress({kMoved, 0, 0, 0, 0, 0, 0, 0})), Flags{"migrated"});
  EXPECT_EQ(flags_of(progress({kFaulted, 0, 0, 0})), Flags{});
  EXPECT_EQ(flags_of(progress({kFaulted, kFaulted, 0, 0})), Flags{"faulted"});
  EXPECT_EQ(flags_of(progress({kSwitched, 0, 0, 0})), Flags{});
  EXPECT_EQ(flags_of(progress({kSwitched, kDisturbed, 0, 0})), Flags{"disturbed"});
}

TEST(Conditions, SamplesThatDifferMuchAreNoFlag) {
  PointProgress p = progress({0, 0, 0, 0, 0});
  p.samples = {{1, 1.5, 2, 2.5, 3}};
  p.wide = true;
  EXPECT_EQ(flags_of(p), Flags{});
}

/// A point whose samples had these values while fixed work took so much longer than at its best.
PointProgress clocked(const std::vector<double>& ratios, const std::vector<double>& values) {
  PointProgress p = progress(std::vector<int>(ratios.size(), 0));
  p.clock_ratios = ratios;
  p.samples = {values};
  return p;
}

TEST(Conditions, AClockThatVariedIsAFlagWhereItChangedTheValue) {
  const Flags varied{"clock_varied"};
  const std::vector<double> half{1.2, 1.2, 1.2, 1.2, 1, 1, 1, 1};
  EXPECT_EQ(flags_of(clocked(half, {2, 2, 2, 2, 2, 2, 2, 2})), Flags{}) << "the slow samples are like the others";
  EXPECT_EQ(flags_of(clocked(half, {1.05, 1.05, 1.05, 1.05, 1, 1, 1, 1})), varied);
  EXPECT_EQ(flags_of(clocked(half, {0.95, 0.95, 0.95, 0.95, 1, 1, 1, 1})), varied);
  EXPECT_EQ(flags_of(clocked(half, {1.03, 1.03, 1.03, 1.03, 1, 1, 1, 1})), Flags{}) << "1.5 % from the middle";
  const std::vector<double> all{1.1, 1.4, 1.15, 1.35, 1.2, 1.3, 1.25};
  EXPECT_EQ(flags_of(clocked(all, all)), varied) << "as the clock";
  EXPECT_EQ(flags_of(clocked(all, {2.01, 1.99, 2, 2.02, 2, 1.98, 2})), Flags{}) << "whatever the clock";
}

TEST(Conditions, AClockThatDidNotVaryIsNoFlag) {
  const std::vector<double> falling{6, 5, 4, 3, 2, 1};
  EXPECT_EQ(flags_of(clocked({1.3, 1.3, 1.31, 1.3, 1.3, 1.3}, falling)), Flags{}) << "other work has another clock";
  EXPECT_EQ(flags_of(clocked({1, 1.01, 1.02, 1.03, 1.04, 1.04}, falling)), Flags{});
  EXPECT_EQ(flags_of(clocked({1, 1, 1.4, 1.4, 1, 1, 1, 1}, {1, 1, 1.4, 1.4, 1, 1, 1, 1})), Flags{})
      << "two of eight samples, which do not move the median";
}

TEST(Conditions, ValuesThatScatterDoNotFollowTheClock) {
  const std::vector<double> ratios{1.1, 1, 1.12, 1.01, 1.09, 1, 1.1, 1.02};
  EXPECT_EQ(flags_of(clocked(ratios, {2, 3, 4, 1, 1, 2, 3, 4})), Flags{});
  EXPECT_EQ(flags_of(clocked(ratios, {2.2, 2, 2.24, 2.01, 2.2, 2.03, 2.19, 2})), Flags{"clock_varied"});
}

TEST(Conditions, AClockThatVariedIsAFlagWhereSamplesDoNotShowItsEffect) {
  const Flags varied{"clock_varied"};
  EXPECT_EQ(flags_of(clocked({1.2}, {2})), Flags{});
  EXPECT_EQ(flags_of(clocked({1.04, 1.08}, {2, 2})), Flags{});
  EXPECT_EQ(flags_of(clocked({1.2, 1}, {2, 2})), varied) << "few samples";
  EXPECT_EQ(flags_of(clocked({1.1, 1.4, 1.1, 1.4, 1.1, 1.4}, {0, 0, 0, 0, 0, 0})), varied) << "no ratios of values";
}

TEST(Conditions, SamplesOfAnEarlierOutputSayNothingOfTheClock) {
  PointProgress p = clocked({1, 1, 1.2, 1.2}, {9, 9, 9, 9, 2, 2, 2.4, 2.4});
  EXPECT_EQ(flags_of(p), Flags{"clock_varied"}) << "the last four are of now";
  p.samples = {{9, 9, 2, 2, 9, 9, 9, 9}};
  EXPECT_EQ(flags_of(p), Flags{});
}

TEST(Conditions, TwoThreadsOnOneCpuAreOversubscribed) {
  const int cpu = allowed_cpus().front();
  PointProgress p = progress({0});
  p.point.team = std::make_shared<Team>(std::vector<int>{cpu, cpu});
  EXPECT_EQ(flags_of(p), Flags{"oversubscribed"});
}

TEST(Conditions, AreThoseOfThePointAndWhatWasObserved) {
  PointProgress p = progress({0, kSwitched, kDisturbed, kMoved});
  const int cpu = allowed_cpus().front();
  json conditions = observed_of(p).first;
  EXPECT_EQ(conditions.at("k"), 1);
  EXPECT_EQ(conditions.at("observed_cpus"), std::to_string(cpu));
  EXPECT_EQ(conditions.at("disturbed_share"), 0.5);
  EXPECT_EQ(conditions.at("canary_ratio"), nullptr);
  EXPECT_EQ(conditions.at("shield"), "none");
  EXPECT_GE(conditions.at("steal_share"), 0);
  EXPECT_LE(conditions.at("steal_share"), 1);
  EXPECT_FALSE(conditions.contains("huge_share"));
  EXPECT_EQ(conditions.at("interval_asked"), 0.02);
  EXPECT_GE(conditions.at("others_share"), 0);
  p.clock_ratios = {1.24, 1.25, 1.26};
  p.shielded = true;
  p.point.observe = [] { return json{{"observed_cpus", "9"}, {"k", 2}}; };
  p.point.check = [] { return Flags{"z", "migrated", "a"}; };
  const auto [more, flags] = observed_of(p);
  EXPECT_EQ(more.at("canary_ratio"), 1.25);
  EXPECT_EQ(more.at("shield"), "fifo");
  EXPECT_EQ(more.at("observed_cpus"), "9");
  EXPECT_EQ(more.at("k"), 2);
  EXPECT_EQ(flags, (Flags{"a", "disturbed", "migrated", "z"}));
  EXPECT_EQ(observed_of(p, "hold").first.at("shield"), "fifo+hold");
}

TEST(Conditions, PagesOfArenasAreReadBack) {
  PointProgress p = progress({0});
  p.point.arenas = {Arena::make({1 << 20, Pages::base, Policy::local, -1, -1})};
  const auto [conditions, flags] = observed_of(p);
  EXPECT_EQ(conditions.at("huge_share"), 0);
  EXPECT_EQ(conditions.at("observed_node_share"), 1);
  EXPECT_EQ(conditions.at("observed_node"), p.point.arenas[0]->node_shares().begin()->first);
  EXPECT_EQ(flags, Flags{});
}

TEST(OtherUse, IsAShareOfTheTimeSinceItsStart) {
  OtherUse other;
  const double from_s = wall_s();
  other.start();
  EXPECT_GE(other.elapsed_s(), 0);
  EXPECT_LE(other.elapsed_s(), wall_s() - from_s);
  EXPECT_EQ(other.shares({}).stolen, 0);
  EXPECT_EQ(other.shares({100000}).stolen, 0) << "a CPU that is not there";
}

/// A process that keeps a CPU busy until it is killed, a child of this one or of a child that has ended.
pid_t hog(int cpu, bool child) {
  int line[2];
  EXPECT_EQ(pipe(line), 0);
  const pid_t first = fork();
  if (first == 0) {
    if (!child && fork() != 0) _exit(0);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    const pid_t self = getpid();
    if (write(line[1], &self, sizeof self) != sizeof self) _exit(1);
    alarm(60);
    for (volatile bool on = true; on;) {}
  }
  pid_t found = 0;
  EXPECT_EQ(read(line[0], &found, sizeof found), static_cast<ssize_t>(sizeof found));
  close(line[0]), close(line[1]);
  if (!child) waitpid(first, nullptr, 0);
  return found;
}

TEST(OtherUse, CountsWhatIsNotOfThisProcess) {
  const int cpu = allowed_cpus().back();
  for (const bool child : {false, true}) {
    OtherUse other;
    other.start();
    const pid_t pid = hog(cpu, child);
    const auto busy_s = [&] {
      const auto stat = parse_stat(read_text("/proc/" + std::to_string(pid) + "/stat"));
      return stat ? static_cast<double>(stat->user + stat->system) / ticks_per_second() : 0;
    };
    const double from_s = wall_s();
    while (busy_s() < 0.6 && wall_s() - from_s < 30) usleep(10'000);
    const double of_others = other.shares({cpu}).others * other.elapsed_s(), of_hog = busy_s();
    const double all_s = other.elapsed_s();
    kill(pid, SIGKILL);
    if (child) waitpid(pid, nullptr, 0);
    ASSERT_GE(of_hog, 0.6);
    // Others may be busy, too, but not while the child had its CPU.
    if (child) {
      EXPECT_LE(of_others, all_s - 0.5 * of_hog / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
    } else {
      EXPECT_GE(of_others, 0.4);
    }
  }
}

TEST(Iterations, LastLongEnoughEvenIfBatchesAreInterrupted) {
  const double each_s = 1e-8, target_s = 3e-3;
  int calls = 0;
  const auto batch_s = [&](std::uint64_t n) { return each_s * static_cast<double>(n) + (calls++ % 2 == 0 ? 0.02 : 0); };
  const std::uint64_t found = iterations_for(target_s, batch_s, 100);
  EXPECT_GE(each_s * static_cast<double>(found), target_s);
  EXPECT_LT(each_s * static_cast<double>(found), 10 * target_s);
  EXPECT_EQ(iterations_for(target_s, batch_s, 1, 50), 50) << "never more than allowed";
  calls = 0;
  const auto slow_s = [&](std::uint64_t n) { return ++calls, 1e-2 * static_cast<double>(n); };
  EXPECT_EQ(iterations_for(target_s, slow_s, 100), 100);
  EXPECT_EQ(calls, 1) << "a second is far longer than an interruption";
}

}  // namespace
}  // namespace mm

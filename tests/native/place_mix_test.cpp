/// Simulated mixes of jobs: waiting, sharing of cores and of memory bandwidth, and agreement with queueing theory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>
#include <vector>

#include "place/mix/live.hpp"
#include "place/mix/simulation.hpp"
#include "place/policy/policy.hpp"

namespace {

using mm::place::mix::Discipline;
using mm::place::mix::JobOutcome;
using mm::place::mix::MixJob;
using mm::place::mix::Settings;
using mm::place::mix::simulate;

std::vector<JobOutcome> outcomes(const std::string& topology, const std::string& policy, Settings settings,
                                 const std::vector<MixJob>& jobs) {
  mm::place::parse_bind(policy, settings.request);
  return simulate(mm::machine_of(topology), settings, jobs);
}

Settings limited(int slots) {
  Settings settings;
  settings.max_slots = slots;
  return settings;
}

constexpr const char* kTwoSockets = "pack:2 [numa] core:2 pu:1";

TEST(PlaceMix, JobsWaitInTheOrderOfTheirSubmission) {
  const std::vector<MixJob> jobs = {{1, 10, 3}, {0, 4, 2}, {2, 1, 2}, {2, 3, 1}};
  const auto fcfs = outcomes(kTwoSockets, "balance", limited(4), jobs);
  EXPECT_DOUBLE_EQ(fcfs[1].start_s, 0);
  EXPECT_DOUBLE_EQ(fcfs[0].start_s, 4);  // three slots are free only then
  EXPECT_DOUBLE_EQ(fcfs[0].end_s, 14);
  EXPECT_DOUBLE_EQ(fcfs[2].start_s, 14);
  EXPECT_DOUBLE_EQ(fcfs[3].start_s, 14);
  Settings first_fit = limited(4);
  first_fit.discipline = Discipline::first_fit;
  const auto overtaken = outcomes(kTwoSockets, "balance", first_fit, jobs);
  EXPECT_DOUBLE_EQ(overtaken[2].start_s, 2);
  EXPECT_DOUBLE_EQ(overtaken[3].start_s, 3);  // two slots were free for the job before it
  EXPECT_DOUBLE_EQ(overtaken[0].start_s, 4);
}

TEST(PlaceMix, PackWaitsForRoomOnOneSocketAndOthersDoNot) {
  // Both sockets have one free core when the last job arrives.
  const std::vector<MixJob> jobs = {{0, 9, 1}, {0, 5, 1}, {0, 9, 1}, {1, 2, 2}};
  const auto packed = outcomes(kTwoSockets, "pack", limited(4), {{0, 9, 2}, {0, 5, 1}, {1, 2, 2}});
  EXPECT_DOUBLE_EQ(packed[2].start_s, 5);
  const auto balanced = outcomes(kTwoSockets, "balance", limited(4), {{0, 9, 1}, {0, 9, 1}, {1, 2, 2}});
  EXPECT_DOUBLE_EQ(balanced[2].start_s, 1);
  EXPECT_EQ(balanced[2].cpus, (std::vector<int>{1, 3}));
  EXPECT_DOUBLE_EQ(outcomes(kTwoSockets, "any", limited(4), jobs)[3].start_s, 5);
}

TEST(PlaceMix, JobsOnOneCoreShareIt) {
  const auto bound = outcomes("pack:1 [numa] core:1 pu:1", "balance", {}, {{0, 4, 1}, {2, 4, 1}});
  EXPECT_DOUBLE_EQ(bound[0].end_s, 6);  // 2 s alone, then half of 4 s
  EXPECT_DOUBLE_EQ(bound[1].end_s, 8);
  EXPECT_FALSE(bound[0].oversubscribed);
  EXPECT_TRUE(bound[1].oversubscribed);
  const auto unbound = outcomes("pack:1 [numa] core:2 pu:1", "none", {}, {{0, 4, 1}, {0, 4, 1}, {0, 4, 1}});
  for (const JobOutcome& o : unbound) EXPECT_DOUBLE_EQ(o.end_s, 6);  // three threads on two cores
}

TEST(PlaceMix, SecondThreadsOfACoreAddWhatTheUserStates) {
  Settings settings;
  settings.core_yield = 1.25;
  settings.request.kind = mm::place::SlotKind::threads;
  const std::vector<MixJob> jobs = {{0, 5, 1}, {0, 5, 1}};
  for (const JobOutcome& o : outcomes("pack:1 [numa] core:1 pu:2", "any", settings, jobs)) EXPECT_DOUBLE_EQ(o.end_s, 8);
  for (const JobOutcome& o : outcomes("pack:1 [numa] core:1 pu:2", "none", settings, jobs))
    EXPECT_DOUBLE_EQ(o.end_s, 8);
  settings.request.kind = mm::place::SlotKind::cores;
  for (const JobOutcome& o : outcomes("pack:1 [numa] core:1 pu:2", "balance", settings, jobs))
    EXPECT_DOUBLE_EQ(o.end_s, 8);
  settings.request.kind = mm::place::SlotKind::procs;  // a socket of two cores has room for both
  for (const JobOutcome& o : outcomes("pack:1 [numa] core:2 pu:1", "balance", settings, jobs))
    EXPECT_DOUBLE_EQ(o.end_s, 5);
}

TEST(PlaceMix, ASaturatedNodeSlowsTheJobsThatUseIt) {
  Settings settings = limited(4);
  settings.node_bytes_per_s = 10e9;
  const std::vector<MixJob> jobs = {{0, 6, 1, 10e9}, {0, 6, 1, 5e9}};
  for (const JobOutcome& o : outcomes(kTwoSockets, "pack", settings, jobs)) EXPECT_DOUBLE_EQ(o.end_s, 9);
  for (const JobOutcome& o : outcomes(kTwoSockets, "balance", settings, jobs)) EXPECT_DOUBLE_EQ(o.end_s, 6);
  // The third job is on the other node, and unaffected.
  const auto three = outcomes(kTwoSockets, "pack", settings, {{0, 6, 1, 10e9}, {0, 6, 1, 5e9}, {0, 6, 1, 10e9}});
  EXPECT_DOUBLE_EQ(three[2].end_s, 6);
}

TEST(PlaceMix, AJobThatIsTooLargeIsRefusedAndHoldsUpNobody) {
  const auto some = outcomes(kTwoSockets, "balance", limited(4), {{0, 1, 5}, {0, 1, 1}});
  EXPECT_EQ(some[0].refused, "it needs 5 slots of 4");
  EXPECT_DOUBLE_EQ(some[1].end_s, 1);
  EXPECT_EQ(outcomes(kTwoSockets, "pack(socket=1)", limited(4), {{0, 1, 3}})[0].refused.empty(), false);
}

TEST(PlaceMix, DecidesForJobsThatReallyRun) {
  Settings settings = limited(2);
  mm::place::parse_bind("pack", settings.request);
  const std::vector<MixJob> jobs = {{0, 1, 2}, {0, 1, 1}, {0, 1, 3}, {0, 1, 1}};
  const auto answers = [&](const std::string& events) {
    std::istringstream in(events);
    std::ostringstream out;
    mm::place::mix::decide(mm::machine_of(kTwoSockets), settings, jobs, in, out);
    return out.str();
  };
  EXPECT_EQ(answers("submit 0\nsubmit 1\nsubmit 2\nsubmit 3\nend 0\nend 1\n"),
            "{\"start\":[{\"job\":0,\"cpus\":\"0-1\"}],\"refused\":[]}\n"
            "{\"start\":[],\"refused\":[]}\n"
            "{\"start\":[],\"refused\":[]}\n"
            "{\"start\":[],\"refused\":[]}\n"
            "{\"start\":[{\"job\":1,\"cpus\":\"0\"},{\"job\":3,\"cpus\":\"1\"}],"
            "\"refused\":[{\"job\":2,\"why\":\"it needs 3 slots of 2\"}]}\n"
            "{\"start\":[],\"refused\":[]}\n");
  for (const std::string wrong : {"end 0", "submit 4", "submit", "start 0", "submit 0 1", "submit 0\nsubmit 0", ""})
    EXPECT_THROW(answers(wrong + "\n"), mm::Failure) << wrong;
}

/// Returns the mean time for which jobs wait for one of `servers` cores: submissions at random times, one per second
/// and server times `load`, with run times of mean 1 s.
double mean_wait_s(int servers, double load, bool random_run_times) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> gap(load * servers), length(1.0);
  std::vector<MixJob> jobs;
  double now_s = 0;
  for (int i = 0; i < 200'000; ++i) {
    now_s += gap(random);
    jobs.push_back({now_s, random_run_times ? length(random) : 1.0, 1});
  }
  const auto fared = outcomes("pack:1 [numa] core:" + std::to_string(servers) + " pu:1", "any", limited(servers), jobs);
  double sum_s = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) sum_s += fared[i].start_s - jobs[i].submit_s;
  return sum_s / static_cast<double>(jobs.size());
}

TEST(PlaceMix, WaitsAgreeWithQueueingTheory) {
  // M/D/1: load / (2 (1 - load)). M/M/1: load / (1 - load). M/M/2 at 0.8: Erlang C is 0.711, divided by 2 - 1.6.
  EXPECT_NEAR(mean_wait_s(1, 0.8, false), 2.0, 0.06);
  EXPECT_NEAR(mean_wait_s(1, 0.7, true), 0.7 / 0.3, 0.08);
  EXPECT_NEAR(mean_wait_s(2, 0.8, true), 0.7111 / 0.4, 0.08);
}

TEST(PlaceMix, NoJobGainsTimeOrMoreSlotsThanThereAre) {
  std::mt19937_64 random(3);
  for (const std::string policy : {"none", "balance", "pack", "any", "scatter", "compact"}) {
    std::vector<MixJob> jobs;
    double now_s = 0;
    for (int i = 0; i < 300; ++i) {
      now_s += std::uniform_real_distribution<double>(0, 2)(random);
      jobs.push_back({now_s, std::uniform_real_distribution<double>(0.1, 9)(random),
                      std::uniform_int_distribution<int>(1, 8)(random), 1e9});
    }
    Settings settings = limited(8);
    settings.node_bytes_per_s = 2e9;
    const auto fared = outcomes("pack:2 [numa] core:4 pu:1", policy, settings, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_GE(fared[i].start_s, jobs[i].submit_s) << policy;
      ASSERT_GE(fared[i].end_s - fared[i].start_s, jobs[i].run_s * (1 - 1e-9)) << policy;
      int used = 0;
      for (std::size_t k = 0; k < jobs.size(); ++k)
        if (fared[k].start_s <= fared[i].start_s && fared[i].start_s < fared[k].end_s) used += jobs[k].slots;
      ASSERT_LE(used, 8) << policy;
      ASSERT_GE(fared[i].start_s, i > 0 ? fared[i - 1].start_s : 0.0) << policy;
    }
  }
}

}  // namespace

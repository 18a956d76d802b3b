/// Steps and summary of `meshmark-probe survey`.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/topology/topology.hpp"
#include "survey/steps.hpp"
#include "survey/summary.hpp"

namespace mm::survey {
namespace {

Machine two_sockets() { return machine_of("pack:2 [numa(memory=1GB)] l3:2 core:2 pu:2"); }

std::string result(const std::string& metric, double value, const json& conditions, const json& flags = json::array()) {
  return json{{"type", "result"}, {"metric", metric},        {"value", value}, {"interval", {0.9 * value, 1.1 * value}},
              {"flags", flags},   {"conditions", conditions}}
      .dump();
}

std::string option(const node::PlanStep& step, const std::string& name) {
  const auto at = std::find(step.argv.begin(), step.argv.end(), name);
  return at == step.argv.end() ? "" : *(at + 1);
}

TEST(SurveySteps, SampleOneCpuOfEachRelation) {
  const Machine machine = two_sockets();
  const std::vector<int> cpus = sampled_cpus(machine);
  ASSERT_EQ(cpus.size(), 5U);
  const char* relations[] = {"same core", "same L3", "same package", "other package"};
  for (std::size_t i = 1; i < cpus.size(); ++i) EXPECT_EQ(relation(machine, cpus[0], cpus[i]), relations[i - 1]);
}

TEST(SurveySteps, MeasureTheNodesOnlyIfThereAreSeveral) {
  const std::vector<node::PlanStep> several = steps(two_sockets(), 60);
  ASSERT_EQ(several.size(), 4U);
  EXPECT_EQ(several.back().id, "nodes");
  EXPECT_EQ(option(several.back(), "--cpus"), "0,8");
  EXPECT_EQ(option(several.back(), "--footprint"), std::to_string(256 << 20));
  Machine with_large_cache = two_sockets();
  with_large_cache.caches = {{.level = 3, .bytes = std::size_t{512} << 20}};
  EXPECT_EQ(option(steps(with_large_cache, 60).back(), "--footprint"), std::to_string(std::size_t{2} << 30))
      << "otherwise, a part of it stays in the cache";
  EXPECT_EQ(option(several.front(), "--memory-node"), "0") << "otherwise, it measures the memory of each node";
  double budgets = 0;
  for (const node::PlanStep& step : several) budgets += std::stod(option(step, "--budget"));
  EXPECT_NEAR(budgets, 60, 0.5);
  const std::vector<node::PlanStep> one = steps(machine_of("[numa(memory=1GB)] core:2 pu:1"), 60);
  EXPECT_TRUE(std::ranges::none_of(one, [](const node::PlanStep& step) { return step.id == "nodes"; }));
  EXPECT_EQ(steps(machine_of("[numa(memory=1GB)] core:1 pu:1"), 60).size(), 2U);  // no transfers on one CPU
}

TEST(SurveySummary, ShowsLevelsBandwidthTransfersAndNodes) {
  SurveyResults results;
  results.take("latency", result("level_latency", 1.25e-9, {{"kind", "cache"}, {"level", 1}, {"to_bytes", 32768}}));
  results.take("latency", result("level_latency", 118.04e-9, {{"kind", "memory"}, {"level", 4}}, {"disturbed"}));
  for (const auto& [store, value] : {std::pair{"ordinary", 30e9}, std::pair{"streaming", 41.5e9}})
    results.take("bandwidth", result("bandwidth_net", value, {{"kernel", "triad"}, {"threads", 2}, {"store", store}}));
  for (const auto& [to, value] : {std::pair{2, 30e-9}, std::pair{3, 50e-9}, std::pair{8, 210e-9}})
    results.take("lines", result("line_latency", value, {{"from_cpu", 0}, {"to_cpu", to}},
                                 to == 3 ? json{"disturbed"} : json::array()));
  for (const int cpu : {0, 8})
    for (const int node : {0, 1})
      results.take("nodes", result("load_latency", ((cpu == 0) == (node == 0) ? 100e-9 : 180e-9),
                                   {{"cpu", cpu}, {"memory_node", node}}));
  results.take("latency", R"({"type":"absent","metric":"load_latency","reason":"too little memory"})");
  results.take("bandwidth", R"({"type":"absent","metric":null,"reason":"the limit of memory"})");
  results.take("lines", R"({"type":"error","field":null,"message":"a thread cannot be bound","allowed":null})");
  results.take("latency", "no JSON");
  const std::string text = results.summary(two_sockets());
  for (const char* part :
       {"cache level 1, up to 32 KiB", "1.250 ns   [1.125, 1.375]", "118.0 ns   [106.2, 129.8]  disturbed",
        "triad, 2 threads, streaming stores", "41.50 GB/s", "same L3 ",
        "40.00 ns   30.00 to 50.00 in 2 directed pairs, 1 flagged\n", "other package",
        "      0   100.0    180.0 \n      1   180.0    100.0 \n", "Flag disturbed: 2 of ",
        "Not measured: latency: load_latency: too little memory", "Not measured: bandwidth: the limit of memory\n",
        "Not measured: lines: a thread cannot be bound\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("30.00 GB/s"), std::string::npos) << "the slower stores are left out";
}

TEST(SurveySummary, PrefersValidResultsToFasterOnesThatAreFlagged) {
  SurveyResults results;
  results.take("bandwidth", result("bandwidth_net", 41e9, {{"kernel", "read"}, {"threads", 1}}, {"disturbed"}));
  results.take("bandwidth", result("bandwidth_net", 30e9, {{"kernel", "read"}, {"threads", 1}}));
  const std::string text = results.summary(two_sockets());
  EXPECT_NE(text.find("30.00 GB/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("41.00 GB/s"), std::string::npos) << text;
}

TEST(SurveySummary, LeavesOutWhatWasNotMeasured) {
  SurveyResults results;
  EXPECT_TRUE(results.empty());
  results.problem("lines", "it ended with status 1");
  EXPECT_EQ(results.summary(two_sockets()), "Not measured: lines: it ended with status 1\n");
}

TEST(SurveySummary, WritesUnits) {
  EXPECT_EQ(with_unit(0.93e-9, "s"), "0.930 ns");
  EXPECT_EQ(with_unit(1.5e-6, "s"), "1.500 µs");
  EXPECT_EQ(with_unit(999.96e9, "B/s"), "1000 GB/s");
  EXPECT_EQ(with_unit(3 << 19, "B"), "1.5 MiB");
}

}  // namespace
}  // namespace mm::survey

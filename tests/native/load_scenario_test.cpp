// What runs scenarios reads the kernel's texts and a plan's file; what it does with processes, Python's tests try.
#include "load/scenario/plan.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "error.hpp"
#include "load/scenario/supervisor.hpp"
#include "load/scenario/threads.hpp"

namespace mm::load {
namespace {

TEST(LoadScenario, ReadsWhatAThreadRanAndWaited) {
  const auto sums = parse_schedstat("192829 86502 1\n");
  EXPECT_EQ(sums, std::pair(std::uint64_t{192829}, std::uint64_t{86502}));
  for (const char* text : {"", "\n", "12", "12 ", "x 1 2", "1 x 2", "-1 2 3"})
    EXPECT_FALSE(parse_schedstat(text)) << text;
}

TEST(LoadScenario, ReadsMigrationsOrSaysThatTheyAreNotTold) {
  EXPECT_EQ(
      parse_migrations("cat (1, #threads: 1)\n---\nse.sum_exec_runtime  :  0.1\nse.nr_migrations     :      17\n"), 17);
  for (const char* text : {"", "se.nr_migrations", "se.nr_migrations :", "se.nr_migrations : x", "nr_switches : 3"})
    EXPECT_EQ(parse_migrations(text), -1) << text;
}

TEST(LoadScenario, SamplesOnAGridHoweverLateOneIs) {
  SampleGrid grid(10, 0.5);
  EXPECT_FALSE(grid.due(10.4));
  EXPECT_TRUE(grid.due(10.5));
  grid.advance(10.6);
  EXPECT_DOUBLE_EQ(grid.next_s(), 11);
  grid.advance(12.7);  // three were missed: the next one is on the grid of the first
  EXPECT_DOUBLE_EQ(grid.next_s(), 13);
  grid.advance(12.9);  // even one that came early moves it
  EXPECT_DOUBLE_EQ(grid.next_s(), 13.5);
}

struct File {
  explicit File(const std::string& text) : path(testing::TempDir() + "plan-" + std::to_string(getpid()) + ".json") {
    std::ofstream(path) << text;
  }
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

std::string plan_with(const std::string& program) {
  return R"({"format": "meshmark load plan", "version": 1, "programs": [)" + program + "]}";
}

TEST(LoadScenario, ReadsAPlan) {
  const File file(plan_with(
      R"({"name": "a", "copy": 2, "argv": ["x", "y"], "start_s": 1.5, "cpus": "0-1,3", "nice": -2, "priority": "batch",
          "env": {"N": "3"}, "cgroup": null, "stdout": "/dev/null"})"));
  const RunPlan plan = read_run_plan(file.path);
  ASSERT_EQ(plan.programs.size(), 1u);
  const Start& s = plan.programs[0];
  EXPECT_EQ(s.name, "a");
  EXPECT_EQ(s.copy, 2);
  EXPECT_EQ(s.argv, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(s.start_s, 1.5);
  EXPECT_EQ(s.cpus, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(s.nice, -2);
  EXPECT_EQ(s.priority, "batch");
  EXPECT_EQ(s.environment.at("N"), "3");
  EXPECT_TRUE(s.cgroup.empty());
  EXPECT_EQ(plan.sample_s, 0.1);
}

TEST(LoadScenario, RefusesAWrongPlanByTheNameOfTheField) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"argv": ["x"]})", "name"},
      {R"({"name": "a"})", "argv"},
      {R"({"name": "a", "argv": []})", "argv"},
      {R"({"name": "a", "argv": [1]})", "argv"},
      {R"({"name": "a", "argv": ["x\u0000y"]})", "argv"},
      {R"({"name": "a", "argv": ["x"], "cpus": "3-1"})", "cpus"},
      {R"({"name": "a", "argv": ["x"], "cpus": 3})", "cpus"},
      {R"({"name": "a", "argv": ["x"], "nice": 1e99})", "nice"},
      {R"({"name": "a", "argv": ["x"], "start_s": -1})", "start_s"},
      {R"({"name": "a", "argv": ["x"], "priority": "high"})", "priority"},
      {R"({"name": "a", "argv": ["x"], "synthesised": 1})", "synthesised"},
      {R"({"name": "a", "argv": ["x"], "env": {"A": 1}})", "env"},
      {R"(7)", "programs[0]"},
  };
  for (const auto& [program, field] : wrong) {
    const File file(plan_with(program));
    try {
      read_run_plan(file.path);
      ADD_FAILURE() << program;
    } catch (const Failure& why) {
      EXPECT_NE(std::string(why.what()).find(field), std::string::npos) << why.what();
      EXPECT_EQ(std::string(why.what()).find('\n'), std::string::npos) << why.what();
    }
  }
  EXPECT_THROW(read_run_plan("/proc/not/there"), Failure);
}

}  // namespace
}  // namespace mm::load

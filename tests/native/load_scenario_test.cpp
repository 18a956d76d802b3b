// Parsing of texts of the Linux kernel and of plans; the Python tests cover running processes.
#include "load/scenario/plan.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "load/scenario/processes/supervisor.hpp"
#include "load/scenario/processes/threads.hpp"

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
  grid.advance(12.7);  // three were missed: the next one is on the original grid
  EXPECT_DOUBLE_EQ(grid.next_s(), 13);
  grid.advance(12.9);  // even an early one advances it
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

TEST(LoadScenario, ReadsEveryFieldOfAPlan) {
  const File file(R"({"format": "meshmark load plan", "version": 1, "scenario": "night", "sample_s": 0.25,
      "timeout_s": 60, "setup_s": 5, "canary": {"before_s": 2, "after_s": 3, "during": true},
      "programs": [{"name": "a", "argv": ["x"], "synthesised": true, "memory": "interleave", "cgroup": "/cg",
                    "cwd": "/tmp", "stdout": "/dev/null", "stderr": "/dev/zero", "nice": 39, "start_s": 1e6},
                   {"name": "b", "argv": ["y"], "copy": 1048576, "nice": -40, "priority": "fifo"}]})");
  const RunPlan plan = read_run_plan(file.path);
  EXPECT_EQ(plan.scenario, "night");
  EXPECT_EQ(plan.sample_s, 0.25);
  EXPECT_EQ(plan.timeout_s, 60);
  EXPECT_EQ(plan.setup_s, 5);
  EXPECT_EQ(plan.canary_before_s, 2);
  EXPECT_EQ(plan.canary_after_s, 3);
  EXPECT_TRUE(plan.canary_during);
  ASSERT_EQ(plan.programs.size(), 2u);
  const Start &a = plan.programs[0], &b = plan.programs[1];
  EXPECT_TRUE(a.synthesised);
  EXPECT_EQ(a.memory, "interleave");
  EXPECT_EQ(a.cgroup, "/cg");
  EXPECT_EQ(a.cwd, "/tmp");
  EXPECT_EQ(a.out, "/dev/null");
  EXPECT_EQ(a.error, "/dev/zero");
  EXPECT_EQ(a.nice, 39);
  EXPECT_EQ(a.start_s, 1e6);
  EXPECT_EQ(b.copy, 1 << 20);
  EXPECT_EQ(b.nice, -40);
  EXPECT_FALSE(b.synthesised);
  EXPECT_EQ(scheduling_policy(b.priority), SCHED_FIFO);
  EXPECT_EQ(scheduling_policy("batch"), SCHED_BATCH);
  EXPECT_EQ(scheduling_policy("idle"), SCHED_IDLE);
  EXPECT_EQ(scheduling_policy("other"), SCHED_OTHER);
}

TEST(LoadScenario, DefaultsOfAPlanMeasureNothingBesideThePrograms) {
  const File file(plan_with(R"({"name": "a", "argv": ["x"]})"));
  const RunPlan plan = read_run_plan(file.path);
  EXPECT_EQ(plan.scenario, "scenario");
  EXPECT_EQ(plan.timeout_s, 0);
  EXPECT_EQ(plan.setup_s, 300);
  EXPECT_EQ(plan.canary_before_s, 0);
  EXPECT_EQ(plan.canary_after_s, 0);
  EXPECT_FALSE(plan.canary_during);
  const Start& s = plan.programs[0];
  EXPECT_EQ(s.start_s, 0);
  EXPECT_EQ(s.nice, 0);
  EXPECT_EQ(s.copy, 0);
  EXPECT_EQ(s.priority, "other");
  EXPECT_TRUE(s.memory.empty() && s.cwd.empty() && s.out.empty() && s.error.empty() && s.cpus.empty());
}

TEST(LoadScenario, RefusesAPlanThatIsNoneOrOfAnotherVersion) {
  const std::string programs = R"("programs": [{"name": "a", "argv": ["x"]}])";
  const std::string head = R"("format": "meshmark load plan", "version": 1, )";
  std::string many = R"("programs": [)";
  for (int i = 0; i < 4096; ++i) many += R"({"name": "a", "argv": ["x"]}, )";
  const std::pair<std::string, const char*> wrong[] = {
      {"[]", "not a JSON object"},
      {"{" + programs + "}", "format"},
      {R"({"format": "another", "version": 1, )" + programs + "}", "format"},
      {R"({"format": "meshmark load plan", "version": 2, )" + programs + "}", "version"},
      {"{" + head + R"("sample_s": 0.0009, )" + programs + "}", "sample_s"},
      {"{" + head + R"("sample_s": 61, )" + programs + "}", "sample_s"},
      {"{" + head + R"("timeout_s": -1, )" + programs + "}", "timeout_s"},
      {"{" + head + R"("setup_s": 0, )" + programs + "}", "setup_s"},
      {"{" + head + R"("canary": 3, )" + programs + "}", "canary"},
      {"{" + head + R"("canary": {"before_s": 3601}, )" + programs + "}", "before_s"},
      {"{" + head + R"("canary": {"after_s": -1}, )" + programs + "}", "after_s"},
      {"{" + head + R"("programs": []})", "programs"},
      {"{" + head + R"("programs": {}})", "programs"},
      {"{" + head + many + R"({"name": "a", "argv": ["x"]}]})", "1 to 4096"},
  };
  for (const auto& [text, what] : wrong) {
    const File file(text);
    try {
      read_run_plan(file.path);
      ADD_FAILURE() << text.substr(0, 200);
    } catch (const Failure& why) {
      EXPECT_NE(std::string(why.what()).find(what), std::string::npos) << why.what();
    }
  }
}

TEST(LoadScenario, RefusesAWrongPlanByTheNameOfTheField) {
  const std::pair<const char*, const char*> invalid[] = {
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
      {R"({"name": "a", "argv": ["x"], "nice": 40})", "nice"},
      {R"({"name": "a", "argv": ["x"], "nice": -41})", "nice"},
      {R"({"name": "a", "argv": ["x"], "copy": -1})", "copy"},
      {R"({"name": "a", "argv": ["x"], "start_s": 1000001})", "start_s"},
      {R"({"name": "a", "argv": "x"})", "argv"},
      {R"({"name": "a", "argv": ["x"], "env": ["A"]})", "env"},
      {R"({"name": "a", "argv": ["x"], "memory": 3})", "memory"},
      {R"(7)", "programs[0]"},
  };
  for (const auto& [program, field] : invalid) {
    const File file(plan_with(program));
    try {
      read_run_plan(file.path);
      ADD_FAILURE() << program;
    } catch (const Failure& error) {
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_run_plan("/proc/not/there"), Failure);
}

}  // namespace
}  // namespace mm::load

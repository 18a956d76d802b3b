#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <csignal>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "node/limits.hpp"
#include "node/plan.hpp"
#include "node/run/recorded.hpp"
#include "node/run/result_file.hpp"
#include "node/run/step.hpp"
#include "temporary_folder.hpp"

namespace mm::node {
namespace {

constexpr const char* kPlan =
    R"({"format": "meshmark node plan", "version": 1, "id": "ab", "kind": "check", "alone": true, "limit_s": 30,
        "files": ["proc/version"], "steps": [{"id": "01-clock", "argv": ["clock", "--budget", "1s"], "limit_s": 8}],
        "limits": {"cafe": [{"instrument": "peak", "metric": "flop_rate", "conditions": {"threads": 2}, "low": 1e9}]}})";

std::string unpacked(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return "";
  std::string text;
  std::array<char, 4096> some;
  for (int n; (n = gzread(file, some.data(), some.size())) > 0;) text.append(some.data(), static_cast<std::size_t>(n));
  gzclose(file);
  return text;
}

TEST(NodePlan, IsReadWithTheLimitsOfThisHardware) {
  const TemporaryFolder folder;
  const Plan plan = read_plan(folder.write("plan.json", kPlan), "cafe");
  ASSERT_EQ(plan.steps.size(), 1U);
  EXPECT_EQ(plan.steps[0].argv, (std::vector<std::string>{"clock", "--budget", "1s"}));
  EXPECT_EQ(plan.limit_s, 30);
  EXPECT_TRUE(plan.alone);
  ASSERT_EQ(plan.limits.size(), 1U);
  EXPECT_EQ(plan.limits[0].low, 1e9);
  EXPECT_TRUE(read_plan(folder.path("plan.json"), "other").limits.empty());
}

TEST(NodePlan, ThatIsWrongIsRefusedByItsField) {
  const TemporaryFolder folder;
  const std::string whole = kPlan;
  const std::array<std::array<std::string, 3>, 5> wrong{{
      {R"("limit_s": 30)", R"("limit_s": -1)", "limit_s: found -1; allowed: a number from"},
      {R"("argv": ["clock", "--budget", "1s"])", R"("argv": [])", "steps[0].argv: found"},
      {R"("version": 1)", R"("version": 2)", "version: found 2; allowed: 1"},
      {R"(["proc/version"])", R"([1])", "files: found 1; allowed: a text"},
      {R"({"threads": 2})", R"([])", "limits.cafe[0].conditions: found []; allowed: an object"},
  }};
  for (const auto& [found, by, message] : wrong) {
    std::string text = whole;
    text.replace(text.find(found), found.size(), by);
    try {
      read_plan(folder.write("plan.json", text), "cafe");
      FAIL() << by;
    } catch (const Failure& why) {
      EXPECT_NE(std::string(why.what()).find(message), std::string::npos) << why.what();
    }
  }
}

TEST(NodeFile, HasItsNameOnlyWhenItIsComplete) {
  const TemporaryFolder folder;
  {
    ResultFile unfinished(folder.path().string(), "n1");
    unfinished.text_line("one");
    unfinished.flush();
    // What a killed runner leaves can be read up to the last flush.
    const auto entry = *std::filesystem::directory_iterator(folder.path());
    EXPECT_EQ(unpacked(entry.path()), "one\n");
    EXPECT_EQ(entry.path().filename().string().rfind(".n1.jsonl.gz.", 0), 0U);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  ResultFile file(folder.path().string(), "n1");
  for (int i = 0; i < 5000; ++i) file.line({{"number", i}, {"text", std::string(50, 'x')}});
  file.finish();
  const std::string text = unpacked(folder.path("n1.jsonl.gz"));
  EXPECT_EQ(text.size(), file.bytes());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5000);
}

TEST(NodeFile, InAFolderThatIsMissingOrFullIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(ResultFile(folder.path("missing"), "n1"), Failure);
}

TEST(NodeFiles, AreRecordedByteForByteAndNothingElseIs) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  folder.write("root/sys/table", bytes);
  folder.write("root/sys/cpu0/governor", "performance\n");
  ASSERT_EQ(mkfifo(folder.path("root/sys/fifo").c_str(), 0600), 0);
  ResultFile out(folder.path().string(), "n1");
  record_files({"sys/table", "sys/cpu[0-9]/*", "sys/fifo", "sys/missing", "sys"}, folder.path("root"), out);
  out.finish();
  std::istringstream lines(unpacked(folder.path("n1.jsonl.gz")));
  std::map<std::string, std::string> found;
  for (std::string line; std::getline(lines, line);) {
    const json parsed = json::parse(line);
    found[parsed["path"]] = parsed["content"];
  }
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found["sys/cpu0/governor"], "performance\n");
  EXPECT_EQ(found["sys/table"].size(), 128U + 2 * 128U);  // characters above 127 take two bytes of UTF-8
  EXPECT_EQ(found["sys/table"].substr(128, 2), "\xc2\x80");
}

TEST(NodeLimits, NameResultsOutsideOfThemAndWrongResults) {
  const std::vector<Limit> limits{{"peak", "flop_rate", {{"threads", 2}}, 1e9, 1e12}};
  LimitCheck check(limits);
  const auto result = [](double value, int threads, const char* flags) {
    return R"({"type":"result","instrument":"peak","metric":"flop_rate","unit":"flop/s","value":)" +
           std::to_string(value) + R"(,"conditions":{"threads":)" + std::to_string(threads) + R"(},"flags":[)" + flags +
           "]}";
  };
  check.see(result(2e9, 2, ""));
  check.see(result(1e3, 1, ""));             // no limit applies
  check.see(result(1e3, 2, R"("stolen")"));  // disturbed
  check.see(R"({"type":"point"})");
  check.see("no JSON");
  EXPECT_EQ(check.compared(), 1U);
  EXPECT_TRUE(check.problems().empty());
  check.see(result(5e8, 2, ""));
  check.see(result(2e9, 2, R"("unverified")"));
  ASSERT_EQ(check.problems().size(), 2U);
  EXPECT_EQ(check.problems()[0], "peak flop_rate: 5e+08 flop/s, below 1e+09 (threads=2)");
  EXPECT_EQ(check.problems()[1], "peak flop_rate: a kernel computed a wrong result");
}

class NodeStep : public testing::Test {
 protected:
  StepEnd run(std::vector<std::string> argv, double limit_s) {
    const PlanStep step{"01", std::move(argv), limit_s, "n1-cafe"};
    return run_step(step, wall_s() + limit_s, interrupts, [this](std::string_view line) { lines.emplace_back(line); });
  }
  Interrupts interrupts;
  std::vector<std::string> lines;
};

TEST_F(NodeStep, MeasuresInAProcessOfItsOwnUnderTheNameOfTheNode) {
  const StepEnd end = run({"clock", "--clocks", "monotonic", "--budget", "100ms"}, 60);
  EXPECT_EQ(end.status, "ok") << end.reason;
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(json::parse(lines[0])["machine"], "n1-cafe");
  EXPECT_EQ(json::parse(lines.back())["type"], "end");
}

TEST_F(NodeStep, EndsWhenItsTimeIsUp) {
  EXPECT_EQ(run({"clock", "--budget", "60s", "--interval", "0.01"}, 0.05).status, "timed out");
}

TEST_F(NodeStep, ThatIsWrongFailsAlone) {
  const StepEnd end = run({"clock", "--budget", "never"}, 60);
  EXPECT_EQ(end.status, "failed");
  EXPECT_EQ(end.reason, "it ended with status 2");
  EXPECT_EQ(run({"clock", "--clocks", "monotonic", "--budget", "50ms"}, 60).status, "ok");
}

TEST_F(NodeStep, IsInterruptedBySignals) {
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(run({"clock", "--budget", "60s"}, 60).status, "interrupted");
}

}  // namespace
}  // namespace mm::node

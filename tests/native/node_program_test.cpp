#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "node/plan.hpp"
#include "node/run/process.hpp"
#include "node/run/scratch.hpp"
#include "node/run/step.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "temporary_folder.hpp"

namespace mm::node {
namespace {

/// A runner kills what runs under its name, and several of these tests run at once.
const std::string& own_name() {
  static const std::string name = "n" + std::to_string(::getpid());
  return name;
}

/// Programs of users on a node, through the process of a step.
class NodeProgram : public testing::Test {
 protected:
  NodeProgram() : scratch(folder.path().string(), own_name()) {
    program.timeout_s = 20;
    program.output = 1 << 20;
    program.tail_bytes = 1 << 10;
    program.failures = 2;
    program.verify_timeout_s = 20;
    program.verify_output = 1 << 20;
  }

  StepEnd run(const std::string& script, double limit_s = 60) {
    const PlanStep step{"01", {"/bin/sh", "-c", script}, limit_s, "n1-cafe", program, scratch.path()};
    return run(step);
  }

  StepEnd run(const PlanStep& step) {
    lines.clear();
    return run_step(step, wall_s() + step.limit_s, interrupts,
                    [this](std::string_view line) { lines.push_back(json::parse(line)); });
  }

  /// The process whose number a program has written.
  pid_t noted() const {
    pid_t pid = 0;
    std::ifstream(folder.path("pid")) >> pid;
    return pid;
  }

  static bool alive(pid_t pid) {
    const auto stat = parse_stat(read_text("/proc/" + std::to_string(pid) + "/stat"));
    return stat && stat->state != 'Z';
  }

  TemporaryFolder folder;
  ScratchFolder scratch;
  UserProgram program;
  Interrupts interrupts;
  std::vector<json> lines;
};

TEST_F(NodeProgram, RunsInFreshProcessesWithItsFilesVariablesAndOwnFolder) {
  program.warmup = 1;
  program.runs = 2;
  program.environment = {{"SIZE", "7"}};
  program.files = {{"sub/input", "text of it\n"}};
  program.results = "result";
  const StepEnd end = run("test ! -e result && echo $SIZE $$ && cat sub/input >&2 && echo late > result");
  EXPECT_EQ(end.status, "ok") << end.reason;
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["number"], 0);
  EXPECT_EQ(lines[2]["number"], 2);
  EXPECT_NE(lines[1]["out"], lines[2]["out"]) << "the number of the process";
  for (const json& line : lines) {
    EXPECT_EQ(line["type"], "run");
    EXPECT_EQ(line["how"], "status");
    EXPECT_EQ(line["code"], 0);
    EXPECT_EQ(line["out"].get<std::string>().substr(0, 2), "7 ");
    EXPECT_EQ(line["err"], "text of it\n");
    EXPECT_EQ(line["file"], "late\n");
    EXPECT_FALSE(line["cut"]);
    EXPECT_GT(line["minor_faults"], 0);
    EXPECT_GE(line["spent_s"], line["elapsed_s"]);
  }
}

TEST_F(NodeProgram, KnowsNothingOfTheJobOfItsNode) {
  const std::array<const char*, 9> names{"SLURM_JOB_ID",         "PMI_RANK",        "PMIX_RANK",
                                         "OMPI_COMM_WORLD_SIZE", "PBS_NODEFILE",    "LSB_HOSTS",
                                         "FLUX_JOB_ID",          "MPI_LOCALNRANKS", "HYDRA_HOST_FILE"};
  for (const char* name : names) ::setenv(name, "of the job", 1);
  ::setenv("OF_A_USER", "kept", 1);
  program.environment = {{"OMPI_MCA_btl", "self"}};
  program.verify = {"/bin/sh", "-c", "env | grep 'of the job'; test $? = 1"};
  const StepEnd end = run("env | grep 'of the job'; echo $OF_A_USER $OMPI_MCA_btl");
  EXPECT_EQ(end.status, "ok") << end.reason;
  EXPECT_EQ(lines.at(0)["out"], "kept self\n");
  EXPECT_STREQ(std::getenv("PMI_RANK"), "of the job") << "the runner itself keeps them";
  for (const char* name : names) ::unsetenv(name);
  ::unsetenv("OF_A_USER");
}

TEST_F(NodeProgram, HasTheMemoryOfItsOwnAndNotThatOfTheRunner) {
  EXPECT_EQ(run("head -c 200000000 /dev/zero | tail -c 199999999 > /dev/null").status, "ok");
  EXPECT_GT(lines.at(0)["peak_bytes"], 190'000'000);
  // Afterwards, since the thread sanitizer takes several times as much: more than that program.
  const std::vector<char> of_the_runner(std::size_t{64} << 20, 'x');
  EXPECT_EQ(run("exec true").status, "ok");
  EXPECT_LT(lines.at(0)["peak_bytes"], of_the_runner.size() / 2);
}

TEST_F(NodeProgram, CountsTheTimeOfAllItsProcesses) {
  EXPECT_EQ(run("(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait").status, "ok");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_GT(lines[0]["user_s"].get<double>(), 0.0);
  EXPECT_LT(lines[0]["user_s"].get<double>(), 1.5 * lines[0]["elapsed_s"].get<double>() + 0.1);
}

TEST_F(NodeProgram, ThatFailsRunsOnceMoreAndThenEnds) {
  program.runs = 5;
  const StepEnd end = run("echo broken; exit 3");
  EXPECT_EQ(end.status, "failed");
  EXPECT_EQ(end.reason, "2 of its runs failed");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1]["number"], 1);
  EXPECT_EQ(lines[1]["code"], 3);
  EXPECT_EQ(lines[1]["out"], "broken\n");
}

TEST_F(NodeProgram, ThatFailsOnceIsRepeatedAndGoesOn) {
  program.runs = 2;
  const std::string mark = folder.path("mark");
  EXPECT_EQ(run("test -e " + mark + " || { : > " + mark + "; kill -9 $$; }").status, "ok");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["how"], "signal");
  EXPECT_EQ(lines[0]["code"], SIGKILL);
  EXPECT_EQ(lines[1]["number"], 1);
  EXPECT_EQ(lines[2]["number"], 2);
}

TEST_F(NodeProgram, ThatIsNotInstalledIsAbsent) {
  PlanStep step{"01", {"no-such-program"}, 60, "n1-cafe", program, scratch.path()};
  const StepEnd end = run(step);
  EXPECT_EQ(end.status, "absent");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["how"], "missing");
}

TEST_F(NodeProgram, ThatIsThereAndCannotBeStartedIsNotTakenForAMissingOne) {
  const std::string script = folder.write("script", "#!/no/such/interpreter\n");
  const auto how_of = [&](const std::string& name) {
    EXPECT_FALSE(run(PlanStep{"01", {name}, 60, "n1-cafe", program, scratch.path()}).status == "ok");
    return lines.at(0)["how"];
  };
  EXPECT_EQ(how_of(script), "missing") << "it is not executable";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(how_of(script), "start");
  EXPECT_EQ(lines.size(), 2U);
  EXPECT_EQ(how_of(folder.path("none")), "missing");
  program.environment = {{"PATH", "/none:" + folder.path().string()}};
  EXPECT_EQ(how_of("script"), "start");
  EXPECT_EQ(how_of("none"), "missing");
}

TEST(NodeProcess, WhoseFolderCannotBeUsedIsNotTakenForAMissingOne) {
  const TemporaryFolder folder;
  const auto how_of = [&](const std::string& in, const std::string& out) {
    return run_to_end({.argv = {"true"}, .folder = in, .out = out, .err = out, .timeout_s = 20, .output = 1 << 20}).how;
  };
  EXPECT_EQ(how_of(folder.path().string(), folder.path("out")), "status");
  EXPECT_EQ(how_of(folder.path("none"), folder.path("out")), "folder");
  EXPECT_EQ(how_of(folder.path().string(), folder.path("none/out")), "folder");
}

TEST(NodeProcess, ThatDoesNotEndAfterItWasKilledIsGivenUp) {
  std::array<int, 2> pids{};
  ASSERT_EQ(::pipe(pids.data()), 0);
  const pid_t runner = ::fork();
  if (runner == 0) {
    ::alarm(60);
    const pid_t child = ::fork();
    if (child == 0)
      for (;;) ::pause();
    if (::write(pids[1], &child, sizeof child) != sizeof child) ::_exit(99);
    ::raise(SIGSTOP);
    const Rest rest = end_descendants(0.2);
    ::_exit(10 * rest.left + rest.stuck);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pids[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  int status = 0;
  ASSERT_EQ(::waitpid(runner, &status, WUNTRACED), runner);
  // The end of a process that another one traces is told to that one first.
  const bool traced = ::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) == 0;
  ::kill(runner, SIGCONT);
  ASSERT_EQ(::waitpid(runner, &status, 0), runner);
  if (!traced) GTEST_SKIP() << "no process may be traced here";
  EXPECT_TRUE(WIFEXITED(status)) << "it waits without a limit";
  EXPECT_EQ(WEXITSTATUS(status), 11);
  ::waitpid(child, &status, 0);
  ::close(pids[0]);
  ::close(pids[1]);
}

TEST_F(NodeProgram, ThatTakesTooLongIsEndedWithItsDescendants) {
  program.timeout_s = 0.3;
  // A descendant in a session of its own, which ignores the first signal.
  const std::string daemon =
      "setsid sh -c 'trap \"\" TERM; echo $$ > " + folder.path("pid") + "; sleep 600' & sleep 600";
  EXPECT_EQ(run(daemon).status, "failed");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["how"], "time");
  EXPECT_GT(noted(), 0);
  EXPECT_FALSE(alive(noted()));
}

TEST_F(NodeProgram, ThatLeavesProcessesRunningHasFailedAndTheyAreKilled) {
  const StepEnd end = run("setsid sleep 600 & echo $! > " + folder.path("pid"));
  EXPECT_EQ(end.status, "failed");
  EXPECT_GE(lines.at(0)["left"], 1);
  EXPECT_GT(noted(), 0);
  EXPECT_FALSE(alive(noted()));
}

TEST_F(NodeProgram, WhoseStepIsOverLeavesNoProcess) {
  EXPECT_EQ(run("setsid sleep 600 & echo $! > " + folder.path("pid") + "; wait", 1.0).status, "timed out");
  EXPECT_GT(noted(), 0);
  EXPECT_FALSE(alive(noted()));
}

TEST_F(NodeProgram, MayNotWriteMoreThanAllowedToAFileOrAltogether) {
  program.output = 100 << 10;
  EXPECT_EQ(run("exec head -c 200000 /dev/zero").status, "failed");
  EXPECT_EQ(lines.at(0)["how"], "signal");
  EXPECT_EQ(lines.at(0)["code"], SIGXFSZ);
  EXPECT_EQ(run("for i in 1 2 3; do head -c 90000 /dev/zero > $i; done; sleep 600").status, "failed");
  EXPECT_EQ(lines.at(0)["how"], "output");
  EXPECT_EQ(run("for i in 1 2 3; do head -c 90000 /dev/zero > $i; done").status, "failed") << "it ends before a look";
  EXPECT_EQ(lines.at(0)["how"], "output");
}

TEST_F(NodeProgram, MayNotTakeMoreMemoryThanAllowed) {
  program.memory = 64 << 20;
  EXPECT_EQ(run("head -c 200000000 /dev/zero | tail -c 199999999 > /dev/null").status, "failed");
  program.memory = 0;
  EXPECT_EQ(run("head -c 200000000 /dev/zero | tail -c 199999999 > /dev/null").status, "ok");
}

TEST_F(NodeProgram, KeepsTheEndOfWhatItPrints) {
  program.tail_bytes = 10;
  EXPECT_EQ(run("echo 0123456789abcdefghi; printf '\\377' >&2").status, "ok");
  EXPECT_EQ(lines.at(0)["out"], "abcdefghi\n");
  EXPECT_EQ(lines.at(0)["err"], "\xef\xbf\xbd") << "the replacement of bytes that are no UTF-8";
  EXPECT_TRUE(lines.at(0)["cut"]);
}

TEST_F(NodeProgram, IsVerifiedByACommandInItsFolder) {
  program.verify = {"/bin/sh", "-c", "echo checked; test $(cat result) = 4"};
  EXPECT_EQ(run("echo 4 > result").status, "ok");
  EXPECT_EQ(lines.at(0)["verify"]["code"], 0);
  EXPECT_EQ(run("echo 5 > result").status, "failed");
  EXPECT_EQ(lines.at(0)["verify"]["code"], 1);
  EXPECT_EQ(lines.at(0)["verify"]["out"], "checked\n");
  program.verify = {"/bin/sh", "-c", "head -c 200000 /dev/zero > big"};
  program.verify_output = 100'000;
  EXPECT_EQ(run("echo 4 > result").status, "failed");
  EXPECT_EQ(lines.at(0)["verify"]["code"], 128 + SIGXFSZ);
  program.verify = {"sleep", "600"};
  program.verify_timeout_s = 0.2;
  program.failures = 1;
  EXPECT_EQ(run("echo 4 > result").status, "failed");
  EXPECT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines.at(0)["verify"]["how"], "time");
  program.verify = {"no-such-verifier"};
  EXPECT_EQ(run("echo 4 > result").status, "failed");
  EXPECT_EQ(lines.at(0)["verify"]["how"], "missing");
}

TEST_F(NodeProgram, StartsInAnEmptyFolderAfterOneThatProtectedItsFiles) {
  program.runs = 2;
  EXPECT_EQ(run("test ! -e kept && mkdir kept && : > kept/file && chmod 500 kept").status, "ok");
}

TEST(NodeScratch, OfARunnerThatWasKilledIsEmptiedAndItsProcessesEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.path("meshmark-node-" + std::to_string(::geteuid()) + "-" + own_name());
  folder.write(path.substr(folder.path().string().size() + 1) + "/old/file", "text");
  const pid_t left = ::fork();
  if (left == 0) {
    ::setenv("MESHMARK_NODE_RUN", own_name().c_str(), 1);
    ::execlp("sleep", "sleep", "600", nullptr);
    ::_exit(127);
  }
  const auto marked = [&] {
    return read_text("/proc/" + std::to_string(left) + "/environ").find("MESHMARK_NODE_RUN=" + own_name()) !=
           std::string::npos;
  };
  for (const double end_s = wall_s() + 30; !marked() && wall_s() < end_s;) std::this_thread::yield();
  {
    const ScratchFolder scratch(folder.path().string(), own_name());
    EXPECT_EQ(scratch.path(), path);
    EXPECT_TRUE(std::filesystem::is_empty(path));
    int status = 0;
    EXPECT_EQ(::waitpid(left, &status, 0), left);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(NodeScratch, IsNotALinkOfSomebodyElse) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("elsewhere"));
  std::filesystem::create_symlink(folder.path("elsewhere"),
                                  folder.path("meshmark-node-" + std::to_string(::geteuid()) + "-" + own_name()));
  EXPECT_THROW(ScratchFolder(folder.path().string(), own_name()), Failure);
}

TEST(NodeProgramPlan, ThatIsWrongIsRefusedByItsField) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& program) -> std::string {
    try {
      read_plan(
          folder.write("plan.json",
                       R"({"format": "meshmark node plan", "version": 1, "id": "ab", "kind": "check", "alone": true,
                           "limit_s": 30, "steps": [{"id": "01", "argv": ["x"], "limit_s": 8, "program": )" +
                           program + "}]}"),
          "cafe");
    } catch (const Failure& why) {
      return why.what();
    }
    return "";
  };
  EXPECT_EQ(refused(R"({"timeout_s": 1, "output": 1, "kept": 1, "failures": 2, "files": {"a/b": ""}})"), "");
  const std::array<std::array<std::string, 2>, 6> wrong{{
      {R"({"timeout_s": 1, "output": 1, "kept": 1})", "program: has no failures"},
      {R"({"timeout_s": 1, "output": 1, "kept": 1, "failures": 2, "verify": ["x"]})",
       "program: has no verify_timeout_s"},
      {R"({"timeout_s": 0, "output": 1, "kept": 1, "failures": 2})", "program.timeout_s: found 0"},
      {R"({"timeout_s": 1, "output": 1, "kept": 1, "failures": 2, "files": {"../b": ""}})", "program.files: found"},
      {R"({"timeout_s": 1, "output": 1, "kept": 1, "failures": 2, "results": "/b"})", "program.results: found"},
      {R"({"timeout_s": 1, "output": 1, "kept": 1, "failures": 2, "environment": ["A"]})",
       "program.environment: found"},
  }};
  for (const auto& [program, message] : wrong) EXPECT_NE(refused(program).find(message), std::string::npos) << program;
}

}  // namespace
}  // namespace mm::node

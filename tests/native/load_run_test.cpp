/// Runs of small scenarios: when programs start, how they end, what is written of them, and that nobody stays.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "load/scenario/journal.hpp"
#include "load/scenario/run.hpp"
#include "temporary_folder.hpp"
#include "watch/canary.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::load {
namespace {

namespace fs = std::filesystem;

/// A run in a process of its own, whose lines are read to the end.
class LoadRun : public testing::Test {
 protected:
  void start(json plan) {
    plan.update({{"format", "meshmark load plan"}, {"version", 1}});
    folder_.write("plan.json", plan.dump());
    ASSERT_EQ(::pipe(ends_), 0);
    std::fflush(nullptr);  // what is buffered would be written by both
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends_[1], STDOUT_FILENO);
      ::close(ends_[0]), ::close(ends_[1]);
      std::string path = folder_.path("plan.json"), verb = "run";
      char* words[] = {verb.data(), path.data(), nullptr};
      int status = 99;
      try {
        status = run_verb(2, words);
      } catch (const std::exception& why) {
        std::fprintf(stderr, "%s\n", why.what());
      }
      std::fflush(stdout);
      ::_exit(status);
    }
    ::close(ends_[1]);
  }
  /// Reads until a line for which this holds; the whole output where none does.
  template <class Holds>
  void read_until(const Holds& holds) {
    char part[4096];
    for (ssize_t n; (n = ::read(ends_[0], part, sizeof part)) > 0 || (n < 0 && errno == EINTR);) {
      if (n < 0) continue;
      text_.append(part, static_cast<std::size_t>(n));
      bool found = false;
      for (std::size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
        lines.push_back(json::parse(text_.substr(0, end)));
        found = found || holds(lines.back());
      }
      if (found) return;
    }
  }
  int finish() {
    read_until([](const json&) { return false; });
    ::close(ends_[0]);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
  int run(const json& plan) {
    start(plan);
    return finish();
  }

  std::vector<json> all(const std::string& type) const {
    std::vector<json> found;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(found), [&](auto& l) { return l.at("type") == type; });
    return found;
  }
  json one(const std::string& type, const std::string& program = "", const std::string& event = "") const {
    for (const json& line : lines)
      if (line.at("type") == type && (program.empty() || line.value("program", "") == program) &&
          (event.empty() || line.value("event", "") == event))
        return line;
    ADD_FAILURE() << "no " << type << " " << event << " of " << program;
    return json::object();
  }

  const TemporaryFolder folder_;
  std::vector<json> lines;
  pid_t pid_ = 0;

 private:
  int ends_[2];
  std::string text_;
};

json program(const std::string& name, const std::vector<std::string>& argv, const json& more = json::object()) {
  json one{{"name", name}, {"argv", argv}};
  one.update(more);
  return one;
}

json shell(const std::string& name, const std::string& script, const json& more = json::object()) {
  return program(name, {"sh", "-c", script}, more);
}

TEST_F(LoadRun, ProgramsStartSoLongAfterTheCommonStart) {
  ASSERT_EQ(run({{"programs",
                  {program("late", {"true"}, {{"start_s", 0.3}}), program("first", {"true"}),
                   program("middle", {"true"}, {{"start_s", 0.1}})}}}),
            0);
  const double start_s = one("event", "", "start").at("t_s");
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, after_s] : {std::pair{"first", 0.0}, {"middle", 0.1}, {"late", 0.3}}) {
    const json total = one("total", name), released = one("event", name, "released");
    const double at_s = total.at("released_s"), late_s = released.at("late_s");
    EXPECT_GE(at_s, start_s + after_s - 1e-6) << name;
    EXPECT_NEAR(late_s, at_s - start_s - after_s, 1e-3) << name;
    EXPECT_GE(late_s, -1e-6);
    order.emplace_back(at_s, name);
    EXPECT_GE(released.at("t_s").get<double>(), at_s);
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  const json end = one("end");
  EXPECT_EQ(end.at("status"), "ok");
  EXPECT_GE(end.at("bench_s").get<double>(), 0.3);
  EXPECT_LE(end.at("bench_s").get<double>(), end.at("t_s").get<double>() - start_s + 1e-3);
  EXPECT_GE(end.at("sampling").at("share").get<double>(), 0);
  EXPECT_LE(end.at("sampling").at("share").get<double>(), 1);
}

TEST_F(LoadRun, TheTotalSaysHowEachProgramEnded) {
  EXPECT_EQ(run({{"programs",
                  {program("good", {"true"}), shell("bad", "exit 3"), shell("killed", "kill -9 $$"),
                   program("absent", {"no-such-program"}), program("good", {"true"}, {{"copy", 1}})}}}),
            1);
  const json good = one("total", "good"), bad = one("total", "bad"), killed = one("total", "killed");
  EXPECT_EQ(good.at("how"), "ok");
  EXPECT_EQ(good.at("status"), 0);
  EXPECT_EQ(bad.at("how"), "status");
  EXPECT_EQ(bad.at("status"), 3);
  EXPECT_EQ(killed.at("how"), "signal");
  EXPECT_EQ(killed.at("signal"), 9);
  EXPECT_FALSE(killed.contains("status"));
  const json absent = one("total", "absent");
  EXPECT_EQ(absent.at("how"), "failed");
  EXPECT_FALSE(absent.contains("wall_s"));
  EXPECT_NE(one("event", "absent", "failed").at("reason").get<std::string>().find("no-such-program"),
            std::string::npos);
  EXPECT_EQ(one("event", "bad", "exit").at("status"), 3);
  EXPECT_EQ(one("event", "killed", "exit").at("signal"), 9);
  EXPECT_EQ(one("event", "bad", "exit").at("pid"), bad.at("pid"));
  const auto totals = all("total");
  ASSERT_EQ(totals.size(), 5U);
  EXPECT_EQ(totals[4].at("copy"), 1);
  EXPECT_EQ(one("end").at("status"), "ok");
}

TEST_F(LoadRun, TimesOfAProgramAreThoseOfItsThreadsAndCloseTheirLedger) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer adds a thread to what becomes a program";
#endif
  // A busy shell with a busy child, which stays for longer than there is between two looks for new processes.
  const std::string busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
  ASSERT_EQ(
      run({{"sample_s", 0.02},
           {"programs",
            {shell("busy", "(" + busy + "; sleep 2; true) & " + busy + "; wait"), program("idle", {"sleep", "0.3"})}}}),
      0);
  const json busy_total = one("total", "busy"), idle = one("total", "idle");
  for (const json& t : {busy_total, idle})
    EXPECT_NEAR(t.at("wall_s").get<double>(), t.at("ended_s").get<double>() - t.at("released_s").get<double>(), 1e-6);
  EXPECT_GE(idle.at("wall_s").get<double>(), 0.29);
  EXPECT_EQ(idle.at("processes"), 1);
  EXPECT_EQ(idle.at("threads"), 1);
  EXPECT_GE(idle.at("sleeping_s").get<double>(), 0.2);
  // The only thread of a program has the same times as the program.
  EXPECT_EQ(one("thread_total", "idle").at("from_s"), idle.at("released_s"));
  // A sample may see it ended before its parent does.
  EXPECT_NEAR(one("thread_total", "idle").at("to_s").get<double>(), idle.at("ended_s").get<double>(), 0.02);
  EXPECT_GE(busy_total.at("processes").get<int>(), 2);
  EXPECT_GT(busy_total.at("user_s").get<double>(), 0.02);
  EXPECT_GE(busy_total.at("largest_bytes").get<std::int64_t>(), 100'000);
  EXPECT_GT(busy_total.at("minor_faults").get<int>(), 0);
  double user_s = 0, waiting_s = 0, sleeping_s = 0;
  int threads = 0;
  for (const json& t : all("thread_total")) {
    const double wall_s = t.at("to_s").get<double>() - t.at("from_s").get<double>();
    EXPECT_GE(wall_s, 0);
    EXPECT_GE(t.at("from_s").get<double>(), one("event", "", "start").at("t_s").get<double>() - 1e-3);
    if (wall_s > 0.1) {
      EXPECT_NEAR(t.at("closes").get<double>(), 1, 0.1) << t;
    }
    if (t.at("program") != "busy") continue;
    ++threads;
    user_s += t.at("user_s").get<double>() + t.at("system_s").get<double>();
    waiting_s += t.at("waiting_s").get<double>();
    sleeping_s += t.at("sleeping_s").get<double>();
  }
  EXPECT_EQ(busy_total.at("threads"), threads);
  EXPECT_NEAR(busy_total.at("waiting_s").get<double>(), waiting_s, 1e-6);
  EXPECT_NEAR(busy_total.at("sleeping_s").get<double>(), sleeping_s, 1e-6);
  EXPECT_LE(user_s, busy_total.at("user_s").get<double>() + busy_total.at("system_s").get<double>() + 0.02);
  EXPECT_GE(busy_total.at("unseen_s").get<double>(), 0);
  // What the samples say grew is what the threads have in the end, where each was seen from its birth.
  const auto samples = all("sample");
  EXPECT_GE(samples.size(), 2U);
  EXPECT_LE(one("end").at("samples").get<std::size_t>(), 200U);
  double ran_s = 0;
  for (const json& sample : samples)
    for (const json& thread : sample.at("threads")) {
      ASSERT_EQ(thread.size(), 7U);
      ran_s += 1e-9 * thread[3].get<double>();
    }
  double total_s = 0;
  for (const json& t : all("thread_total")) total_s += t.at("user_s").get<double>() + t.at("system_s").get<double>();
  EXPECT_NEAR(ran_s, total_s, 0.05 + 0.2 * total_s);
}

TEST_F(LoadRun, ATimeLimitEndsWhatIsLeftAndSaysSo) {
  EXPECT_EQ(run({{"timeout_s", 0.3},
                 {"programs",
                  {program("quick", {"true"}), program("sleeper", {"sleep", "60"}),
                   shell("stubborn", "trap '' TERM; while :; do sleep 0.05; done"),
                   program("never", {"true"}, {{"start_s", 100}})}}}),
            1);
  const json limit = one("event", "", "timeout"), end = one("end");
  EXPECT_EQ(limit.at("after_s"), 0.3);
  EXPECT_GE(limit.at("t_s").get<double>() - one("event", "", "start").at("t_s").get<double>(), 0.3 - 1e-6);
  EXPECT_EQ(end.at("status"), "timeout");
  EXPECT_EQ(one("total", "quick").at("how"), "ok");
  EXPECT_EQ(one("total", "sleeper").at("how"), "timeout");
  EXPECT_EQ(one("total", "sleeper").at("signal"), SIGTERM);
  EXPECT_EQ(one("total", "stubborn").at("how"), "timeout");
  EXPECT_EQ(one("total", "stubborn").at("signal"), SIGKILL);
  EXPECT_GE(one("total", "stubborn").at("ended_s").get<double>() - limit.at("t_s").get<double>(), 1.9)
      << "it had time to end by itself";
  EXPECT_LT(one("total", "sleeper").at("wall_s").get<double>(), 30);
  EXPECT_EQ(one("total", "never").at("how"), "failed");
  EXPECT_EQ(one("event", "never", "failed").at("reason"), "the run ended before its release");
}

TEST_F(LoadRun, ASignalEndsTheRunAndIsItsStatus) {
  start({{"programs", {program("sleeper", {"sleep", "60"}), program("never", {"true"}, {{"start_s", 100}})}}});
  read_until([](const json& line) { return line.value("event", "") == "released"; });
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 128 + SIGTERM);
  EXPECT_EQ(one("event", "", "stopped").at("signal"), SIGTERM);
  EXPECT_EQ(one("end").at("status"), "stopped");
  EXPECT_EQ(one("end").at("signal"), SIGTERM);
  EXPECT_EQ(one("total", "sleeper").at("how"), "stopped");
  EXPECT_EQ(one("total", "never").at("how"), "failed");
}

TEST_F(LoadRun, NobodyStays) {
  const fs::path told = folder_.path("pid");
  ASSERT_EQ(run({{"programs", {shell("parent", "sleep 600 & echo $! > " + told.string())}}}), 0);
  pid_t orphan = 0;
  std::ifstream(told) >> orphan;
  ASSERT_GT(orphan, 0);
  EXPECT_EQ(::kill(orphan, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(LoadRun, ProgramsRunWhereAndAsThePlanSays) {
  const fs::path out = folder_.path("out"), error = folder_.path("error"), work = folder_.path("work");
  fs::create_directory(work);
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) last = cpu;
  const json how{{"cpus", std::to_string(last)}, {"nice", 3},
                 {"env", {{"COLOUR", "blue"}}},  {"cwd", work.string()},
                 {"stdout", out.string()},       {"stderr", error.string()},
                 {"priority", "batch"}};
  const std::string script =
      "pwd; echo $COLOUR; grep Cpus_allowed_list /proc/self/status | cut -f2; nice; cut -d' ' -f41 /proc/self/stat; "
      "wc -c; echo oops >&2";
  ASSERT_EQ(run({{"programs", {shell("where", script, how)}}}), 0);
  std::ifstream in(out);
  std::vector<std::string> said;
  for (std::string line; std::getline(in, line);) said.push_back(line);
  const int nice = std::min(19, ::getpriority(PRIO_PROCESS, 0) + 3);
  EXPECT_EQ(said, (std::vector<std::string>{work.string(), "blue", std::to_string(last), std::to_string(nice),
                                            std::to_string(SCHED_BATCH), "0"}));
  std::string oops;
  std::ifstream(error) >> oops;
  EXPECT_EQ(oops, "oops");
  const json about = one("header").at("programs")[0];
  EXPECT_EQ(about.at("cpus"), std::to_string(last));
  EXPECT_EQ(about.at("nice"), 3);
  EXPECT_EQ(about.at("priority"), "batch");
  // The first thread alone: the thread sanitizer may start one in the child before it is placed.
  auto totals = all("thread_total");
  std::erase_if(totals, [](const json& total) { return total.at("pid") != total.at("tid"); });
  ASSERT_FALSE(totals.empty());
  for (const json& total : totals) EXPECT_EQ(total.at("cpus"), std::to_string(last)) << total;
}

TEST_F(LoadRun, WhatCannotBeSetUpIsSaidBeforeItStarts) {
  EXPECT_EQ(run({{"programs",
                  {program("folder", {"true"}, {{"cwd", "/no/such/folder"}}),
                   program("output", {"true"}, {{"stdout", "/no/such/file"}}),
                   shell("dying", "exit 4", {{"synthesised", true}})}}}),
            1);
  const auto reason = [&](const char* name) {
    EXPECT_EQ(one("total", name).at("how"), "failed") << name;
    return one("event", name, "failed").at("reason").get<std::string>();
  };
  EXPECT_NE(reason("folder").find("cwd /no/such/folder"), std::string::npos);
  EXPECT_NE(reason("output").find("/no/such/file"), std::string::npos);
  EXPECT_NE(reason("dying").find("ended with status 4 before its release"), std::string::npos);
}

TEST_F(LoadRun, AProgramThatIsNotReadyInTimeFails) {
  ASSERT_EQ(run({{"setup_s", 0.3}, {"programs", {shell("mute", "sleep 60", {{"synthesised", true}})}}}), 1);
  EXPECT_EQ(one("total", "mute").at("how"), "failed");
  EXPECT_EQ(one("event", "mute", "failed").at("reason"), "not ready after 0.3 s");
}

TEST_F(LoadRun, ASynthesisedProgramBeginsAtItsReleaseAndItsLinesAreKept) {
  const fs::path told = folder_.path("told");
  const std::string script = R"(sleep 0.05; echo '{"type":"ready","memory_bytes":4096}'
read go; echo "$go" > )" + told.string() +
                             R"(
echo '{"type":"window","t":1}'; echo nonsense; echo '[1]'
echo '{"type":"variant","program":"own","name":"v"}'; echo '{"type":"end","wall_s":2}')";
  ASSERT_EQ(run({{"programs", {shell("made", script, {{"synthesised", true}, {"copy", 2}})}}}), 0);
  std::string go;
  std::ifstream(told) >> go;
  EXPECT_EQ(go, "go");
  const json ready = one("event", "made", "ready");
  EXPECT_EQ(ready.at("memory_bytes"), 4096);
  EXPECT_GE(ready.at("setup_s").get<double>(), 0.05);
  EXPECT_LE(ready.at("setup_s").get<double>(), ready.at("t_s").get<double>());
  EXPECT_EQ(one("total", "made").at("setup_s"), ready.at("setup_s"));
  for (const auto& [type, key, value] :
       {std::tuple{"window", "t", json(1)}, {"variant", "name", json("v")}, {"done", "wall_s", json(2)}}) {
    const json line = one(type, "made");
    EXPECT_EQ(line.at("copy"), 2) << type;
    EXPECT_EQ(line.at(key), value) << type;
    EXPECT_GE(line.at("t_s").get<double>(), one("event", "made", "released").at("t_s").get<double>() - 1e-3);
  }
  EXPECT_TRUE(one("header").at("programs")[0].at("synthesised").get<bool>());
}

TEST_F(LoadRun, TheHeaderSaysWhatWasAskedAndUnderWhichConditions) {
  ASSERT_EQ(
      run({{"scenario", "night"}, {"sample_s", 0.25}, {"programs", {program("a", {"true"}, {{"start_s", 0.1}})}}}), 0);
  const json header = lines.front();
  EXPECT_EQ(header.at("type"), "header");
  EXPECT_EQ(header.at("instrument"), "load");
  EXPECT_EQ(header.at("scenario"), "night");
  EXPECT_EQ(header.at("sample_s"), 0.25);
  EXPECT_DOUBLE_EQ(header.at("tick_s"), 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(header.at("sample_columns").size(), 7U);
  EXPECT_FALSE(header.at("conditions").at("cpus_allowed").get<std::string>().empty());
  EXPECT_EQ(header.at("programs")[0], json::parse(R"({"program": "a", "copy": 0, "command": ["true"],
      "synthesised": false, "start_s": 0.1, "cpus": "", "nice": 0, "priority": "other", "memory": "", "nodes": ""})"));
  EXPECT_EQ(lines.back().at("type"), "end");
  for (const json& line : lines)
    if (line.at("type") == "event") {
      EXPECT_GE(line.at("t_s").get<double>(), 0);
    }
}

TEST_F(LoadRun, TheCanarySingsBeforeAndAfterForSoLong) {
  ASSERT_EQ(run({{"canary", {{"before_s", 0.1}, {"after_s", 0.1}}}, {"programs", {program("a", {"true"})}}}), 0);
  const auto sung = all("canary");
  if (!watch::can_flush()) GTEST_SKIP() << "no canary here";
  const double start_s = one("event", "", "start").at("t_s"), exit_s = one("event", "a", "exit").at("t_s");
  std::set<std::string> when;
  for (const json& one : sung) {
    when.insert(one.at("when").get<std::string>());
    EXPECT_EQ(one.at("t_s").get<double>() < start_s, one.at("when") == "before");
    EXPECT_EQ(one.at("t_s").get<double>() > exit_s, one.at("when") == "after");
    EXPECT_GT(one.at("load_latency_s").get<double>(), 0);
    EXPECT_GT(one.at("adds_s").get<double>(), 0);
  }
  EXPECT_EQ(when, (std::set<std::string>{"after", "before"}));
  lines.clear();
  ASSERT_EQ(run({{"programs", {program("a", {"true"})}}}), 0);
  EXPECT_TRUE(all("canary").empty());
}

TEST_F(LoadRun, TheCanaryIsSampledOnceASecondWhileProgramsRun) {
  if (!watch::can_flush()) GTEST_SKIP() << "no canary here";
  ASSERT_EQ(run({{"canary", {{"during", true}}}, {"programs", {program("a", {"sleep", "1.3"})}}}), 0);
  const auto samples = all("canary");
  EXPECT_GE(samples.size(), 1U);
  EXPECT_LE(static_cast<double>(samples.size()), one("end").at("bench_s").get<double>());
  for (const json& sample : samples) EXPECT_EQ(sample.at("when"), "during");
}

TEST_F(LoadRun, PagesOfAProgramAreCountedWhereTheyAre) {
  ASSERT_EQ(run({{"sample_s", 0.02}, {"programs", {program("a", {"sleep", "0.7"})}}}), 0);
  const json last = all("pages").back(), total = one("total", "a");
  EXPECT_EQ(last.at("program"), "a");
  EXPECT_EQ(last.at("pid"), total.at("pid"));
  EXPECT_EQ(last.at("bytes"), total.at("pages"));
  std::int64_t bytes = 0;
  for (const auto& [node, n] : total.at("pages").items()) bytes += n.get<std::int64_t>();
  EXPECT_GT(bytes, 100'000);
  EXPECT_LE(bytes, 2 * total.at("largest_bytes").get<std::int64_t>());
}

TEST_F(LoadRun, WhoWatchesIsNotifiedOfEveryEvent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::setenv("MESHMARK_NOTIFY", std::to_string(ends[1]).c_str(), 1);
  const int status = run({{"programs", {shell("a", "echo ${MESHMARK_NOTIFY-none} > " + folder_.path("told"))}}});
  EXPECT_EQ(status, 0);
  ::setenv("MESHMARK_NOTIFY", (std::to_string(ends[1]) + "x").c_str(), 1);
  const auto events = static_cast<ssize_t>(all("event").size());
  lines.clear();
  EXPECT_EQ(run({{"programs", {program("a", {"true"})}}}), 99);
  ::close(ends[1]);
  std::string bytes(1000, '\0');
  EXPECT_EQ(::read(ends[0], bytes.data(), bytes.size()), events);
  ::close(ends[0]);
  std::string told;
  std::ifstream(folder_.path("told")) >> told;
  EXPECT_EQ(told, "none") << "programs know nothing of it";
  for (const char* const wrong : {"", "2", "x", "3x", "100000"}) {
    ::setenv("MESHMARK_NOTIFY", wrong, 1);
    lines.clear();
    EXPECT_EQ(run({{"programs", {program("a", {"true"})}}}), 99) << wrong;
  }
  ::unsetenv("MESHMARK_NOTIFY");
}

TEST(MachineUse, IsTheGrowthOfTicksInSeconds) {
  CpuTimes before, after;
  before.busy = {100, 200};
  before.steal = {0, 10};
  after.busy = {150, 200, 7};
  after.steal = {0, 30, 7};
  const double tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(machine_use(before, after), json({{"busy_s", {50 * tick_s, 0.0}}, {"steal_s", {0.0, 20 * tick_s}}}));
}

}  // namespace
}  // namespace mm::load

/// meshmark-node: carries out a plan on a node of a fleet and leaves one file of results.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/arguments.hpp"
#include "base/resources/host.hpp"
#include "base/topology/topology.hpp"
#include "node/busy.hpp"
#include "node/limits.hpp"
#include "node/plan.hpp"
#include "node/run/recorded.hpp"
#include "node/run/result_file.hpp"
#include "node/run/scratch.hpp"
#include "node/run/step.hpp"
#include "node/turn.hpp"
#include "program/entry.hpp"
#include "sys/files.hpp"

namespace mm::node {
namespace {

constexpr const char* kProgram = "meshmark-node";
/// Exit statuses, as the node problem detector of Kubernetes defines them.
enum class Health { healthy = 0, problem = 1, unknown = 2 };

struct RunOptions {
  std::string plan, out = ".", name, scratch;
  bool beside = false, once = false, health = false;
  double spread_s = 0;
};

void check_name(const std::string& name) {
  const bool valid = !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  if (!valid || name[0] == '.' || name[0] == '-')
    throw UsageError("--name", "found " + quote(name), "the name of a node: letters, digits, _ . -");
}

json first_line_of(const Plan& plan, const std::string& name, const Identity& machine) {
  return {{"type", "node"},
          {"format", "meshmark node result"},
          {"version", 1},
          {"plan", plan.id},
          {"kind", plan.kind},
          {"name", name},
          {"hostname", host_name()},
          {"machine", machine.id()},
          {"hash", machine.hash},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"started", utc_now()},
          {"uptime_s", static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9},
          {"build", kBuild}};
}

json last_line(const std::string& status, double elapsed_s, const LimitCheck& check) {
  rusage own_use{}, children_use{};
  ::getrusage(RUSAGE_SELF, &own_use);
  ::getrusage(RUSAGE_CHILDREN, &children_use);
  const double cpu_s = seconds(own_use.ru_utime) + seconds(own_use.ru_stime) + seconds(children_use.ru_utime) +
                       seconds(children_use.ru_stime);
  return {{"type", "finished"},
          {"status", status},
          {"elapsed_s", elapsed_s},
          {"cpu_s", cpu_s},
          {"peak_bytes", std::max(own_use.ru_maxrss, children_use.ru_maxrss) * 1024},
          {"problems", check.problems()}};
}

/// Runs all steps. Returns "ok" or "interrupted".
std::string run_steps(const Plan& plan, double begun_s, Interrupts& interrupts, ResultFile& out, LimitCheck& check) {
  for (const PlanStep& step : plan.steps) {
    const double now = wall_s(), end_s = begun_s + plan.limit_s;
    StepEnd end{"left out", "the time limit of the plan was reached"};
    json begin{{"type", "step"}, {"id", step.id}, {"argv", step.argv}};
    if (step.program) begin["program"] = true;
    out.line(begin);
    if (interrupts.arrived())
      end = {"interrupted", "a signal was received"};
    else if (now < end_s)
      end = run_step(step, std::min(end_s, now + step.limit_s), interrupts, [&](std::string_view line) {
        if (is_retained(line)) out.text_line(line);
        check.see(line);
      });
    out.line({{"type", "step end"},
              {"id", step.id},
              {"status", end.status},
              {"reason", end.reason},
              {"elapsed_s", end.elapsed_s}});
    out.flush();
  }
  return interrupts.arrived() ? "interrupted" : "ok";
}

int print_health(Health health, const std::string& text) {
  static constexpr const char* kNames[] = {"healthy", "problem", "unknown"};
  std::printf("%s: %s\n", kNames[static_cast<int>(health)], text.c_str());
  return static_cast<int>(health);
}

int report_health(const LimitCheck& check, const std::string& hash) {
  if (const auto& problems = check.problems(); !problems.empty())
    return print_health(
        Health::problem,
        problems[0] + (problems.size() > 1 ? "; and " + std::to_string(problems.size() - 1) + " more" : ""));
  if (check.compared() == 0)
    return print_health(Health::unknown, "no result without a flag has a limit for hardware " + hash);
  return print_health(Health::healthy, std::to_string(check.compared()) + " results are within their limits");
}

int run_plan(const RunOptions& options) {
  Identity machine = identity_of_tree("");
  Plan plan = read_plan(options.plan, machine.hash);
  const std::string name = options.name.empty() ? machine.name : options.name;
  check_name(name);
  machine.name = name;
  for (PlanStep& step : plan.steps) step.machine = machine.id();
  if (options.spread_s > 0) {
    const double share = static_cast<double>(std::hash<std::string>{}(name) % 10'007) / 10'007;
    std::this_thread::sleep_for(std::chrono::duration<double>(share * options.spread_s));
  }
  const Turn turn(name, plan.limit_s);
  if (options.once && has_result(options.out, name)) {
    std::fprintf(stderr, "%s: %s has already been measured\n", kProgram, name.c_str());
    return 0;
  }
  // Before the check for other work, which may be processes that a killed runner left behind.
  std::optional<ScratchFolder> scratch;
  if (std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& step) { return step.program.has_value(); }))
    scratch.emplace(options.scratch, name);
  for (PlanStep& step : plan.steps) step.scratch = scratch ? scratch->path() : "";
  const double begun_s = wall_s();
  const std::string reason = plan.alone && !options.beside ? other_work() : "";
  Interrupts interrupts;  // from before the file exists until it is complete
  ResultFile out(options.out, name);
  LimitCheck check(plan.limits);
  out.line(first_line_of(plan, name, machine));
  if (!reason.empty()) {
    out.line(last_line("refused: " + reason, wall_s() - begun_s, check));
    out.finish();
    if (options.health) return print_health(Health::unknown, reason);
    throw Absent("this node runs other work: " + reason, "wait until it ends, or use --beside to measure beside it");
  }
  record_files(plan.files, "", out);
  topology();  // read once, and inherited by the process of each step
  out.flush();
  const std::string status = run_steps(plan, begun_s, interrupts, out, check);
  out.line(last_line(status, wall_s() - begun_s, check));
  out.finish(status == "interrupted");
  if (options.health) return report_health(check, machine.hash);
  for (const std::string& problem : check.problems())
    std::fprintf(stderr, "%s: problem: %s\n", kProgram, problem.c_str());
  return status == "ok" ? 0 : 1;
}

int answer_request(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  RunOptions options;
  Arguments app{
      "Carry out a plan on this node and write one file of results, NAME.jsonl.gz.\n\n"
      "example: meshmark-node plan.json --out /scratch/fleet/inbox",
      kProgram};
  app.add("PLAN", options.plan, "written by meshmark fleet run or check").required();
  app.add("--out", options.out, "folder of the results, or - for standard output").show_default();
  app.add("--name", options.name, "name of this node [its host name]");
  app.add("--scratch", options.scratch, "folder in which programs of users run [$TMPDIR, or /tmp]");
  app.flag("--beside", options.beside, "also run beside the work of others");
  app.flag("--once", options.once, "do nothing if the folder has results of this node");
  app.time("--spread", options.spread_s,
           "wait up to this time, which depends on the name, so that not all start at once");
  app.flag("--health", options.health,
           "print one line, and end with status 0 (healthy), 1 (a problem) or 2 (unknown), as node problem detectors "
           "require");
  if (!app.read(argc, argv, "")) return 0;
  try {
    return run_plan(options);
  } catch (const std::exception& error) {
    if (!options.health) throw;
    return print_health(Health::unknown, ending_of(error).message);
  }
}

}  // namespace
}  // namespace mm::node

int main(int argc, char** argv) {
  return mm::enter(mm::node::kProgram, [&] {
    try {
      return mm::node::answer_request(argc, argv);
    } catch (const std::exception& error) {
      return mm::print_ending(mm::node::kProgram, mm::ending_of(error));
    }
  });
}

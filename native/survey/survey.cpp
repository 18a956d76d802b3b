#include "survey/survey.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/arguments.hpp"
#include "base/resources/host.hpp"
#include "base/topology/topology.hpp"
#include "node/run/result_file.hpp"
#include "node/run/step.hpp"
#include "program/entry.hpp"
#include "survey/steps.hpp"
#include "survey/summary.hpp"
#include "sys/files.hpp"

namespace mm::survey {
namespace {

constexpr const char* kProgram = "meshmark-probe survey";

/// Returns the model of the processor, as the Linux kernel names it; "" if it does not.
std::string processor() {
  const std::string text = beginning_of("/proc/cpuinfo");
  const std::size_t at = text.find("model name");
  if (at == std::string::npos) return "";
  const std::size_t begin = text.find(':', at), end = text.find('\n', at);
  return begin < end && end != std::string::npos ? text.substr(begin + 2, end - begin - 2) : "";
}

std::string counted(std::size_t count, const std::string& name) {
  return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
}

std::string machine_text(const Machine& machine) {
  std::string text = machine_id() + ": ";
  if (const std::string model = processor(); !model.empty()) text += model + ", ";
  std::uint64_t bytes = 0;
  for (const Node& node : machine.nodes) bytes += node.bytes.value_or(0);
  text += counted(machine.allowed.size(), "CPU") + ", " + counted(machine.nodes.size(), "NUMA node");
  if (bytes > 0) text += ", " + with_unit(static_cast<double>(bytes), "B");
  return text + "\nLinux " + kernel_release() + ", meshmark " + kBuild + ", " + utc_now() + "\n";
}

/// Returns the time as it may stand in the name of a file: 20261130T024814.
std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%S", &utc)};
}

/// Returns a line for the file. The header names the run and the step, so that an import joins the steps.
std::string stored(std::string_view line, const std::string& run, const std::string& step) {
  if (!line.starts_with("{\"type\":\"header\"")) return std::string(line);
  json header = json::parse(line);
  header["run"] = run;
  header["step"] = step;
  return header.dump();
}

int measure(const std::string& folder, double budget_s) {
  const Machine& machine = topology();
  const std::string name = machine_id() + "-" + time_text();
  node::Interrupts interrupts;
  node::ResultFile out(folder, name);
  Results results;
  for (node::PlanStep& step : steps(machine, budget_s)) {
    if (interrupts.arrived()) break;
    std::fprintf(stderr, "%s: %s\n", kProgram, step.id.c_str());
    step.machine = machine_id();
    const node::StepEnd end = node::run_step(step, wall_s() + step.limit_s, interrupts, [&](std::string_view line) {
      if (node::is_retained(line)) out.text_line(stored(line, name, step.id));
      results.take(step.id, line);
    });
    if (end.status != "ok" && end.status != "absent") results.problem(step.id, end.reason);
    out.flush();
  }
  if (results.empty())
    throw Failure(interrupts.arrived() ? "interrupted before the first result" : "nothing was measured");
  out.finish(interrupts.arrived());
  const std::string path = (std::filesystem::path(folder == "." ? "" : folder) /
                            (name + (interrupts.arrived() ? "+interrupted" : "") + ".jsonl.gz"))
                               .string();
  std::printf("%s\n%s\nThe results are in %s; meshmark store import reads this file.\n", machine_text(machine).c_str(),
              results.summary(machine).c_str(), path.c_str());
  return interrupts.arrived() ? 1 : 0;
}

int answer_request(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::string folder = ".";
  double budget_s = 60;
  Arguments app{
      "Measure latency and bandwidth of caches, memory and NUMA nodes in a minute, print a table, and write the "
      "results "
      "to a file, MACHINE-TIME.jsonl.gz.\n\n"
      "example: meshmark-probe survey --out results",
      kProgram};
  app.add("--out", folder, "folder of the file").show_default();
  app.time("--budget", budget_s, "time for all steps [60s]", 1);
  if (!app.read(argc, argv, "")) return 0;
  return measure(folder, budget_s);
}

}  // namespace

int run(int argc, char** argv) {
  return enter(kProgram, [&] {
    try {
      return answer_request(argc, argv);
    } catch (const std::exception& error) {
      return print_ending(kProgram, ending_of(error));
    }
  });
}

}  // namespace mm::survey

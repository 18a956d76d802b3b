#include "survey/survey.hpp"

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/arguments.hpp"
#include "base/resources/host.hpp"
#include "base/text.hpp"
#include "base/topology/topology.hpp"
#include "node/run/result_file.hpp"
#include "node/run/step.hpp"
#include "program/entry.hpp"
#include "survey/steps.hpp"
#include "survey/summary.hpp"

namespace mm::survey {
namespace {

constexpr const char* kProgram = "meshmark-probe survey";
constexpr double kLongest_s = 24 * 3600;  // also the limit of an instrument

std::string machine_text(const Machine& machine) {
  std::string text = machine_id() + ": ";
  if (const std::string model = processor_of_tree(""); !model.empty()) text += model + ", ";
  std::uint64_t bytes = 0;
  for (const Node& node : machine.nodes) bytes += node.bytes.value_or(0);
  text += counted(machine.allowed.size(), "CPU") + ", " + counted(machine.nodes.size(), "NUMA node");
  if (bytes > 0) text += ", " + with_unit(static_cast<double>(bytes), "B");
  return text + "\nLinux " + kernel_release() + ", meshmark " + kBuild + ", " + utc_now() + "\n";
}

/// Returns the time as it may stand in the name of a file: 20261130T024814.
std::string time_text() {
  std::string text = utc_now();
  text.resize(text.find('.'));
  std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
  return text;
}

/// Returns a line for the file. The header names the run and the step, so that an import joins the steps.
std::string stored(std::string_view line, const std::string& run, const std::string& step) {
  if (!line.starts_with("{\"type\":\"header\"")) return std::string(line);
  json header = parse_json(line);
  if (!header.is_object()) return std::string(line);
  header["run"] = run;
  header["step"] = step;
  return to_line(header);
}

int measure(const std::string& folder, double budget_s) {
  const Machine& machine = topology();
  const std::string name = machine_id() + "-" + time_text();
  node::Interrupts interrupts;
  node::ResultFile out(folder, name);
  SurveyResults results;
  for (node::PlanStep& step : steps(machine, budget_s)) {
    if (interrupts.arrived()) break;
    std::fprintf(stderr, "%s: %s\n", kProgram, step.id.c_str());
    step.machine = machine_id();
    step.front = kProgram;
    const node::StepEnd end = node::run_step(step, wall_s() + step.limit_s, interrupts, [&](std::string_view line) {
      if (node::is_retained(line)) out.text_line(stored(line, name, step.id));
      results.take(step.id, line);
    });
    if (end.status != "ok" && end.status != "absent") results.problem(step.id, end.reason);
    out.flush();
  }
  const bool is_interrupted = interrupts.arrived();
  if (results.empty()) {
    const std::string reason = results.problems().empty() ? "" : ": " + shown(results.problems().front(), 300);
    throw Failure(is_interrupted ? "interrupted before the first result" : "nothing was measured" + reason);
  }
  out.finish(is_interrupted);
  const std::string path = std::filesystem::path(out.path()).lexically_normal().string();
  std::printf("%s\n%s\nThe results are in %s; meshmark store import reads this file.\n", machine_text(machine).c_str(),
              results.summary(machine).c_str(), path.c_str());
  return is_interrupted ? 1 : 0;
}

int answer_request(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::string folder = ".";
  double budget_s = 60;
  Arguments app{
      "Measure the latency of caches and memory, the bandwidth of memory, and the latency between cores and between "
      "NUMA nodes in a minute. Print a table, and write the results to a file, MACHINE-TIME.jsonl.gz.\n\n"
      "example: meshmark-probe survey --out results",
      kProgram};
  app.add("--out", folder, "folder of the file").show_default();
  app.time("--budget", budget_s, "time for all steps [60s]", 1, kLongest_s);
  if (!app.read(argc, argv, "")) return 0;
  if (folder == "-") throw UsageError("--out", "found '-'", "a folder");
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

#include "place/run/record.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/harness/provenance.hpp"
#include "base/harness/run_state.hpp"
#include "base/json.hpp"
#include "base/options/options.hpp"
#include "base/resources/host.hpp"
#include "base/topology/topology.hpp"
#include "place/command.hpp"
#include "place/describe.hpp"

namespace mm::place::job {

namespace {

bool any_of(const Report& report, std::initializer_list<Violation> which) {
  for (const ThreadVerdict& t : report.threads)
    for (const Violation v : t.violations)
      if (std::find(which.begin(), which.end(), v) != which.end()) return true;
  return false;
}

/// Returns the share of the bytes outside the expected nodes; null if no nodes are expected or nothing was observed.
json remote_share(const Totals& observed, const std::vector<int>& nodes) {
  std::uint64_t all = 0, expected = 0;
  for (const auto& [node, bytes] : observed.pages) {
    all += bytes;
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) expected += bytes;
  }
  if (all == 0 || nodes.empty()) return nullptr;
  return 1 - static_cast<double>(expected) / static_cast<double>(all);
}

std::string arguments_of(const Options& o) {
  std::string arguments;
  for (std::size_t i = 1; i < o.recorded.size(); ++i) arguments += (i > 1 ? " " : "") + o.recorded[i];
  return arguments;
}

/// Returns the conditions of the run and of its observation, and adds the flags of the run.
json conditions_of(const Options& o, const CommandPlacement& job, const CommandOutcome& outcome,
                   const std::optional<Totals>& observed, std::vector<std::string>& flags) {
  const std::string threads = variable("OMP_NUM_THREADS");
  std::vector<int> nodes = requested_nodes(job.machine, job.memory, job.cpus);
  const auto& request = job.request;
  const std::string program = o.command[0].substr(o.command[0].rfind('/') + 1);
  json conditions{{"program", program},
                  {"arguments", arguments_of(o).substr(0, 4096)},
                  {"policy", request.policy},
                  {"slots", job.placement.layout.parts.size()},
                  {"slot_kind", name(request.kind)},
                  {"cpus", cpu_list(job.cpus)},
                  {"cpus_relative", cpu_list(relative(job.cpus, job.machine.allowed))},
                  {"each", o.each || !o.launcher.empty()},
                  {"binding", job.cpus.empty() ? "none"
                              : o.hard         ? "hard"
                                               : "soft"},
                  {"memory", job.memory.policy},
                  {"memory_nodes", cpu_list(nodes)},
                  {"pages", job.memory.pages},
                  {"threads", threads.empty() ? json(nullptr) : json(threads)},
                  {"minor_faults", outcome.use.ru_minflt},
                  {"major_faults", outcome.use.ru_majflt},
                  {"switches_involuntary", outcome.use.ru_nivcsw},
                  {"largest_bytes", outcome.use.ru_maxrss << 10},
                  {"load_1min", load_1min()}};
  if (const std::string kinds = kind_names(job.machine, job.cpus); !kinds.empty()) conditions["core_kinds"] = kinds;
  if (job.placement.oversubscribed) flags.emplace_back("oversubscribed");
  if (outcome.report && observed) {
    if (nodes.empty())
      for (const int cpu : job.cpus) nodes.push_back(job.machine.cpu(cpu).node);
    conditions["held"] = outcome.report->held;
    conditions["migrations"] = observed->migrations;
    conditions["huge_bytes"] = observed->huge_bytes;
    conditions["remote_share"] = remote_share(*observed, nodes);
    if (any_of(*outcome.report, {Violation::mask_changed, Violation::ran_outside, Violation::doubled}))
      flags.emplace_back("migrated");
    if (any_of(*outcome.report, {Violation::wrong_node, Violation::spilled})) flags.emplace_back("misplaced");
  }
  return conditions;
}

}  // namespace

std::string record_lines(const Options& o, const CommandPlacement& job, const CommandOutcome& outcome) {
  const std::string& machine = machine_id();
  const json provenance{{"build", kBuild},
                        {"compiler", kCompiler},
                        {"command", "run " + o.recorded[0] + " " + arguments_of(o)},
                        {"kernel", kernel_release()},
                        {"start", outcome.start},
                        {"duration_s", outcome.elapsed_s}};
  const std::optional<Totals> observed = outcome.report ? std::optional(totals(*outcome.report)) : std::nullopt;
  std::vector<std::string> flags;
  const json conditions = conditions_of(o, job, outcome, observed, flags);
  std::vector<json> lines = {{{"type", "header"},
                              {"schema", 1},
                              {"instrument", "run"},
                              {"machine", machine},
                              {"provenance", provenance},
                              {"conditions", host_conditions()},
                              {"parameters", {{"command", o.recorded}}},
                              {"points", 1}}};
  const bool succeeded = WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0 && !outcome.timed_out;
  if (succeeded) {
    std::map<std::string, double> values = {{"elapsed", outcome.elapsed_s},
                                            {"user", seconds(outcome.use.ru_utime)},
                                            {"system", seconds(outcome.use.ru_stime)}};
    if (observed)
      values["waiting"] = observed->waiting_s;
    else
      lines.push_back({{"type", "absent"},
                       {"instrument", "run"},
                       {"metric", "waiting"},
                       {"conditions", json::object()},
                       {"reason", "waiting times require samples of every thread"},
                       {"enable", "--verify"}});
    // The point distinguishes runs in one file: the same command twice yields two results.
    const std::string point = outcome.start + " " + std::to_string(getpid());
    for (const Metric& metric : run_metrics()) {
      const auto entry = values.find(metric.name);
      if (entry == values.end()) continue;
      const double value = entry->second;
      lines.push_back({{"type", "result"},
                       {"schema", 1},
                       {"source", "host"},
                       {"machine", machine},
                       {"instrument", "run"},
                       {"metric", metric.name},
                       {"unit", metric.unit},
                       {"better", better_name(metric.better)},
                       {"value", value},
                       {"interval", nullptr},
                       {"samples", {value}},
                       {"flags", flags},
                       {"conditions", conditions},
                       {"provenance", provenance},
                       {"point", point}});
    }
  } else {
    const std::string ending = outcome.timed_out ? "was ended by --timeout"
                               : WIFSIGNALED(outcome.status)
                                   ? "was ended by signal " + std::to_string(WTERMSIG(outcome.status))
                                   : "ended with status " + std::to_string(WEXITSTATUS(outcome.status));
    lines.push_back(
        {{"type", "error"}, {"field", nullptr}, {"message", "the command " + ending}, {"allowed", nullptr}});
  }
  if (outcome.report)
    lines.push_back({{"type", "note"},
                     {"kind", "placement"},
                     {"conditions", conditions},
                     {"node_bytes", by_node(observed->pages)},
                     {"report", to_json(*outcome.report)}});
  lines.push_back({{"type", "end"},
                   {"status", succeeded ? "ok" : "error"},
                   {"elapsed_s", outcome.elapsed_s},
                   {"points", succeeded ? 1 : 0},
                   {"resumed", 0},
                   {"overhead", 0}});
  std::string text;
  for (const json& line : lines) text += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return text;
}

void append_record(int file, const std::string& path, std::string lines) {
  char last = '\n';
  if (const off_t end = lseek(file, 0, SEEK_END); end > 0 && pread(file, &last, 1, end - 1) == 1 && last != '\n')
    lines = "\n" + lines;  // separates an incomplete line before it
  if (write(file, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
    throw Failure("record: cannot write " + quote(path) + ": " + errno_text());
}

}  // namespace mm::place::job

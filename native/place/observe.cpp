#include "place/observe.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/binding/bind.hpp"
#include "place/command.hpp"
#include "place/observe/memory.hpp"
#include "place/observe/parts.hpp"
#include "place/observe/text.hpp"
#include "place/observe/threads.hpp"
#include "place/observe/tree.hpp"
#include "place/observe/verdict.hpp"

namespace mm::place {

using observe::ObservedProcess;

std::string name(Violation violation) {
  switch (violation) {
    case Violation::none:
      return "none";
    case Violation::mask_changed:
      return "mask_changed";
    case Violation::ran_outside:
      return "ran_outside";
    case Violation::doubled:
      return "doubled";
    case Violation::wrong_node:
      return "wrong_node";
    default:
      return "spilled";
  }
}

struct Observer::State {
  State(const Machine& machine, pid_t root, Expectation expected)
      : context(machine, root, std::move(expected)), tree(context), threads(context), parts(context), memory(context) {}

  void sample() {
    const double begin = observe::thread_cpu_s(), now = context.elapsed();
    ++samples;
    for (auto& [id, process] : tree.living) tree.find_threads(process);
    tree.find_children();
    for (auto at = tree.living.begin(); at != tree.living.end();) {
      ObservedProcess& process = at->second;
      if (process.threads.empty()) tree.find_threads(process);
      for (auto& [id, thread] : process.threads)
        if (!thread.ended) threads.sample(process, thread);
      if (process.ended) {
        tree.ended.push_back(std::move(process));
        at = tree.living.erase(at);
      } else {
        ++at;
      }
    }
    parts.update(tree.living, now);
    const double memory_cost_s = memory.cost_s();
    for (auto& [id, process] : tree.living) memory.update(process, now);
    const double cost = observe::thread_cpu_s() - begin - (memory.cost_s() - memory_cost_s);
    sample_cost_s += cost;
    if (samples > 1) paced_s += cost;  // the first sample also loads the observer's code and data
  }

  double next_s() const {
    constexpr double kSampleDuty = 0.05;  // share of the time that samples may take
    const double now = context.elapsed();
    return std::clamp((paced_s - 0.005) / kSampleDuty - now, std::clamp(now / 10, 0.001, 0.1), 1.0);
  }

  Report report() const {
    Report report;
    report.samples = samples;
    report.seconds = context.elapsed();
    report.cost_s = sample_cost_s + memory.cost_s();
    report.cgroup_cpus = context.cgroup_cpus;
    report.absent.assign(context.absent.begin(), context.absent.end());
    observe::Verdict(context, tree.all()).write(report);
    return report;
  }

  observe::Context context;
  observe::ProcessTree tree;
  observe::ThreadSampler threads;
  observe::SharedPartDetector parts;
  observe::PageCensus memory;
  double sample_cost_s = 0, paced_s = 0;
  int samples = 0;
};

Observer::Observer(const Machine& machine, pid_t root, Expectation expected)
    : state_(std::make_unique<State>(machine, root, std::move(expected))) {}
Observer::~Observer() = default;
void Observer::sample() { state_->sample(); }
double Observer::next_s() const { return state_->next_s(); }
Report Observer::report() const { return state_->report(); }
Totals totals(const Report& report) {
  Totals all;
  for (const ThreadVerdict& thread : report.threads) {
    all.waiting_s += thread.waiting_s;
    all.migrations += std::max(thread.migrations, 0LL);
    all.migrations_known = all.migrations_known && thread.migrations >= 0;
    all.huge_bytes += thread.huge_bytes;
    for (const auto& [node, bytes] : thread.pages) all.pages[node] += bytes;
  }
  return all;
}

json to_json(const Report& report) {
  json threads = json::array();
  for (const ThreadVerdict& thread : report.threads) {
    json entry{{"process", thread.process},
               {"thread", thread.thread},
               {"command", thread.command},
               {"allowed", cpu_list(thread.allowed)}};
    if (!report.cgroup_cpus.empty()) entry["allowed_relative"] = cpu_list(relative(thread.allowed, report.cgroup_cpus));
    entry["ran_on"] = cpu_list(thread.ran_on);
    entry["migrations"] = thread.migrations < 0 ? json() : json(thread.migrations);
    entry["user_s"] = thread.user_s;
    entry["system_s"] = thread.system_s;
    entry["waiting_s"] = thread.waiting_s;
    if (!thread.pages.empty() || !thread.file_pages.empty()) {
      entry["pages"] = by_node(thread.pages);
      entry["file_pages"] = by_node(thread.file_pages);
      entry["huge_bytes"] = thread.huge_bytes;
    }
    json violations = json::array();
    for (const Violation v : thread.violations) violations.push_back(name(v));
    entry["violations"] = violations;
    if (!thread.explanation.empty()) entry["said"] = thread.explanation;
    threads.push_back(entry);
  }
  const Totals all = totals(report);
  return {{"held", report.held},
          {"samples", report.samples},
          {"seconds", report.seconds},
          {"cost_s", report.cost_s},
          {"pages", by_node(all.pages)},
          {"huge_bytes", all.huge_bytes},
          {"migrations", all.migrations_known ? json(all.migrations) : json()},
          {"findings", report.findings},
          {"absent", report.absent},
          {"threads", threads}};
}

std::string to_text(const Report& report) {
  std::size_t violating = 0;
  std::set<pid_t> processes;
  for (const ThreadVerdict& thread : report.threads) {
    violating += !thread.violations.empty();
    processes.insert(thread.process);
  }
  char effort[96];
  std::snprintf(effort, sizeof effort, "%d samples in %.2f s, %.1f ms of CPU time", report.samples, report.seconds,
                report.cost_s * 1e3);
  std::string text = report.held ? "placement held: " : "placement did not hold: " + std::to_string(violating) + " of ";
  text += counted(report.threads.size(), "thread") + " in " + counted(processes.size(), "process", "processes") + ", " +
          effort + "\n";
  for (const std::string& finding : report.findings) text += "  " + finding + "\n";
  for (const std::string& absent : report.absent) text += "  absent: " + absent + "\n";
  return text;
}

}  // namespace mm::place

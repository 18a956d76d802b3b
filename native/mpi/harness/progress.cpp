#include "mpi/harness/progress.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/marks.hpp"
#include "base/stats.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {
namespace {

constexpr useconds_t kReading_us = 300;  // leaves a CPU to the program that reads the output

/// The conditions that identify a case to a reader.
std::string label(const Case& c) {
  std::string text;
  for (const char* key : {"paradigm", "protocol", "operation", "algorithm", "mode", "distance", "from_rank", "to_rank",
                          "words", "message_bytes", "kernel", "class"})
    if (c.conditions.contains(key)) {
      const json& value = c.conditions[key];
      text += (text.empty() ? "" : ", ") + std::string(key) + " " +
              (value.is_string() ? value.get<std::string>() : value.dump());
    }
  return text.empty() ? c.metric : text;
}

}  // namespace

std::vector<double> CaseProgress::samples(bool undisturbed) const {
  std::vector<double> all;
  for (const Block& b : blocks)
    if (!undisturbed || b.marks == 0) all.push_back(b.seconds * spec.share);
  return all;
}

bool CaseProgress::undisturbed_only() const {
  const auto clean = samples(true).size();
  return !World::get().oversubscribed() && clean >= kMinSamples && 2 * clean >= blocks.size();
}

double CaseProgress::share_marked(int marks) const {
  const auto n = std::count_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.marks & marks; });
  return static_cast<double>(n) / static_cast<double>(blocks.size());
}

std::vector<std::string> CaseProgress::flags() const {
  std::vector<std::string> all;
  const bool clean = undisturbed_only();
  if (!clean && share_marked(~0) > 0.25) all.emplace_back("disturbed");
  if (!clean && share_marked(kStolen) > 0.25) all.emplace_back("stolen");
  if (!clean && share_marked(kMoved) > 0) all.emplace_back("migrated");
  if (World::get().oversubscribed()) all.emplace_back("oversubscribed");
  return all;
}

bool CaseProgress::enough(double percent) const {
  const auto kept = samples(!World::get().oversubscribed());
  return kept.size() >= kMinSamples && inside_width(kept, percent);
}

void CaseProgress::report_absent(Run& run) const {
  if (failure.empty()) return;
  json conditions = spec.conditions;
  conditions.update({{"ranks", World::get().size()}, {"mpi", World::get().kind()}});
  run.absent(spec.metric, conditions, label(spec) + ": " + failure, spec.enable);
}

json CaseProgress::observed_conditions() const {
  double fastest = 0, slowest = 0;
  for (std::size_t r = 0; r < blocks.front().ranks.size(); ++r) {
    std::vector<double> values;
    for (const Block& b : blocks) values.push_back(b.ranks[r]);
    const double m = median(values) * spec.share;
    fastest = r == 0 ? m : std::min(fastest, m);
    slowest = std::max(slowest, m);
  }
  std::string cpus;
  for (const json& cpu : World::get().gather(sched_getcpu()))
    cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu.get<int>());
  json conditions = {{"block_iterations", iterations}, {"disturbed_share", share_marked(~0)},
                     {"blocks", blocks.size()},        {"fastest_rank", fastest},
                     {"slowest_rank", slowest},        {"rank_cpus", cpus}};
  if (spec.observe) conditions.update(spec.observe());
  return conditions;
}

void CaseProgress::finish(Run& run, double percent) {
  done = true;
  if (blocks.empty()) return report_absent(run);
  // Written only now: the program that reads a line needs a CPU, often that of a rank.
  for (const Block& b : blocks) {
    Values line = {b.seconds};
    line.insert(line.end(), b.ranks.begin(), b.ranks.end());
    run.sample(index, line, b.marks, b.begun_s);
  }
  const bool clean = undisturbed_only();
  const std::vector<double> kept = samples(clean);
  value = median(kept);
  const std::vector<std::string> all = flags();
  if (spec.flags) spec.flags->insert(all.begin(), all.end());
  if (spec.rounds)
    for (const Block& b : blocks)
      spec.rounds->push_back(clean && b.marks != 0 ? std::numeric_limits<double>::quiet_NaN() : b.seconds * spec.share);
  json conditions = spec.conditions;
  conditions.update(World::get().conditions());
  conditions.update(observed_conditions());
  conditions["interval_asked"] = percent / 100;
  run.report(index, spec.metric, kept, conditions, all, start, spent_s);
  if (spec.bytes > 0) {
    std::vector<double> rates;
    for (const double s : kept) rates.push_back(spec.bytes * spec.share / s);
    run.report(index, "bandwidth_net", rates, conditions, all, start, spent_s);
  }
  for (std::size_t m = 0; m < spec.extra_metrics.size(); ++m) {
    std::vector<double> values;
    for (const Block& b : blocks)
      if (!clean || b.marks == 0) values.push_back(b.extra[m]);
    run.report(index, spec.extra_metrics[m], values, conditions, all, start, spent_s);
  }
  run.finish(index, conditions);
  if (World::get().rank() == 0 && !World::get().oversubscribed()) usleep(kReading_us);
}

void CaseProgress::finish_out_of_budget(Run& run, double percent) {
  const Absent why = run.out_of_budget();
  failure = why.what();
  spec.enable = why.enable;
  finish(run, percent);
}

void CaseProgress::restore(Run& run) {
  for (const auto& [values, marks] : run.earlier(index))  // empty except on rank 0
    if (!values.empty()) blocks.push_back({values.front(), marks, {}, {}, 0});
  if (!blocks.empty()) {
    value = median(samples(undisturbed_only()));
    if (const auto all = flags(); spec.flags) spec.flags->insert(all.begin(), all.end());
  }
  const json result = World::get().broadcast(value);  // NaN is null in JSON
  if (result.is_number()) value = result.get<double>();
}

}  // namespace mm::mpi

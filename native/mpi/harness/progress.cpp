#include "mpi/harness/progress.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/harness/stats.hpp"
#include "base/marks.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi {
namespace {

constexpr useconds_t kReading_us = 300;  // leaves a CPU to the program that reads the output

/// Returns the conditions that identify a case to a reader.
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
  std::vector<double> times_s;
  for (const BlockSample& b : blocks)
    if (!undisturbed || b.marks == 0) times_s.push_back(b.seconds * spec.share);
  return times_s;
}

bool CaseProgress::undisturbed_only() const {
  const auto clean = samples(true).size();
  return !World::get().oversubscribed() && clean >= kMinSamples && 2 * clean >= blocks.size();
}

double CaseProgress::share_marked(int marks) const {
  const auto n = std::count_if(blocks.begin(), blocks.end(), [&](const BlockSample& b) { return b.marks & marks; });
  return static_cast<double>(n) / static_cast<double>(blocks.size());
}

std::vector<std::string> CaseProgress::flags() const {
  std::vector<std::string> names;
  const bool clean = undisturbed_only();
  if (!clean && share_marked(~0) > 0.25) names.emplace_back("disturbed");
  if (!clean && share_marked(kStolen) > 0.25) names.emplace_back("stolen");
  if (!clean && share_marked(kMoved) > 0) names.emplace_back("migrated");
  if (World::get().oversubscribed()) names.emplace_back("oversubscribed");
  return names;
}

bool CaseProgress::enough(double percent) const {
  const auto retained = samples(!World::get().oversubscribed());
  return retained.size() >= kMinSamples && inside_width(retained, percent);
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
    for (const BlockSample& b : blocks) values.push_back(b.ranks[r]);
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
  // The samples are written only now, because the program that reads a line needs a CPU, often the CPU of a rank.
  for (const BlockSample& b : blocks) {
    Values line = {b.seconds};
    line.insert(line.end(), b.ranks.begin(), b.ranks.end());
    run.sample(index, line, b.marks, b.begun_s);
  }
  const bool clean = undisturbed_only();
  const std::vector<double> retained = samples(clean);
  value = median(retained);
  const std::vector<std::string> all_flags = flags();
  if (spec.flags) spec.flags->insert(all_flags.begin(), all_flags.end());
  if (spec.rounds)
    for (const BlockSample& b : blocks)
      spec.rounds->push_back(clean && b.marks != 0 ? std::numeric_limits<double>::quiet_NaN() : b.seconds * spec.share);
  json conditions = spec.conditions;
  conditions.update(World::get().conditions());
  conditions.update(observed_conditions());
  conditions["interval_asked"] = percent / 100;
  run.report(index, spec.metric, retained, conditions, all_flags, start, spent_s);
  if (spec.bytes > 0) {
    std::vector<double> rates;
    for (const double s : retained) rates.push_back(spec.bytes * spec.share / s);
    run.report(index, "bandwidth_net", rates, conditions, all_flags, start, spent_s);
  }
  for (std::size_t m = 0; m < spec.extra_metrics.size(); ++m) {
    std::vector<double> values;
    for (const BlockSample& b : blocks)
      if (!clean || b.marks == 0) values.push_back(b.extra[m]);
    run.report(index, spec.extra_metrics[m], values, conditions, all_flags, start, spent_s);
  }
  run.finish(index, conditions);
  if (World::get().rank() == 0 && !World::get().oversubscribed()) usleep(kReading_us);
}

void CaseProgress::finish_out_of_budget(Run& run, double percent) {
  const Absent error = run.out_of_budget();
  failure = error.what();
  spec.enable = error.enable;
  finish(run, percent);
}

void CaseProgress::restore(Run& run) {
  for (const auto& [values, marks] : run.earlier(index))  // empty except on rank 0
    if (!values.empty()) blocks.push_back({values.front(), marks, {}, {}, 0});
  if (!blocks.empty()) {
    value = median(samples(undisturbed_only()));
    if (const auto names = flags(); spec.flags) spec.flags->insert(names.begin(), names.end());
  }
  const json result = World::get().broadcast(value);  // NaN is null in JSON
  if (result.is_number()) value = result.get<double>();
}

}  // namespace mm::mpi

#include "node/busy.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/resources/host.hpp"
#include "base/text.hpp"
#include "sys/files.hpp"

namespace mm::node {
namespace {

constexpr double kBusyCpus = 0.5;  // sum over all CPUs; less is the noise of an idle operating system

/// Returns the jobs whose steps run here, except this job, from titles such as `slurmstepd: [123.batch]`.
std::set<std::string> other_jobs() {
  const char* const variable = std::getenv("SLURM_JOB_ID");
  const std::string own_job = variable == nullptr ? "" : variable;
  std::set<std::string> jobs;
  for (const pid_t pid : numbers_in("/proc")) {
    const std::string title = read_text("/proc/" + std::to_string(pid) + "/cmdline");
    if (!title.starts_with("slurmstepd: [")) continue;
    const std::size_t begin = title.find('[') + 1, end = title.find_first_of(".]", begin);
    if (const std::string job = title.substr(begin, end - begin); end != std::string::npos && job != own_job)
      jobs.insert(job);
  }
  return jobs;
}

double busy_cpus() {
  const CpuTimes before = read_cpu_times();
  const double begin_s = wall_s();
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  const CpuTimes after = read_cpu_times();
  long long ticks = 0;
  for (std::size_t i = 0; i < std::min(before.busy.size(), after.busy.size()); ++i)
    ticks += after.busy[i] - before.busy[i];
  return static_cast<double>(ticks) / ticks_per_second() / (wall_s() - begin_s);
}

}  // namespace

std::string other_work() {
  if (const auto jobs = other_jobs(); !jobs.empty()) {
    std::string names;
    for (const std::string& job : jobs) names += (names.empty() ? "" : ", ") + shown(job);
    return (jobs.size() == 1 ? "job " : "jobs ") + names + (jobs.size() == 1 ? " runs here" : " run here");
  }
  const double busy = busy_cpus();
  char text[64];
  std::snprintf(text, sizeof text, "%.1f CPUs are busy", busy);
  return busy > kBusyCpus ? text : "";
}

}  // namespace mm::node

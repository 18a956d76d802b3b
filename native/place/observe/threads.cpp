#include "place/observe/threads.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/options/options.hpp"
#include "place/observe/text.hpp"

namespace mm::place::observe {

namespace {

/// A mask that lasts no longer than this, not counting waits for a CPU, and is followed by the expected one, is
/// ignored.
constexpr double kPassingS = 0.05;

/// Returns the environment variables of a process, at its start, that show what binds its threads.
std::map<std::string, std::string> binding_variables(pid_t process) {
  static constexpr const char* kNames[] = {
      "OMP_PROC_BIND", "OMP_PLACES",   "GOMP_CPU_AFFINITY", "KMP_AFFINITY",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
      "PMI_RANK",      "SLURM_PROCID", "FLUX_TASK_RANK",    "I_MPI_PIN_DOMAIN", "MV2_ENABLE_AFFINITY"};
  std::map<std::string, std::string> variables;
  const std::string text = read_text("/proc/" + std::to_string(process) + "/environ");
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
    const std::string entry = text.c_str() + at;
    const std::size_t equals = entry.find('=');
    for (const char* name : kNames)
      if (entry.compare(0, equals, name) == 0)
        variables[name] = equals == std::string::npos ? "" : entry.substr(equals + 1);
    if (text.find('\0', at) == std::string::npos) break;
  }
  return variables;
}

/// Reads the mask of a thread; returns false if it has ended.
bool read_mask(ObservedThread& thread) {
  const std::string_view mask = affinity_bytes(thread.id);
  if (mask.empty()) return false;
  if (thread.mask != mask) {
    thread.mask = mask;
    thread.allowed = cpus_of_mask(mask);
  }
  return true;
}

}  // namespace

bool ThreadSampler::is_expected(const std::vector<int>& allowed) const {
  if (context_.expected.cpus.empty() || allowed == context_.expected.cpus) return true;
  if (!context_.expected.each) return false;
  return std::any_of(context_.expected.layout.parts.begin(), context_.expected.layout.parts.end(),
                     [&](std::vector<int> part) {
                       std::sort(part.begin(), part.end());
                       return within(allowed, part);
                     });
}

void ThreadSampler::check_mask(ObservedProcess& process, ObservedThread& thread, std::uint64_t waited_ns) {
  const bool unexpected = !is_expected(thread.allowed),
             same = unexpected && thread.unexpected_now && thread.allowed == thread.unexpected;
  if (thread.unexpected_now && !same) {
    // With few CPUs, a transient mask lasts as long as its owner waits for a CPU.
    const double waited_s = 1e-9 * (static_cast<double>(waited_ns) - static_cast<double>(thread.unexpected_waited_ns));
    thread.transient = thread.transient && thread.unexpected_until_s - thread.unexpected_since_s - waited_s < kPassingS;
  }
  thread.unexpected_now = unexpected;
  if (!unexpected) {
    thread.was_expected = true;
    return;
  }
  thread.unexpected_until_s = context_.elapsed();
  if (!same) thread.unexpected_since_s = thread.unexpected_until_s, thread.unexpected_waited_ns = waited_ns;
  if (thread.unexpected_samples++ == 0) thread.unexpected_at_s = context_.elapsed();
  thread.unexpected = thread.allowed;
  const bool exec = thread.id == process.id && process.variables_of != thread.last.command;
  if (exec) process.variables_of = thread.last.command;
  if (exec || (thread.unexpected_samples == 1 && process.variables.empty()))
    process.variables = binding_variables(process.id);
  if (thread.unexpected_samples > 1) return;
  context_.update_offline();  // before a violation is attributed
  if (!process.cgroup_change.empty()) return;
  const auto [path, cpus] = cpuset_of(process.id);
  if (path != context_.cgroup)
    process.cgroup_change = "it was moved from cgroup " + context_.cgroup + " to " + path;
  else if (cpus != context_.cgroup_cpus)
    process.cgroup_change =
        "its cgroup's cpuset changed from " + cpu_list(context_.cgroup_cpus) + " to " + cpu_list(cpus);
}

void ThreadSampler::sample(ObservedProcess& process, ObservedThread& thread) {
  const bool first = !thread.sampled;
  const bool alive = read_mask(thread);
  std::uint64_t ran = 0, waited = 0;
  const std::string_view sched = thread.schedstat.text();
  if (!sched.empty()) {
    ran = leading_number(sched);
    waited = leading_number(sched.substr(std::min(sched.size(), sched.find(' ') + 1)));
  } else if (::access("/proc/self/schedstat", F_OK) != 0) {
    context_.absent.insert(
        "waiting times of threads: this Linux kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)");
  }
  if (alive) check_mask(process, thread, waited);
  // A thread that neither runs nor has run since the last sample is unchanged.
  if (!first && !sched.empty() && ran == thread.ran_ns && thread.last.state != 'R') return;
  const auto stat = parse_stat(thread.stat.text());
  // A zombie still reports its times, but not its CPU.
  thread.ended = !stat || stat->state == 'Z' || stat->state == 'X' || (!first && stat->started != thread.last.started);
  if (!stat || (!first && stat->started != thread.last.started)) return;
  if (sched.empty()) ran = (stat->user + stat->system) * static_cast<std::uint64_t>(1e9 / context_.tick_rate);
  if (first && thread.id == process.id)
    process.old = static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9 -
                      static_cast<double>(stat->started) / context_.tick_rate >
                  context_.elapsed() + 0.5;
  const bool ran_now = !thread.ended && (stat->state == 'R' || (!first && ran != thread.ran_ns));
  // A sleeping thread may last have run before it was bound.
  if (ran_now || std::binary_search(thread.allowed.begin(), thread.allowed.end(), stat->cpu)) {
    thread.ran_on.insert(stat->cpu);
    if (ran_now && !context_.expected.cpus.empty() &&
        !std::binary_search(context_.expected.cpus.begin(), context_.expected.cpus.end(), stat->cpu)) {
      thread.outside.insert(stat->cpu);
      ++thread.outside_samples;
    }
  }
  const bool moved = !first && stat->cpu != thread.last.cpu;
  if (moved || thread.ended || thread.samples % 8 < 2) sample_sched(process, thread);
  ++thread.samples;
  thread.last = *stat;
  thread.ran_ns = ran;
  thread.waited_ns = waited;
  thread.sampled = true;
}

void ThreadSampler::sample_sched(ObservedProcess& process, ObservedThread& thread) {
  const std::string text = read_text(task_folder(process.id, thread.id) + "sched");
  const auto value = [&](const char* key) {
    const std::string line = value_of(text, key);
    const std::size_t digit = line.find_first_of("0123456789");
    return digit == std::string::npos ? -1 : static_cast<long long>(leading_number(line.substr(digit)));
  };
  thread.migrations = std::max(thread.migrations, value("se.nr_migrations"));
  thread.balanced_pages = std::max(thread.balanced_pages, value("numa_pages_migrated"));
  if (text.empty() && ::access("/proc/self/sched", F_OK) != 0)
    context_.absent.insert("migrations of threads: this Linux kernel has no /proc/PID/sched (CONFIG_SCHED_DEBUG)");
}

}  // namespace mm::place::observe

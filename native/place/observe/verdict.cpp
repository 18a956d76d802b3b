#include "place/observe/verdict.hpp"

#include <algorithm>
#include <cstdio>

#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/binding/pages.hpp"
#include "place/observe/memory.hpp"
#include "place/observe/text.hpp"

namespace mm::place::observe {

namespace {

constexpr double kDoubledS = 0.2;  // two units must share a part for at least this time, and in two windows

}  // namespace

Verdict::Verdict(const Context& context, std::vector<const ObservedProcess*> all)
    : context_(context), all_(std::move(all)), masks_(narrowed_masks()) {}

// An unexpected mask counts if it occurred in at least two samples. A single sample suffices after an expected mask, or
// in a process other than the root: the root may be sampled just before it binds itself.
//
// A transient mask does not count: hwloc, and so mpirun, hydra and other launchers that use it, binds itself briefly to
// each CPU in turn, to query that CPU.
bool Verdict::mask_counts(const ObservedProcess& process, const ObservedThread& thread) const {
  if (thread.transient && !thread.unexpected_now) return false;
  return thread.unexpected_samples > 1 ||
         (thread.unexpected_samples == 1 && (thread.was_expected || process.id != context_.root));
}

Verdict::Masks Verdict::narrowed_masks() const {
  Masks masks;
  for (const ObservedProcess* process : all_)
    each_thread(*process, [&](const ObservedThread& thread) {
      if (mask_counts(*process, thread) && within(thread.unexpected, context_.expected.cpus))
        masks.by_process[process->id].insert(thread.unexpected);
    });
  for (const auto& [id, masks_of_process] : masks.by_process)
    if (masks_of_process.size() == 1) masks.narrowed.insert(id), masks.of_them.insert(*masks_of_process.begin());
  return masks;
}

std::string Verdict::explain_mask(const ObservedProcess& process, const ObservedThread& thread) const {
  const std::string observation =
      "may run on " + cpus_text(thread.unexpected) + " instead of " + cpu_list(context_.expected.cpus) + ": ";
  if (const std::vector<int> remaining = without(context_.expected.cpus, context_.offline);
      remaining.size() < context_.expected.cpus.size()) {
    if (thread.unexpected == remaining || remaining.empty())
      return observation + cpus_text(listed(context_.offline)) + " went offline" +
             (remaining.empty() ? ", and the Linux kernel let it run anywhere" : "") +
             "; bring it online (echo 1 > /sys/devices/system/cpu/cpuN/online) or exclude it from the placement";
  }
  if (!process.cgroup_change.empty())
    return observation + process.cgroup_change + "; check what manages the cgroups (batch system, systemd, container)";
  if (!context_.cgroup_cpus.empty() && !within(context_.expected.cpus, context_.cgroup_cpus) &&
      within(thread.unexpected, context_.cgroup_cpus))
    return observation + "its cgroup " + context_.cgroup + " permits only " + cpu_list(context_.cgroup_cpus) +
           "; check what manages the cgroups (batch system, systemd, container)";
  const auto variable = [&](const char* key) { return process.variables.contains(key); };
  const bool slurm = variable("SLURM_PROCID"), open_mpi = variable("OMPI_COMM_WORLD_RANK");
  const bool rank = slurm || open_mpi || variable("PMI_RANK") || variable("PMIX_RANK") || variable("FLUX_TASK_RANK");
  const std::string disable = open_mpi ? "mpirun --bind-to none"
                              : slurm  ? "srun --cpu-bind=none"
                              : rank   ? "mpiexec -bind-to none"
                                       : "mpirun --bind-to none, srun --cpu-bind=none, no taskset inside";
  if (!within(thread.unexpected, context_.expected.cpus)) {
    // It is unknown what bound a program that ran before the observation, if anything did.
    const bool predates_observation = process.old && !thread.was_expected;
    const std::string cpus = cpu_list(context_.expected.cpus);
    const std::string bind =
        "; bind it when it starts (meshmark run --bind list=" + cpus + ") or now (taskset -a -c -p " + cpus + " PID)";
    if (predates_observation &&
        (thread.unexpected == context_.cgroup_cpus || thread.unexpected == context_.first_online))
      return observation + "it is not bound" + bind;
    if (rank && !thread.was_expected)
      return observation + "its launcher bound it there; disable the launcher's binding: " + disable;
    if (predates_observation) return observation + "it was bound before the observation" + bind;
    return observation + "the program " + (within(context_.expected.cpus, thread.unexpected) ? "widened" : "replaced") +
           " it (sched_setaffinity)" + "; --hard uses a cpuset, which it cannot leave";
  }
  std::string variables;
  for (const char* key : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES"})
    if (const auto at = process.variables.find(key); at != process.variables.end() && at->second != "false")
      variables += (variables.empty() ? "" : ", ") + at->first + "=" + at->second;
  const bool several_masks = masks_.by_process.at(process.id).size() > 1;
  if (several_masks || (!rank && !variables.empty()))
    return observation +
           (variables.empty() ? "the program pins its threads itself (sched_setaffinity); disable that"
                              : "its OpenMP run time pins the threads (" + variables + "); unset that") +
           ", or assign one CPU per thread: --each";
  if (masks_.narrowed.size() > 1 && masks_.of_them.size() == 1)
    return observation + "the launcher bound all " + std::to_string(masks_.narrowed.size()) +
           " ranks to the same CPUs; disable its binding: " + disable;
  if (rank || (masks_.narrowed.size() > 1 && !thread.was_expected))
    return observation + "its launcher bound each rank; disable its binding: " + disable;
  return observation +
         "the program narrowed it (sched_setaffinity, taskset or numactl inside the command); --hard uses a " +
         "cpuset, --each assigns one CPU per thread";
}

std::pair<Violation, std::string> Verdict::explain_pages(const ObservedProcess& process) const {
  const PageCount& pages = process.worst;
  const std::uint64_t remote = elsewhere(context_.expected, pages.own), all = sum(pages.own);
  std::vector<int> nodes;
  for (const auto& [node, bytes] : pages.own)
    if (bytes > 0 && elsewhere(context_.expected, {{node, bytes}}) > 0) nodes.push_back(node);
  char share[16];
  std::snprintf(share, sizeof share, "%.1f %%", 100.0 * static_cast<double>(remote) / static_cast<double>(all));
  const std::string observation = mib(remote) + " of " + mib(all) + " (" + share + ") on " + nodes_text(nodes) +
                                  " instead of " + cpu_list(context_.expected.memory_nodes) + ": ";
  const std::string move = "; meshmark migrate " + std::to_string(process.id) + " --to " +
                           cpu_list(context_.expected.memory_nodes) + " moves it";

  std::map<std::string, std::uint64_t> policies;
  for (const auto& [key, bytes] : pages.by_policy)
    if (elsewhere(context_.expected, {{key.first, bytes}}) > 0) policies[key.second] += bytes;
  for (const auto& [policy, bytes] : policies) {
    const std::size_t colon = policy.rfind(':');
    if (2 * bytes < remote || colon == std::string::npos) continue;
    if (const auto policy_nodes = ids_of(policy.substr(colon + 1));
        !within(policy_nodes, context_.expected.memory_nodes))
      return {Violation::wrong_node, observation + "its own memory policy (" + policy +
                                         ") placed them there; remove the numactl, set_mempolicy or mbind inside" +
                                         move};
  }

  const bool preexisting = process.old && process.first_walk_outside;
  std::uint64_t missed = 0;
  std::vector<int> full;
  for (const int node : context_.expected.memory_nodes) {
    const auto level = process.levels.find(node);
    if (level == process.levels.end()) continue;
    const auto at = process.missed.find(node);
    const std::uint64_t pages_missed = at == process.missed.end() ? 0 : at->second;
    missed += pages_missed;
    // Pages placed before the observation started: a node without room is the likely reason.
    const bool short_of_room = level->second.free < 2 * level->second.reserve + level->second.bytes / 50;
    if (pages_missed > 0 || (preexisting && short_of_room)) full.push_back(node);
  }
  // A huge page that found no room counts once.
  const std::uint64_t enough = std::max<std::uint64_t>(16, remote / context_.page_bytes / 512 / 2);
  if (!full.empty() && (missed >= enough || preexisting)) {
    std::string free;
    for (const int node : full) free += (free.empty() ? "" : ", ") + mib(process.levels.at(node).free);
    return {Violation::spilled,
            observation + nodes_text(full) + " was full (" + free + " free, " + std::to_string(missed) +
                " pages found no room), so allocations spilled; use less memory, free some (page cache: echo 1 > "
                "/proc/sys/vm/drop_caches), or spread by --memory interleave"};
  }

  long long balanced = 0;
  std::string toucher;
  each_thread(process, [&](const ObservedThread& thread) {
    balanced += thread.balanced_pages;
    for (const int cpu : thread.ran_on)
      for (const Cpu& machine_cpu : context_.machine.cpus)
        if (machine_cpu.id == cpu && toucher.empty() &&
            std::find(nodes.begin(), nodes.end(), machine_cpu.node) != nodes.end())
          toucher = "thread " + std::to_string(thread.id) + " ran on CPU " + std::to_string(cpu) + " of node " +
                    std::to_string(machine_cpu.node);
  });
  if (static_cast<std::uint64_t>(balanced) * context_.page_bytes * 2 > remote)
    return {Violation::wrong_node, observation + "NUMA balancing of the Linux kernel moved " +
                                       std::to_string(balanced) +
                                       " pages; disable it (kernel.numa_balancing=0) or bind memory: --memory bind"};
  for (const int node : nodes) {
    const auto is_memory_only = [&](const Node& n) { return n.id == node && n.cpus.empty(); };
    if (std::none_of(context_.machine.nodes.begin(), context_.machine.nodes.end(), is_memory_only)) continue;
    const bool demotes = read_text("/sys/kernel/mm/numa/demotion_enabled").starts_with("true");
    return {Violation::wrong_node,
            observation + "node " + std::to_string(node) +
                " has no CPUs, so first touch cannot have placed them there" +
                (demotes ? ": the Linux kernel demotes cold pages (/sys/kernel/mm/numa/demotion_enabled)" : "") + move};
  }
  if (!toucher.empty())
    return {Violation::wrong_node, observation + toucher +
                                       " and most likely touched them first; initialise data in "
                                       "the threads that use it" +
                                       move};
  if (process.first_walk_outside)
    return {Violation::wrong_node,
            observation +
                "they were there when the observation started: touched before the program was bound, "
                "inherited from its parent or shared with another" +
                move};
  return {Violation::wrong_node,
          observation +
              "they appeared there between two samples: touched by a thread that ran elsewhere briefly, or by another "
              "program that shares them" +
              move};
}

ThreadVerdict Verdict::judge(const ObservedProcess& process, const ObservedThread& thread, Findings& findings) const {
  ThreadVerdict verdict{};
  verdict.process = process.id;
  verdict.thread = thread.id;
  verdict.command = thread.last.command;
  verdict.allowed = thread.allowed;
  verdict.ran_on = listed(thread.ran_on);
  verdict.migrations = thread.migrations >= 0 ? thread.migrations : -1;
  verdict.user_s = static_cast<double>(thread.last.user) / context_.tick_rate;
  verdict.system_s = static_cast<double>(thread.last.system) / context_.tick_rate;
  verdict.waiting_s = static_cast<double>(thread.waited_ns) * 1e-9;
  if (mask_counts(process, thread))
    add_violation(verdict, findings, Violation::mask_changed, explain_mask(process, thread));
  if (thread.outside_samples > 1)
    add_violation(verdict, findings, Violation::ran_outside,
                  "ran on " + cpus_text(listed(thread.outside)) + " instead of " + cpu_list(context_.expected.cpus) +
                      (mask_counts(process, thread) ? std::string(": its mask allowed it")
                                                    : ": its mask differed between two samples; --hard prevents that"));
  if (thread.doubled_windows > 1 && thread.doubled_s >= kDoubledS)
    add_violation(verdict, findings, Violation::doubled,
                  thread.doubled_with +
                      ": both have the same place; give each rank a distinct local rank (the launcher's variable or "
                      "MESHMARK_RANK), or disable all other binding");
  return verdict;
}

void Verdict::add_violation(ThreadVerdict& verdict, Findings& findings, Violation violation,
                            const std::string& reason) {
  verdict.violations.push_back(violation);
  verdict.explanation += (verdict.explanation.empty() ? "" : "; ") + reason;
  Finding& finding = findings[{violation, reason}];
  finding.threads.insert(verdict.thread);
  finding.processes.insert(verdict.process);
  finding.command = verdict.command;
}

void Verdict::write(Report& report) const {
  Findings findings;
  bool has_counted = false;
  for (const ObservedProcess* process : all_) {
    has_counted = has_counted || process->counted;
    std::vector<const ObservedThread*> threads;
    each_thread(*process, [&](const ObservedThread& thread) {
      if (thread.sampled) threads.push_back(&thread);
    });
    std::sort(threads.begin(), threads.end(),
              [](const ObservedThread* a, const ObservedThread* b) { return a->id < b->id; });
    for (const ObservedThread* thread : threads) {
      ThreadVerdict verdict = judge(*process, *thread, findings);
      if (thread == threads.front()) {
        verdict.pages = process->pages.own;
        verdict.file_pages = process->pages.files;
        verdict.huge_bytes = process->pages.huge_bytes;
        if (process->outside_walks > 1 || process->outside_now) {
          const auto [violation, reason] = explain_pages(*process);
          add_violation(verdict, findings, violation, reason);
        }
      }
      report.held = report.held && verdict.violations.empty();
      report.threads.push_back(std::move(verdict));
    }
  }
  for (const auto& [key, finding] : findings) {
    std::string label = finding.command + ' ' + std::to_string(*finding.processes.begin());
    if (finding.processes.size() > 1) label += " and " + std::to_string(finding.processes.size() - 1) + " more";
    if (finding.threads.size() > finding.processes.size())
      label += " (" + counted(finding.threads.size(), "thread") + ")";
    report.findings.push_back(name(key.first) + ": " + label + ": " + key.second);
  }
  if (!context_.offline.empty())
    report.findings.push_back(cpus_text(listed(context_.offline)) + " went offline during the observation");
  if (report.threads.empty())
    report.absent.emplace_back("everything: the program ended before the first sample");
  else if (!context_.expected.memory_nodes.empty() && !has_counted && report.absent.empty())
    report.absent.emplace_back("pages: every process ended before its pages could be counted, " +
                               std::to_string(static_cast<int>(kFirstPagesS * 1e3)) + " ms after its start");
}

}  // namespace mm::place::observe

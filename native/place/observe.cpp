#include "observe.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>
#include <set>
#include <thread>

#include "arguments.hpp"
#include "bind.hpp"
#include "clock.hpp"
#include "command.hpp"
#include "error.hpp"
#include "ledger.hpp"
#include "options.hpp"
#include "pages.hpp"
#include "proc.hpp"

namespace mm::place {
namespace {

constexpr double kDuty = 0.02, kLookDuty = 0.05;  ///< shares of the time that maps of pages and looks may take
constexpr double kWindowS = 0.1;  ///< CPU time is compared over so long: the kernel adds it up in ticks of 1 to 10 ms
/// A mask that is gone after so long, not counting waits for a CPU, and the right one back, is nobody's change.
constexpr double kPassingS = 0.05;
constexpr double kDoubledS = 0.2;  ///< so long, and two windows, must two be on one part before it is called doubled
constexpr double kBusy = 0.25;     ///< share of a window that a thread ran or waited for a CPU
constexpr double kIdle = 0.05;     ///< a part is empty whose units ran less
constexpr double kFirstPagesS = 0.03;      ///< age of a process when its pages are read first: then it is past its exec
constexpr std::uint64_t kSmall = 1 << 20;  ///< B on another node that nobody calls misplaced, unless memory was bound
constexpr std::size_t kMaskBytes = 1024;   ///< 8192 CPUs

double thread_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9; }

bool within(const std::vector<int>& some, const std::vector<int>& all) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

std::vector<int> without(const std::vector<int>& all, const std::set<int>& some) {
  std::vector<int> left;
  for (const int n : all)
    if (!some.contains(n)) left.push_back(n);
  return left;
}

std::vector<int> listed(const std::set<int>& set) { return {set.begin(), set.end()}; }

std::string cpus_text(const std::vector<int>& cpus) {
  return (cpus.size() == 1 ? "CPU " : "CPUs ") + (cpus.empty() ? "none" : cpu_list(cpus));
}

std::string nodes_text(const std::vector<int>& nodes) {
  return (nodes.size() == 1 ? "node " : "nodes ") + cpu_list(nodes);
}

std::string mib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string count_of(std::size_t n, const char* what, const char* plural) {
  return std::to_string(n) + ' ' + (n == 1 ? what : plural);
}

std::uint64_t sum(const std::map<int, std::uint64_t>& bytes) {
  std::uint64_t all = 0;
  for (const auto& [node, n] : bytes) all += n;
  return all;
}

/// Where the cpuset of a process lies, and the CPUs that it leaves; an empty list where the kernel does not tell.
std::pair<std::string, std::vector<int>> cpuset_of(pid_t process) {
  const auto home = cpuset_home(process);
  if (!home) return {};
  const char* const file = home->version == 1 ? "/cpuset.effective_cpus" : "/cpuset.cpus.effective";
  // Version 2: a group without the controller has what the one above it leaves.
  for (std::string at = home->folder;; at.resize(at.rfind('/'))) {
    const std::vector<int> cpus = kernel_list(slurp(at + file));
    if (!cpus.empty() || at.size() <= home->mount.size()) return {home->path, cpus};
  }
}

/// The variables of a process that say who binds, among those it was started with.
std::map<std::string, std::string> binding_variables(pid_t process) {
  static constexpr const char* kNames[] = {
      "OMP_PROC_BIND", "OMP_PLACES",   "GOMP_CPU_AFFINITY", "KMP_AFFINITY",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
      "PMI_RANK",      "SLURM_PROCID", "FLUX_TASK_RANK",    "I_MPI_PIN_DOMAIN", "MV2_ENABLE_AFFINITY"};
  std::map<std::string, std::string> found;
  const std::string text = slurp("/proc/" + std::to_string(process) + "/environ");
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
    const std::string entry = text.c_str() + at;
    const std::size_t is = entry.find('=');
    for (const char* name : kNames)
      if (entry.compare(0, is, name) == 0) found[name] = is == std::string::npos ? "" : entry.substr(is + 1);
    if (text.find('\0', at) == std::string::npos) break;
  }
  return found;
}

struct Thread {
  Thread(pid_t process, pid_t number)
      : id(number),
        stat(task_folder(process, number) + "stat"),
        schedstat(task_folder(process, number) + "schedstat") {}
  pid_t id;
  unsigned looks = 0;
  Again stat, schedstat;
  Stat last;
  std::uint64_t ran_ns = 0, waited_ns = 0;
  std::uint64_t window_ran = 0, window_waited = 0;  ///< the same at the begin of the window
  std::set<int> ran_on, outside;
  long long moves = 0, migrations = -1, balanced_pages = 0;
  std::string mask;
  std::vector<int> allowed;
  std::vector<int> wrong;                       ///< the last mask that was not the expected one
  double wrong_at_s = 0;                        ///< when it was seen first
  double wrong_since_s = 0, wrong_until_s = 0;  ///< the first and the last look that saw that mask
  std::uint64_t wrong_waited_ns = 0;            ///< at the first of them
  double doubled_s = 0;
  int outside_looks = 0, wrong_looks = 0, doubled_windows = 0;
  bool looked_at = false, ended = false, in_window = false, was_right = false;
  bool wrong_now = false;  ///< at the last look
  bool passing = true;     ///< none lasted
  std::string doubled_with;
};

struct Process {
  pid_t id = 0;
  std::map<pid_t, Thread> threads;
  std::vector<Thread> ended_threads;
  bool ended = false;
  double since_s = 0;
  bool old = false;                              ///< it ran before watching began
  std::map<std::string, std::string> variables;  ///< read when something is wrong
  std::string variables_of;                      ///< the command that they were read of: another one comes by exec
  std::string cgroup_change;
  // Pages.
  PageCount pages;
  bool counted = false, outside_now = false, first_walk_outside = false;
  int outside_walks = 0;
  PageCount worst;
  std::map<int, std::uint64_t> missed;  ///< node → pages that found no room there since the begin
  std::map<int, NodeLevel> levels;      ///< of the nodes, when it was worst
  double next_walk_s = 0, gap_s = 0.05;
};

/// Parts with the same CPUs are one that has room for several.
struct Room {
  std::vector<int> cpus;
  std::size_t units = 0;
};

}  // namespace

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
  State(const Machine& machine_, pid_t root_, Expectation expected_)
      : machine(machine_), root(root_), expected(std::move(expected_)), began_s(wall_s()) {
    std::sort(expected.cpus.begin(), expected.cpus.end());
    std::sort(expected.memory_nodes.begin(), expected.memory_nodes.end());
    first_online = online_now();
    for (const int cpu : expected.cpus)
      if (!std::binary_search(first_online.begin(), first_online.end(), cpu)) offline.insert(cpu);
    std::tie(cgroup, cgroup_cpus) = cpuset_of(root);
    if (!expected.memory_nodes.empty()) levels = node_levels();
    by_children =
        ::access(("/proc/self/task/" + std::to_string(::syscall(SYS_gettid)) + "/children").c_str(), F_OK) == 0;
    int reaper = 0;
    subreaper = ::prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper == 1;
    if (expected.each) make_rooms();
    enter(root);
  }

  static std::vector<int> online_now() { return kernel_list(slurp("/sys/devices/system/cpu/online")); }

  void look_for_offline() {
    const std::vector<int> online = online_now();
    for (const int cpu : first_online)
      if (!std::binary_search(online.begin(), online.end(), cpu)) offline.insert(cpu);
  }

  void make_rooms() {
    for (std::vector<int> part : expected.layout.parts) {
      std::sort(part.begin(), part.end());
      auto same = std::find_if(rooms.begin(), rooms.end(), [&](const Room& r) { return r.cpus == part; });
      if (same == rooms.end()) same = rooms.insert(same, {part, 0});
      ++same->units;
    }
    std::set<int> seen;
    for (const Room& room : rooms)
      for (const int cpu : room.cpus)
        if (!seen.insert(cpu).second) {
          absent.insert("whether two share one part: the parts overlap on CPU " + std::to_string(cpu));
          rooms.clear();
          return;
        }
  }

  double elapsed() const { return wall_s() - began_s; }

  void enter(pid_t id) {
    if (living.contains(id) || (id == ::getpid() && id != root)) return;  // who looks is no part of the program
    Process& process = living[id];
    process.id = id;
    process.since_s = elapsed();
    process.next_walk_s = process.since_s + kFirstPagesS;
  }

  // --- who is there
  // ---------------------------------------------------------------------------------------------------

  void find_children() {
    if (!by_children) {
      // One scan of all processes: a parent that is ours makes its child ours, in any order of numbers.
      std::map<pid_t, std::vector<pid_t>> children = children_by_parent();
      std::vector<pid_t> todo;
      for (const auto& [id, process] : living) todo.push_back(id);
      if (subreaper) todo.push_back(::getpid());
      while (!todo.empty()) {
        const pid_t parent = todo.back();
        todo.pop_back();
        for (const pid_t child : children[parent])
          if (!living.contains(child)) enter(child), todo.push_back(child);
      }
      return;
    }
    const auto of_thread = [&](pid_t process, pid_t thread) {
      std::string text = slurp(task_folder(process, thread) + "children");
      for (char *at = text.data(), *end = nullptr;; at = end) {
        const long id = std::strtol(at, &end, 10);
        if (end == at) break;
        enter(static_cast<pid_t>(id));
      }
    };
    if (subreaper)
      for (const pid_t thread : numbers_in("/proc/self/task")) of_thread(::getpid(), thread);
    // A map keeps its places while it grows, and a new process with a higher number is met later in this very loop.
    for (auto& [id, process] : living)
      for (auto& [thread, unused] : process.threads) of_thread(id, thread);
  }

  /// Has the number of a thread that ended been given to a new one?
  static bool is_another(pid_t process, const Thread& thread) {
    const auto stat = parse_stat(slurp(task_folder(process, thread.id) + "stat"));
    return stat && stat->started != thread.last.started;
  }

  void find_threads(Process& process) {
    const std::vector<pid_t> now = numbers_in("/proc/" + std::to_string(process.id) + "/task");
    for (auto at = process.threads.begin(); at != process.threads.end();) {
      const bool there = std::find(now.begin(), now.end(), at->first) != now.end();
      if (!there || (at->second.ended && is_another(process.id, at->second))) {
        at->second.stat.close();
        at->second.schedstat.close();
        process.ended_threads.push_back(std::move(at->second));
        at = process.threads.erase(at);
      } else {
        ++at;
      }
    }
    for (const pid_t id : now) process.threads.try_emplace(id, process.id, id);
    process.ended = now.empty();
  }

  // --- a thread
  // -------------------------------------------------------------------------------------------------------

  bool right(const std::vector<int>& allowed) const {
    if (expected.cpus.empty() || allowed == expected.cpus) return true;
    if (!expected.each) return false;
    return std::any_of(expected.layout.parts.begin(), expected.layout.parts.end(), [&](std::vector<int> part) {
      std::sort(part.begin(), part.end());
      return within(allowed, part);
    });
  }

  /// Whether it is still there.
  static bool read_mask(Thread& thread) {
    static std::string mask(kMaskBytes, '\0');
    const long got = ::syscall(SYS_sched_getaffinity, thread.id, kMaskBytes, mask.data());
    if (got <= 0) return false;
    if (thread.mask.compare(0, std::string::npos, mask.data(), static_cast<std::size_t>(got)) != 0 ||
        thread.mask.empty()) {
      thread.mask.assign(mask.data(), static_cast<std::size_t>(got));
      thread.allowed.clear();
      for (int cpu = 0; cpu < 8 * got; ++cpu)
        if ((static_cast<unsigned char>(mask[static_cast<std::size_t>(cpu / 8)]) >> (cpu % 8) & 1) != 0)
          thread.allowed.push_back(cpu);
    }
    return true;
  }

  void judge_mask(Process& process, Thread& thread, std::uint64_t waited_ns) {
    const bool wrong = !right(thread.allowed), same = wrong && thread.wrong_now && thread.allowed == thread.wrong;
    if (thread.wrong_now && !same) {
      // Where CPUs are short, a moment's mask lasts as long as its owner waits to go on.
      const double waited_s = 1e-9 * (static_cast<double>(waited_ns) - static_cast<double>(thread.wrong_waited_ns));
      thread.passing = thread.passing && thread.wrong_until_s - thread.wrong_since_s - waited_s < kPassingS;
    }
    thread.wrong_now = wrong;
    if (!wrong) {
      thread.was_right = true;
      return;
    }
    thread.wrong_until_s = elapsed();
    if (!same) thread.wrong_since_s = thread.wrong_until_s, thread.wrong_waited_ns = waited_ns;
    if (thread.wrong_looks++ == 0) thread.wrong_at_s = elapsed();
    thread.wrong = thread.allowed;
    const bool exec = thread.id == process.id && process.variables_of != thread.last.command;
    if (exec) process.variables_of = thread.last.command;
    if (exec || (thread.wrong_looks == 1 && process.variables.empty()))
      process.variables = binding_variables(process.id);
    if (thread.wrong_looks > 1) return;
    look_for_offline();  // before anybody is accused
    if (!process.cgroup_change.empty()) return;
    const auto [path, cpus] = cpuset_of(process.id);
    if (path != cgroup)
      process.cgroup_change = "it was moved from cgroup " + cgroup + " to " + path;
    else if (cpus != cgroup_cpus)
      process.cgroup_change = "its cgroup's cpuset changed from " + cpu_list(cgroup_cpus) + " to " + cpu_list(cpus);
  }

  void look_at(Process& process, Thread& thread) {
    const bool first = !thread.looked_at;
    const bool there = read_mask(thread);
    std::uint64_t ran = 0, waited = 0;
    const std::string_view sched = thread.schedstat.text();
    if (!sched.empty()) {
      ran = number_of(sched);
      waited = number_of(sched.substr(std::min(sched.size(), sched.find(' ') + 1)));
    } else if (::access("/proc/self/schedstat", F_OK) != 0) {
      absent.insert("time that threads wait for a CPU: this kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)");
    }
    if (there) judge_mask(process, thread, waited);
    // Who neither runs nor ran has nothing new to tell.
    if (!first && !sched.empty() && ran == thread.ran_ns && thread.last.state != 'R') return;
    const auto stat = parse_stat(thread.stat.text());
    // One that has ended and was not asked for yet still tells its times, but no longer where it is.
    thread.ended =
        !stat || stat->state == 'Z' || stat->state == 'X' || (!first && stat->started != thread.last.started);
    if (!stat || (!first && stat->started != thread.last.started)) return;
    if (sched.empty()) ran = (stat->user + stat->system) * static_cast<std::uint64_t>(1e9 / tick_rate);
    if (first && thread.id == process.id)
      process.old =
          static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9 - static_cast<double>(stat->started) / tick_rate >
          elapsed() + 0.5;
    const bool ran_now = !thread.ended && (stat->state == 'R' || (!first && ran != thread.ran_ns));
    // The last CPU of one that sleeps may be from before it was bound.
    if (ran_now || std::binary_search(thread.allowed.begin(), thread.allowed.end(), stat->cpu)) {
      thread.ran_on.insert(stat->cpu);
      if (ran_now && !expected.cpus.empty() &&
          !std::binary_search(expected.cpus.begin(), expected.cpus.end(), stat->cpu)) {
        thread.outside.insert(stat->cpu);
        ++thread.outside_looks;
      }
    }
    const bool moved = !first && stat->cpu != thread.last.cpu;
    thread.moves += moved;
    if (moved || thread.ended || thread.looks % 8 < 2) look_at_sched(process, thread);
    ++thread.looks;
    thread.last = *stat;
    thread.ran_ns = ran;
    thread.waited_ns = waited;
    thread.looked_at = true;
  }

  void look_at_sched(Process& process, Thread& thread) {
    const std::string text = slurp(task_folder(process.id, thread.id) + "sched");
    const auto value = [&](const char* key) {
      const std::string line = value_of(text, key);
      const std::size_t digit = line.find_first_of("0123456789");
      return digit == std::string::npos ? -1 : static_cast<long long>(number_of(line.substr(digit)));
    };
    thread.migrations = std::max(thread.migrations, value("se.nr_migrations"));
    thread.balanced_pages = std::max(thread.balanced_pages, value("numa_pages_migrated"));
    if (text.empty() && ::access("/proc/self/sched", F_OK) != 0)
      absent.insert(
          "migrations by the kernel's count: it has no /proc/PID/sched (CONFIG_SCHED_DEBUG); changes of the last "
          "CPU between two looks are told instead, which are fewer");
  }

  // --- two on one part
  // ------------------------------------------------------------------------------------------------

  /// Compares what the units (processes where two or more are busy, else threads) did since the last window, run or
  /// wanted to run, with the parts that they were on.
  void close_window(double now) {
    const double length = now - window_s;
    look_for_offline();
    struct Unit {
      std::vector<Thread*> threads;
      std::set<std::size_t> on;
      std::string who;
    };
    std::map<pid_t, Unit> processes, threads;
    std::vector<double> used(rooms.size());
    for (auto& [id, process] : living)
      for (auto& [tid, thread] : process.threads) {
        const double ran = static_cast<double>(thread.ran_ns - thread.window_ran) * 1e-9 / length;
        const double waited = static_cast<double>(thread.waited_ns - thread.window_waited) * 1e-9 / length;
        const bool known = std::exchange(thread.in_window, true);
        thread.window_ran = thread.ran_ns;
        thread.window_waited = thread.waited_ns;
        if (!known) continue;
        for (std::size_t r = 0; r < rooms.size(); ++r) {
          if (!std::binary_search(rooms[r].cpus.begin(), rooms[r].cpus.end(), thread.last.cpu)) continue;
          used[r] += ran;
          if (ran + waited < kBusy) continue;
          for (Unit* unit : {&processes[id], &threads[tid]}) {
            unit->threads.push_back(&thread);
            unit->on.insert(r);
          }
          processes[id].who = thread.last.command + ' ' + std::to_string(id);
          threads[tid].who = thread.last.command + ' ' + std::to_string(tid);
        }
      }
    window_s = now;
    std::map<pid_t, Unit>& units = processes.size() > 1 ? processes : threads;
    const auto empty = std::find_if(used.begin(), used.end(), [](double u) { return u < kIdle; });
    if (empty == used.end()) return;
    for (std::size_t r = 0; r < rooms.size(); ++r) {
      std::vector<Unit*> here;
      for (auto& [id, unit] : units)
        if (unit.on == std::set<std::size_t>{r}) here.push_back(&unit);
      if (here.size() <= rooms[r].units) continue;
      std::string names;
      for (const Unit* unit : here) names += (names.empty() ? "" : ", ") + unit->who;
      for (Unit* unit : here)
        for (Thread* thread : unit->threads) {
          thread->doubled_s += length;
          ++thread->doubled_windows;
          thread->doubled_with = names + " shared " + cpus_text(rooms[r].cpus) + " while " +
                                 cpus_text(rooms[static_cast<std::size_t>(empty - used.begin())].cpus) +
                                 " stayed empty";
        }
    }
  }

  // --- pages
  // ----------------------------------------------------------------------------------------------------------

  std::uint64_t elsewhere(const std::map<int, std::uint64_t>& bytes) const {
    std::uint64_t n = 0;
    for (const auto& [node, b] : bytes)
      if (!std::binary_search(expected.memory_nodes.begin(), expected.memory_nodes.end(), node)) n += b;
    return n;
  }

  bool misplaced(const PageCount& pages) const {
    if (expected.memory_nodes.empty()) return false;
    const std::uint64_t out = elsewhere(pages.own);
    return static_cast<double>(out) > expected.tolerated_share * static_cast<double>(sum(pages.own)) &&
           (expected.strict_memory || out > kSmall);
  }

  void walk_pages(Process& process, double now) {
    const double begin = thread_cpu_s();
    try {
      PageCount pages = count_pages(process.id);
      if (!pages.own.empty() || !pages.files.empty()) {
        process.outside_now = misplaced(pages);
        if (process.outside_now) {
          if (!process.counted) process.first_walk_outside = true;
          ++process.outside_walks;
          if (elsewhere(pages.own) >= elsewhere(process.worst.own)) {
            process.worst = pages;
            process.levels = node_levels();
            for (const auto& [node, level] : process.levels)
              if (const auto before = levels.find(node); before != levels.end())
                process.missed[node] = level.foreign - std::min(level.foreign, before->second.foreign);
          }
        }
        process.pages = std::move(pages);
        process.counted = true;
      }
    } catch (const Absent& why) {
      absent.insert(std::string("pages: ") + why.what() + " (" + why.enable + ")");
      process.gap_s = 1e9;
    }
    const double cost = thread_cpu_s() - begin;
    page_cost_s += cost;
    process.next_walk_s = now + std::max(process.gap_s, cost / kDuty);
    process.gap_s = std::min(process.gap_s * 1.5, 10.0);
  }

  // --- one look
  // -------------------------------------------------------------------------------------------------------

  void sample() {
    const double begin = thread_cpu_s(), now = elapsed();
    ++samples;
    for (auto& [id, process] : living) find_threads(process);
    find_children();
    for (auto at = living.begin(); at != living.end();) {
      Process& process = at->second;
      if (process.threads.empty()) find_threads(process);
      for (auto& [id, thread] : process.threads)
        if (!thread.ended) look_at(process, thread);
      if (process.ended) {
        over.push_back(std::move(process));
        at = living.erase(at);
      } else {
        ++at;
      }
    }
    if (now - window_s >= kWindowS) close_window(now);
    const double paged = page_cost_s;
    for (auto& [id, process] : living) {
      // A first walk may go over the budget, so that a short program is seen at all.
      const double budget = process.counted ? kDuty * now + 0.01 : 0.1 * now + 0.05;
      if (process.next_walk_s <= now && page_cost_s <= budget) walk_pages(process, now);
    }
    const double cost = thread_cpu_s() - begin - (page_cost_s - paged);
    look_cost_s += cost;
    if (samples > 1) paced_s += cost;  // the first one also loads the program that looks
  }

  double next_s() const {
    const double now = elapsed();
    return std::clamp((paced_s - 0.005) / kLookDuty - now, std::clamp(now / 10, 0.001, 0.1), 1.0);
  }

  // --- who did it
  // -----------------------------------------------------------------------------------------------------

  /// What was wrong with a thread's mask counts when it was seen twice, when it had been right, or in a process that
  /// another one started: the root may be met just before it binds itself.
  ///
  /// One that comes and goes is no change: hwloc binds itself to every CPU for a moment to ask it what it is, and with
  /// it mpirun, hydra and whatever else looks at the machine.
  bool mask_counts(const Process& process, const Thread& thread) const {
    if (thread.passing && !thread.wrong_now) return false;
    return thread.wrong_looks > 1 || (thread.wrong_looks == 1 && (thread.was_right || process.id != root));
  }

  struct Masks {
    std::set<pid_t> narrowed;            ///< processes whose threads all have one mask, smaller than expected
    std::set<std::vector<int>> of_them;  ///< those masks
    std::map<pid_t, std::set<std::vector<int>>> by_process;
  };

  Masks narrowed_masks(const std::vector<const Process*>& all) const {
    Masks masks;
    for (const Process* process : all)
      each_thread(*process, [&](const Thread& thread) {
        if (mask_counts(*process, thread) && within(thread.wrong, expected.cpus))
          masks.by_process[process->id].insert(thread.wrong);
      });
    for (const auto& [id, own] : masks.by_process)
      if (own.size() == 1) masks.narrowed.insert(id), masks.of_them.insert(*own.begin());
    return masks;
  }

  template <class Function>
  static void each_thread(const Process& process, Function&& function) {
    for (const auto& [id, thread] : process.threads) function(thread);
    for (const Thread& thread : process.ended_threads) function(thread);
  }

  std::string blame_mask(const Process& process, const Thread& thread, const Masks& masks) const {
    const std::string found = "may run on " + cpus_text(thread.wrong) + " instead of " + cpu_list(expected.cpus) + ": ";
    if (const std::vector<int> left = without(expected.cpus, offline); left.size() < expected.cpus.size()) {
      if (thread.wrong == left || left.empty())
        return found + cpus_text(listed(offline)) + " went offline" +
               (left.empty() ? ", and the kernel let it run anywhere" : "") +
               "; bring it back (echo 1 > /sys/devices/system/cpu/cpuN/online) or place without it";
    }
    if (!process.cgroup_change.empty())
      return found + process.cgroup_change + "; ask who manages the cgroups (batch system, systemd, container)";
    if (!cgroup_cpus.empty() && !within(expected.cpus, cgroup_cpus) && within(thread.wrong, cgroup_cpus))
      return found + "its cgroup " + cgroup + " leaves it only " + cpu_list(cgroup_cpus) +
             "; ask who manages the cgroups (batch system, systemd, container)";
    const auto variable = [&](const char* key) { return process.variables.contains(key); };
    const bool slurm = variable("SLURM_PROCID"), open_mpi = variable("OMPI_COMM_WORLD_RANK");
    const bool rank = slurm || open_mpi || variable("PMI_RANK") || variable("PMIX_RANK") || variable("FLUX_TASK_RANK");
    const std::string leave = open_mpi ? "mpirun --bind-to none"
                              : slurm  ? "srun --cpu-bind=none"
                              : rank   ? "mpiexec -bind-to none"
                                       : "mpirun --bind-to none, srun --cpu-bind=none, no taskset inside";
    if (!within(thread.wrong, expected.cpus)) {
      if (rank && !thread.was_right)
        return found + "its launcher bound it there; let the launcher leave it alone: " + leave;
      return found + "the program " + (within(expected.cpus, thread.wrong) ? "widened" : "replaced") +
             " it (sched_setaffinity)" + "; --hard gives it a cpuset that it cannot leave";
    }
    std::string by;
    for (const char* key : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES"})
      if (const auto at = process.variables.find(key); at != process.variables.end() && at->second != "false")
        by += (by.empty() ? "" : ", ") + at->first + "=" + at->second;
    const bool own = masks.by_process.at(process.id).size() > 1;
    if (own || (!rank && !by.empty()))
      return found +
             (by.empty() ? "the program pins its threads by itself (sched_setaffinity); switch that off"
                         : "its OpenMP run time pins by itself (" + by + "); unset that") +
             ", or place one CPU a thread: --each";
    if (masks.narrowed.size() > 1 && masks.of_them.size() == 1)
      return found + "the launcher bound all " + std::to_string(masks.narrowed.size()) +
             " ranks to the same CPUs; let it leave them alone: " + leave;
    if (rank || (masks.narrowed.size() > 1 && !thread.was_right))
      return found + "its launcher bound each rank by itself; let it leave them alone: " + leave;
    return found +
           "the program narrowed it (sched_setaffinity, taskset or numactl inside the command); --hard gives it a " +
           "cpuset, --each one CPU a thread";
  }

  /// Why pages of a process are on other nodes than expected, and the remedy.
  std::pair<Violation, std::string> blame_pages(const Process& process) const {
    const PageCount& pages = process.worst;
    const std::uint64_t out = elsewhere(pages.own), all = sum(pages.own);
    std::vector<int> where;
    for (const auto& [node, bytes] : pages.own)
      if (bytes > 0 && elsewhere({{node, bytes}}) > 0) where.push_back(node);
    char share[16];
    std::snprintf(share, sizeof share, "%.1f %%", 100.0 * static_cast<double>(out) / static_cast<double>(all));
    const std::string found = mib(out) + " of " + mib(all) + " (" + share + ") on " + nodes_text(where) +
                              " instead of " + cpu_list(expected.memory_nodes) + ": ";
    const std::string move =
        "; meshmark migrate " + std::to_string(process.id) + " --to " + cpu_list(expected.memory_nodes) + " moves it";

    std::map<std::string, std::uint64_t> policies;
    for (const auto& [key, bytes] : pages.by_policy)
      if (elsewhere({{key.first, bytes}}) > 0) policies[key.second] += bytes;
    for (const auto& [policy, bytes] : policies) {
      const std::size_t colon = policy.rfind(':');
      if (2 * bytes < out || colon == std::string::npos) continue;
      if (const std::vector<int> nodes = kernel_list(policy.substr(colon + 1)); !within(nodes, expected.memory_nodes))
        return {Violation::wrong_node, found + "its own memory policy (" + policy +
                                           ") put them there; leave out the numactl, set_mempolicy or mbind inside" +
                                           move};
    }

    const bool unseen = process.old && process.first_walk_outside;
    std::uint64_t missed = 0;
    std::vector<int> full;
    for (const int node : expected.memory_nodes) {
      const auto level = process.levels.find(node);
      if (level == process.levels.end()) continue;
      const auto at = process.missed.find(node);
      const std::uint64_t pages_missed = at == process.missed.end() ? 0 : at->second;
      missed += pages_missed;
      // What was there when watching began was not seen coming: then a node without room is the likely reason.
      const bool short_of_room = level->second.free < 2 * level->second.reserve + level->second.bytes / 50;
      if (pages_missed > 0 || (unseen && short_of_room)) full.push_back(node);
    }
    // A huge page that found no room is counted as one.
    const std::uint64_t enough = std::max<std::uint64_t>(16, out / page_bytes / 512 / 2);
    if (!full.empty() && (missed >= enough || unseen)) {
      std::string free;
      for (const int node : full) free += (free.empty() ? "" : ", ") + mib(process.levels.at(node).free);
      return {Violation::spilled, found + nodes_text(full) + " was full (" + free + " free, " + std::to_string(missed) +
                                      " pages found no room), so it spilled; use less, free it (page cache: echo 1 > "
                                      "/proc/sys/vm/drop_caches), or spread by --memory interleave"};
    }

    long long balanced = 0;
    std::string toucher;
    each_thread(process, [&](const Thread& thread) {
      balanced += thread.balanced_pages;
      for (const int cpu : thread.ran_on)
        for (const Cpu& known : machine.cpus)
          if (known.id == cpu && toucher.empty() && std::find(where.begin(), where.end(), known.node) != where.end())
            toucher = "thread " + std::to_string(thread.id) + " ran on CPU " + std::to_string(cpu) + " of node " +
                      std::to_string(known.node);
    });
    if (static_cast<std::uint64_t>(balanced) * page_bytes * 2 > out)
      return {Violation::wrong_node,
              found + "the kernel's NUMA balancing moved " + std::to_string(balanced) +
                  " pages; switch it off (kernel.numa_balancing=0) or bind memory: --memory bind"};
    for (const int node : where) {
      const auto is = [&](const Node& n) { return n.id == node && n.cpus.empty(); };
      if (std::none_of(machine.nodes.begin(), machine.nodes.end(), is)) continue;
      const bool demotes = slurp("/sys/kernel/mm/numa/demotion_enabled").starts_with("true");
      return {Violation::wrong_node,
              found + "node " + std::to_string(node) + " has no CPUs, so no first touch put them there" +
                  (demotes ? ": the kernel demotes what is cold (/sys/kernel/mm/numa/demotion_enabled)" : "") + move};
    }
    if (!toucher.empty())
      return {Violation::wrong_node, found + toucher +
                                         " and most likely touched them first; initialise data in "
                                         "the threads that use it" +
                                         move};
    if (process.first_walk_outside)
      return {Violation::wrong_node, found +
                                         "they were there when watching began: touched before the program was bound, "
                                         "inherited from its parent or shared with another" +
                                         move};
    return {Violation::wrong_node,
            found +
                "they came there between two looks: touched by a thread that was elsewhere for a moment, or by another "
                "program that shares them" +
                move};
  }

  Report report() const {
    Report report;
    report.samples = samples;
    report.seconds = elapsed();
    report.cost_s = look_cost_s + page_cost_s;
    report.cgroup_cpus = cgroup_cpus;
    report.absent.assign(absent.begin(), absent.end());
    std::vector<const Process*> all;
    for (const Process& process : over) all.push_back(&process);
    for (const auto& [id, process] : living) all.push_back(&process);
    std::sort(all.begin(), all.end(), [](const Process* a, const Process* b) { return a->since_s < b->since_s; });
    const Masks masks = narrowed_masks(all);
    struct Finding {
      std::set<pid_t> threads, processes;
      std::string command;
    };
    std::map<std::pair<Violation, std::string>, Finding> findings;
    bool counted = false;
    for (const Process* process : all) {
      counted = counted || process->counted;
      std::vector<const Thread*> threads;
      each_thread(*process, [&](const Thread& thread) {
        if (thread.looked_at) threads.push_back(&thread);
      });
      std::sort(threads.begin(), threads.end(), [](const Thread* a, const Thread* b) { return a->id < b->id; });
      for (const Thread* thread : threads) {
        ThreadVerdict verdict{};
        verdict.process = process->id;
        verdict.thread = thread->id;
        verdict.command = thread->last.command;
        verdict.allowed = thread->allowed;
        verdict.ran_on = listed(thread->ran_on);
        verdict.migrations = thread->migrations >= 0 ? thread->migrations : -1;
        verdict.user_s = static_cast<double>(thread->last.user) / tick_rate;
        verdict.system_s = static_cast<double>(thread->last.system) / tick_rate;
        verdict.waiting_s = static_cast<double>(thread->waited_ns) * 1e-9;
        const auto accuse = [&](Violation violation, const std::string& said) {
          verdict.violations.push_back(violation);
          verdict.said += (verdict.said.empty() ? "" : "; ") + said;
          Finding& finding = findings[{violation, said}];
          finding.threads.insert(thread->id);
          finding.processes.insert(process->id);
          finding.command = verdict.command;
        };
        if (mask_counts(*process, *thread)) accuse(Violation::mask_changed, blame_mask(*process, *thread, masks));
        if (thread->outside_looks > 1)
          accuse(
              Violation::ran_outside,
              "ran on " + cpus_text(listed(thread->outside)) + " instead of " + cpu_list(expected.cpus) +
                  (mask_counts(*process, *thread) ? std::string(": its mask allowed it")
                                                  : ": its mask was another one between two looks; --hard forbids it"));
        if (thread->doubled_windows > 1 && thread->doubled_s >= kDoubledS)
          accuse(Violation::doubled, thread->doubled_with +
                                         ": both got the same place; give each rank its own local rank (the launcher's "
                                         "variable or MESHMARK_RANK), or let nothing inside bind by itself");
        if (thread == threads.front()) {
          verdict.pages = process->pages.own;
          verdict.file_pages = process->pages.files;
          verdict.huge_bytes = process->pages.huge_bytes;
          if (process->outside_walks > 1 || process->outside_now) {
            const auto [violation, said] = blame_pages(*process);
            accuse(violation, said);
          }
        }
        report.held = report.held && verdict.violations.empty();
        report.threads.push_back(std::move(verdict));
      }
    }
    for (const auto& [key, finding] : findings) {
      std::string who = finding.command + ' ' + std::to_string(*finding.processes.begin());
      if (finding.processes.size() > 1) who += " and " + std::to_string(finding.processes.size() - 1) + " more";
      if (finding.threads.size() > finding.processes.size())
        who += " (" + count_of(finding.threads.size(), "thread", "threads") + ")";
      report.findings.push_back(name(key.first) + ": " + who + ": " + key.second);
    }
    if (!offline.empty()) report.findings.push_back(cpus_text(listed(offline)) + " went offline meanwhile");
    if (report.threads.empty())
      report.absent.emplace_back("everything: the program had ended before the first look");
    else if (!expected.memory_nodes.empty() && !counted && report.absent.empty())
      report.absent.emplace_back("pages: every process had ended before they could be counted, " +
                                 std::to_string(static_cast<int>(kFirstPagesS * 1e3)) + " ms after its start");
    return report;
  }

  Machine machine;
  pid_t root;
  Expectation expected;
  double began_s;
  double window_s = 0, look_cost_s = 0, paced_s = 0, page_cost_s = 0;
  int samples = 0;
  bool by_children = true, subreaper = false;
  std::vector<int> first_online;
  std::set<int> offline;  ///< that were online when watching began
  std::string cgroup;
  std::vector<int> cgroup_cpus;
  std::map<int, NodeLevel> levels;  ///< when watching began
  std::vector<Room> rooms;          ///< only where every unit has its own part
  std::map<pid_t, Process> living;
  std::vector<Process> over;
  std::set<std::string> absent;
  double tick_rate = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::uint64_t page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
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
    json one{{"process", thread.process},
             {"thread", thread.thread},
             {"command", thread.command},
             {"allowed", cpu_list(thread.allowed)}};
    if (!report.cgroup_cpus.empty()) one["allowed_relative"] = cpu_list(relative(thread.allowed, report.cgroup_cpus));
    one["ran_on"] = cpu_list(thread.ran_on);
    one["migrations"] = thread.migrations < 0 ? json() : json(thread.migrations);
    one["user_s"] = thread.user_s;
    one["system_s"] = thread.system_s;
    one["waiting_s"] = thread.waiting_s;
    if (!thread.pages.empty() || !thread.file_pages.empty()) {
      one["pages"] = by_node(thread.pages);
      one["file_pages"] = by_node(thread.file_pages);
      one["huge_bytes"] = thread.huge_bytes;
    }
    json violations = json::array();
    for (const Violation v : thread.violations) violations.push_back(name(v));
    one["violations"] = violations;
    if (!thread.said.empty()) one["said"] = thread.said;
    threads.push_back(one);
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
  std::size_t wrong = 0;
  std::set<pid_t> processes;
  for (const ThreadVerdict& thread : report.threads) {
    wrong += !thread.violations.empty();
    processes.insert(thread.process);
  }
  char looks[96];
  std::snprintf(looks, sizeof looks, "%d looks in %.2f s, %.1f ms of CPU time", report.samples, report.seconds,
                report.cost_s * 1e3);
  std::string text = report.held ? "placement held: " : "placement did not hold: " + std::to_string(wrong) + " of ";
  text += count_of(report.threads.size(), "thread", "threads") + " in " +
          count_of(processes.size(), "process", "processes") + ", " + looks + "\n";
  for (const std::string& finding : report.findings) text += "  " + finding + "\n";
  for (const std::string& absent : report.absent) text += "  absent: " + absent + "\n";
  return text;
}

namespace {

/// What a person wants to see of every thread of a running program.
std::string table(const Report& report, bool with_relative) {
  std::vector<std::vector<std::string>> rows{
      {"process", "thread", "command", "allowed", "ran on", "moves", "waiting", "memory by node"}};
  for (const ThreadVerdict& thread : report.threads) {
    std::string allowed = cpu_list(thread.allowed), memory;
    if (with_relative) allowed += " (relative " + cpu_list(relative(thread.allowed, report.cgroup_cpus)) + ")";
    for (const auto& [node, bytes] : thread.pages)
      memory += (memory.empty() ? "" : ", ") + std::to_string(node) + ": " + mib(bytes);
    if (thread.huge_bytes > 0) memory += "; huge: " + mib(thread.huge_bytes);
    char waiting[32];
    std::snprintf(waiting, sizeof waiting, "%.2f s", thread.waiting_s);
    rows.push_back({std::to_string(thread.process), std::to_string(thread.thread), thread.command, allowed,
                    cpu_list(thread.ran_on), thread.migrations < 0 ? "?" : std::to_string(thread.migrations), waiting,
                    memory});
  }
  return aligned(rows);
}

/// The claim that a process holds, by the file that its environment names.
std::optional<Claim> claim_of(pid_t process) {
  const std::string text = slurp("/proc/" + std::to_string(process) + "/environ"), key = "MESHMARK_CLAIM=";
  for (std::size_t at = 0; at < text.size();) {
    const std::string entry = text.c_str() + at;
    at += entry.size() + 1;
    if (entry.compare(0, key.size(), key) != 0) continue;
    const std::string path = entry.substr(key.size()), folder = path.substr(0, path.rfind('/'));
    if (folder.empty() || folder == path) return {};
    Ledger ledger(folder);
    for (Claim& claim : ledger.claims())
      if (claim.path == path) return claim;
  }
  return {};
}

}  // namespace

int placed_verb(int argc, char** argv) {
  Arguments app{
      "Says where every thread of a running program and its pages are, and whether they are where they should be.\n"
      "Exit status 0: held, or nothing was expected; 1: not.\n\n"
      "example: meshmark placed 4711 --cpus 0-3 --nodes 0",
      "meshmark placed"};
  std::string pid_text, cpus, nodes;
  double watch_s = 1, gap_s = 0;
  bool each = false, as_json = false;
  app.add("PID", pid_text, "the process whose tree is looked at").required();
  app.time("--duration", watch_s, "watch for so long [1s]", 0, 1e6);
  app.time("--interval", gap_s, "look so often [1ms, growing to 100ms]", 1e-9);
  app.add("--cpus", cpus, "CPUs that every thread should be allowed [those of its claim]");
  app.add("--nodes", nodes, "memory nodes where its pages should be");
  app.flag("--each", each, "one CPU of --cpus a rank or thread, no two on the same");
  app.flag("--json", as_json, "one JSON object");
  if (!app.read(argc, argv, "placed")) return 0;
  const pid_t process = read_pid(pid_text);
  if (::kill(process, 0) != 0 && errno == ESRCH) throw Failure("PID: there is no process " + pid_text);

  const Machine machine = machine_of("host");
  Expectation expected;
  if (!nodes.empty()) {
    expected.memory_nodes = parse_cpu_list("--nodes", nodes);
    std::vector<int> known;
    for (const Node& node : machine.nodes) known.push_back(node.id);
    if (!within(expected.memory_nodes, known)) throw UsageError("--nodes", "found " + quote(nodes), cpu_list(known));
    count_pages(process);  // a verdict on what cannot be seen would be none
  }
  if (!cpus.empty()) {
    expected.cpus = parse_cpu_list("--cpus", cpus);
    std::vector<int> known;
    for (const Cpu& cpu : machine.cpus) known.push_back(cpu.id);
    if (!within(expected.cpus, known)) throw UsageError("--cpus", "found " + quote(cpus), cpu_list(known));
    for (const int cpu : expected.cpus) expected.layout.parts.push_back({cpu});
  } else if (const auto claim = claim_of(process)) {
    expected.layout = claim->layout;
    expected.cpus = claim->layout.cpus();
  }
  if (each && expected.cpus.empty()) throw UsageError("--each", "says nothing without CPUs", "--cpus LIST --each");
  expected.each = each;

  Observer observer(machine, process, expected);
  const double end_s = wall_s() + watch_s;
  observer.sample();
  while (wall_s() < end_s && ::kill(process, 0) == 0) {
    const double rest = std::min(gap_s > 0 ? gap_s : observer.next_s(), end_s - wall_s());
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(rest, 0.0)));
    observer.sample();
  }
  const Report report = observer.report();
  if (report.threads.empty()) throw Failure("PID: there is no process " + pid_text + " any more");
  if (as_json) {
    std::cout << to_line(to_json(report)) << "\n";
    return report.held ? 0 : 1;
  }
  std::vector<int> online;
  for (const Cpu& cpu : machine.cpus) online.push_back(cpu.id);
  std::cout << table(report, !report.cgroup_cpus.empty() && report.cgroup_cpus != online);
  if (!expected.cpus.empty() || !expected.memory_nodes.empty()) {
    std::cout << to_text(report);
  } else {
    for (const std::string& absent : report.absent) std::cout << "absent: " << absent << "\n";
  }
  return report.held ? 0 : 1;
}

}  // namespace mm::place

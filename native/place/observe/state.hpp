#pragma once
/// State of every observed process and thread, and the conditions of the observation.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "place/binding/pages.hpp"
#include "place/observe.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place::observe {

struct ObservedThread {
  ObservedThread(pid_t process, pid_t number)
      : id(number),
        stat(task_folder(process, number) + "stat"),
        schedstat(task_folder(process, number) + "schedstat") {}
  pid_t id;
  unsigned samples = 0;
  PolledFile stat, schedstat;
  TaskStat last;
  std::uint64_t ran_ns = 0, waited_ns = 0;
  std::uint64_t window_ran = 0, window_waited = 0;  ///< the same at the start of the window
  std::set<int> ran_on, outside;
  long long migrations = -1, balanced_pages = 0;
  std::string mask;
  std::vector<int> allowed;
  std::vector<int> unexpected;                            ///< the last unexpected mask
  double unexpected_at_s = 0;                             ///< time of its first sample
  double unexpected_since_s = 0, unexpected_until_s = 0;  ///< times of the first and the last sample with that mask
  std::uint64_t unexpected_waited_ns = 0;                 ///< waiting time at the first of these samples
  double doubled_s = 0;
  int outside_samples = 0, unexpected_samples = 0, doubled_windows = 0;
  bool sampled = false, ended = false, in_window = false, was_expected = false;
  bool unexpected_now = false;  ///< in the last sample
  bool transient = true;        ///< no unexpected mask lasted
  std::string doubled_with;
};

struct ObservedProcess {
  pid_t id = 0;
  std::map<pid_t, ObservedThread> threads;
  std::vector<ObservedThread> ended_threads;
  bool ended = false;
  double since_s = 0;
  bool old = false;                              ///< started before the observation
  std::map<std::string, std::string> variables;  ///< read when a violation occurs
  std::string variables_of;                      ///< command for which they were read; an exec changes it
  std::string cgroup_change;
  // Pages.
  PageCount pages;
  bool counted = false, outside_now = false, first_walk_outside = false;
  int outside_walks = 0;
  PageCount worst;
  std::map<int, std::uint64_t> missed;  ///< node → pages that found no room there since the start
  std::map<int, NodeLevel> levels;      ///< levels of the nodes in the worst sample
  double next_walk_s = 0, gap_s = 0.05;
};

template <class Function>
void each_thread(const ObservedProcess& process, Function&& function) {
  for (const auto& [id, thread] : process.threads) function(thread);
  for (const ObservedThread& thread : process.ended_threads) function(thread);
}

/// The conditions at the start of the observation, and changes since.
struct Context {
  Context(const Machine& machine, pid_t root, Expectation expected);
  double elapsed() const;  ///< s since the start
  void update_offline();

  Machine machine;
  pid_t root;
  Expectation expected;
  double began_s;
  std::vector<int> first_online;
  std::set<int> offline;  ///< CPUs that were online at the start and are now offline
  std::string cgroup;
  std::vector<int> cgroup_cpus;
  std::set<std::string> absent;
  double tick_rate;
  std::uint64_t page_bytes;
};

/// Returns the cgroup of a process, and the CPUs that its cpuset permits; the list is empty if they are unknown.
std::pair<std::string, std::vector<int>> cpuset_of(pid_t process);

double thread_cpu_s();  ///< CPU time of the calling thread, for the cost of its samples

}  // namespace mm::place::observe

#pragma once
/// Verifies a placement: samples where every thread of a process tree runs, where it may run, how often it migrated,
/// and where its pages are. The verdict states violations per thread, with the cause.
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "place/types.hpp"

namespace mm::place {

struct Expectation {
  std::vector<int> cpus;  ///< allowed CPUs of every thread; empty: unbound, reported only
  bool each = false;      ///< additionally, no two ranks (processes) or threads share a part
  Layout layout;
  std::vector<int> memory_nodes;  ///< nodes where pages should be; empty: any node
  bool strict_memory = false;     ///< bind: a page elsewhere is a violation; otherwise it is reported as a share
  double tolerated_share = 0.01;  ///< accepted share of pages elsewhere (shared libraries, pages of the loader)
};

enum class Violation { none, mask_changed, ran_outside, doubled, wrong_node, spilled };
std::string name(Violation violation);

struct ThreadVerdict {
  pid_t process, thread;
  std::string command;
  std::vector<int> allowed, ran_on;  ///< last mask; CPUs on which it was observed
  long long migrations = -1;         ///< from the Linux kernel; -1 if unavailable
  double user_s = 0, system_s = 0, waiting_s = 0;
  std::map<int, std::uint64_t> pages;  ///< node → B of its process; only at the process's first thread
  std::map<int, std::uint64_t>
      file_pages;  ///< node → B of files and shared libraries, also only at the first thread: reported, not judged
  std::uint64_t huge_bytes = 0;  ///< part of `pages` in huge pages
  std::vector<Violation> violations;
  std::string explanation;  ///< what happened, its cause and the remedy; "" if the placement held
};

struct Report {
  bool held = true;
  int samples = 0;
  double seconds = 0;
  double cost_s = 0;             ///< CPU time of the observation
  std::vector<int> cgroup_cpus;  ///< CPUs that the root's cgroup permits; empty if unknown
  std::vector<ThreadVerdict> threads;
  std::vector<std::string> findings;  ///< one line per cause
  std::vector<std::string> absent;    ///< what could not be observed, with the reason
};

class Observer {
 public:
  /// Observes the tree of the process `root`: itself, its descendants and, if the caller is a subreaper, their orphans.
  /// Construct it after placing the root: earlier state is judged too.
  Observer(const Machine& machine, pid_t root, Expectation expected);
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  /// Takes one sample. This is cheap if nothing changed (page maps are read in at most 2 % of the time).
  void sample();
  /// Returns the delay until the next sample, s: from 1 ms at the start to 100 ms; later up to 1 s if samples cost more
  /// than 5 %.
  double next_s() const;
  Report report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Totals over the observed threads.
struct Totals {
  double waiting_s = 0;
  long long migrations = 0;      ///< sum over the threads with a known number
  bool migrations_known = true;  ///< for all threads
  std::uint64_t huge_bytes = 0;
  std::map<int, std::uint64_t> pages;  ///< node → B
};
Totals totals(const Report& report);

/// Returns one object with lists of CPUs as text (`0-3,8`) and bytes by node as objects. docs/reference/proof.md
/// documents the keys.
json to_json(const Report& report);
/// Returns the verdict: one line, then one line per cause and per missing observation.
std::string to_text(const Report& report);

/// meshmark-place placed PID …, meshmark-place migrate PID --to …
int placed_verb(int argc, char** argv);
int migrate_verb(int argc, char** argv);

}  // namespace mm::place

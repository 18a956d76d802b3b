#pragma once
/// Proof that a placement held: samples where every thread of a process tree runs, what it may run on, how often it
/// moved, and where its pages are; then a verdict a thread, which names the culprit.
#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "json.hpp"
#include "types.hpp"

namespace mm::place {

struct Expectation {
  std::vector<int> cpus;  ///< allowed CPUs of every thread; empty: unbound, only told
  bool each = false;      ///< and no two ranks (processes) or threads share one part
  Layout layout;
  std::vector<int> memory_nodes;  ///< where pages shall be; empty: anywhere
  bool strict_memory = false;     ///< bind: a page elsewhere is a violation; else told as a share
  double tolerated_share = 0.01;  ///< of pages elsewhere (shared libraries, pages of the loader)
};

enum class Violation { none, mask_changed, ran_outside, doubled, wrong_node, spilled };
std::string name(Violation violation);

struct ThreadVerdict {
  pid_t process, thread;
  std::string command;
  std::vector<int> allowed, ran_on;  ///< last mask seen; CPUs it was seen on
  long long migrations = -1;         ///< by the kernel's count; -1 where it does not tell
  double user_s = 0, system_s = 0, waiting_s = 0;
  std::map<int, std::uint64_t> pages;       ///< node → B, of its process; only at the process's first thread
  std::map<int, std::uint64_t> file_pages;  ///< likewise, of files and shared libraries: told, not judged
  std::uint64_t huge_bytes = 0;             ///< of them in huge pages
  std::vector<Violation> violations;
  std::string said;  ///< what happened, by whom and the remedy; "" where all held
};

struct Report {
  bool held = true;
  int samples = 0;
  double seconds = 0;
  double cost_s = 0;             ///< CPU time that the looking took
  std::vector<int> cgroup_cpus;  ///< what the root's cgroup leaves to it; empty where that cannot be told
  std::vector<ThreadVerdict> threads;
  std::vector<std::string> findings;  ///< one line a culprit, for people
  std::vector<std::string> absent;    ///< what could not be seen, with the reason
};

class Observer {
 public:
  /// `root` is the process whose tree is watched: itself, its descendants and, where the caller is a subreaper, orphans
  /// of theirs that came to the caller. Build it after the root was placed: what it may use before is judged too.
  Observer(const Machine& machine, pid_t root, Expectation expected);
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  /// One look; cheap where nothing changed (maps of pages are read in at most 2 % of the time).
  void sample();
  /// In how many seconds to look again: 1 ms at the start, growing to 100 ms; later, up to 1 s, where looks cost more
  /// than 5 %.
  double next_s() const;
  Report report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sums over the threads that were seen.
struct Totals {
  double waiting_s = 0;
  long long migrations = 0;      ///< of those of which the kernel tells
  bool migrations_known = true;  ///< of all of them
  std::uint64_t huge_bytes = 0;
  std::map<int, std::uint64_t> pages;  ///< node → B
};
Totals totals(const Report& report);

/// One object; lists of CPUs as text (`0-3,8`), bytes by node as objects. docs/reference/proof.md has the keys.
json to_json(const Report& report);
/// The verdict: one line, then one a culprit and one a thing that could not be seen.
std::string to_text(const Report& report);

/// meshmark-place placed PID …, meshmark-place migrate PID --to …
int placed_verb(int argc, char** argv);
int migrate_verb(int argc, char** argv);

}  // namespace mm::place

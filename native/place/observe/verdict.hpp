#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "place/observe/state.hpp"

namespace mm::place::observe {

/// Evaluates an observation: which thread violated the placement, why, and the remedy.
class Verdict {
 public:
  /// `all`: the processes in the order of discovery.
  Verdict(const Context& context, std::vector<const ObservedProcess*> all);
  /// Writes the threads with their violations, and one finding per cause.
  void write(Report& report) const;

 private:
  struct Masks {
    std::set<pid_t> narrowed;            ///< processes whose threads all have the same mask, smaller than expected
    std::set<std::vector<int>> of_them;  ///< the masks of these processes
    std::map<pid_t, std::set<std::vector<int>>> by_process;
  };
  struct Finding {
    std::set<pid_t> threads, processes;
    std::string command;
  };
  using Findings = std::map<std::pair<Violation, std::string>, Finding>;

  bool mask_counts(const ObservedProcess& process, const ObservedThread& thread) const;
  Masks narrowed_masks() const;
  std::string explain_mask(const ObservedProcess& process, const ObservedThread& thread) const;
  std::pair<Violation, std::string> explain_pages(const ObservedProcess& process) const;
  ThreadVerdict judge(const ObservedProcess& process, const ObservedThread& thread, Findings& findings) const;

  static void add_violation(ThreadVerdict& verdict, Findings& findings, Violation violation, const std::string& reason);

  const Context& context_;
  std::vector<const ObservedProcess*> all_;
  Masks masks_;
};

}  // namespace mm::place::observe

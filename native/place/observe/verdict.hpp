#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "seen.hpp"

namespace mm::place::observe {

/// Judges what was seen: which thread violated what, by whose doing, and the remedy.
class Verdict {
 public:
  /// `all`: the processes by the time when they were found.
  Verdict(const Context& context, std::vector<const Process*> all);
  /// The threads with their violations, and a finding for each culprit.
  void write(Report& report) const;

 private:
  struct Masks {
    std::set<pid_t> narrowed;            ///< processes whose threads all have one mask, smaller than expected
    std::set<std::vector<int>> of_them;  ///< those masks
    std::map<pid_t, std::set<std::vector<int>>> by_process;
  };
  struct Finding {
    std::set<pid_t> threads, processes;
    std::string command;
  };
  using Findings = std::map<std::pair<Violation, std::string>, Finding>;

  bool mask_counts(const Process& process, const Thread& thread) const;
  Masks narrowed_masks() const;
  std::string blame_mask(const Process& process, const Thread& thread) const;
  std::pair<Violation, std::string> blame_pages(const Process& process) const;
  ThreadVerdict judge(const Process& process, const Thread& thread, Findings& findings) const;

  static void accuse(ThreadVerdict& verdict, Findings& findings, Violation violation, const std::string& why);

  const Context& context_;
  std::vector<const Process*> all_;
  Masks masks_;
};

}  // namespace mm::place::observe

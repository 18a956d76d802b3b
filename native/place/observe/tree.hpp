#pragma once
#include <map>
#include <vector>

#include "seen.hpp"

namespace mm::place::observe {

/// The processes and threads below the root, by the kernel's lists of children, or by one scan of all processes.
class Tree {
 public:
  explicit Tree(const Context& context);
  void find_children();
  void find_threads(Process& process);
  std::vector<const Process*> all() const;  ///< by the time when they were found

  std::map<pid_t, Process> living;
  std::vector<Process> over;

 private:
  void enter(pid_t id);

  const Context& context_;
  bool by_children_, subreaper_ = false;
};

}  // namespace mm::place::observe

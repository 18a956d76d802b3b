#pragma once
#include <map>
#include <vector>

#include "place/observe/state.hpp"

namespace mm::place::observe {

/// The processes and threads below the root, from the Linux kernel's lists of children, or from a scan of all
/// processes.
class Tree {
 public:
  explicit Tree(const Context& context);
  void find_children();
  void find_threads(Process& process);
  std::vector<const Process*> all() const;  ///< in the order of discovery

  std::map<pid_t, Process> living;
  std::vector<Process> ended;

 private:
  void enter(pid_t id);

  const Context& context_;
  bool by_children_, subreaper_ = false;
};

}  // namespace mm::place::observe

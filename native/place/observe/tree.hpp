#pragma once
#include <map>
#include <vector>

#include "place/observe/state.hpp"

namespace mm::place::observe {

/// The processes and threads below the root, from the Linux kernel's lists of children, or from a scan of all
/// processes.
class ProcessTree {
 public:
  explicit ProcessTree(const Context& context);
  void find_children();
  void find_threads(ObservedProcess& process);
  std::vector<const ObservedProcess*> all() const;  ///< in the order of discovery

  std::map<pid_t, ObservedProcess> living;
  std::vector<ObservedProcess> ended;

 private:
  void enter(pid_t id);

  const Context& context_;
  bool by_children_, subreaper_ = false;
};

}  // namespace mm::place::observe

#pragma once
#include <map>
#include <vector>

#include "place/observe/state.hpp"

namespace mm::place::observe {

/// Detects ranks or threads that share a part while another part is idle.
class SharedPartDetector {
 public:
  explicit SharedPartDetector(Context& context);
  /// Compares the use of parts in the last window with the assignment; does nothing before the window ends.
  void update(std::map<pid_t, ObservedProcess>& living, double now);

 private:
  /// Parts with identical CPUs form one entry with room for several units.
  struct Room {
    std::vector<int> cpus;
    std::size_t units = 0;
  };

  void close_window(std::map<pid_t, ObservedProcess>& living, double now);

  Context& context_;
  std::vector<Room> rooms_;    // only if every unit has a separate part
  double window_begin_s_ = 0;  // start of the window
};

}  // namespace mm::place::observe

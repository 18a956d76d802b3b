#pragma once
#include <map>
#include <vector>

#include "seen.hpp"

namespace mm::place::observe {

/// Finds ranks or threads that share one part while another part stays empty.
class Parts {
 public:
  explicit Parts(Context& context);
  /// Compares what the units did since the last window with the parts that they ran on; does nothing before its end.
  void update(std::map<pid_t, Process>& living, double now);

 private:
  /// Parts with the same CPUs are one that has room for several.
  struct Room {
    std::vector<int> cpus;
    std::size_t units = 0;
  };

  void close_window(std::map<pid_t, Process>& living, double now);

  Context& context_;
  std::vector<Room> rooms_;  // only if every unit has its own part
  double window_s_ = 0;      // begin of the window
};

}  // namespace mm::place::observe

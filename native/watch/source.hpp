#pragma once
/// A source of numbers: one file of `sources/` each. It opens what it reads once, and is then asked at every tick.
#include <memory>
#include <string>
#include <vector>

#include "board.hpp"

namespace mm::watch {

/// Where the sources look, and what all of them need to know of the machine.
struct Host {
  std::string root;          ///< prefix of /proc and /sys: empty, or a recorded tree
  std::vector<int> cpus;     ///< OS numbers of the components of class cpu, in their order
  std::vector<int> node_of;  ///< node component of each of them
  std::vector<int> nodes;    ///< OS numbers of the components of class node
  double ticks_per_s = 100;  ///< of /proc/stat
  bool live = true;          ///< this machine, not a recorded tree
};

/// Finds CPUs and nodes and adds their components.
Host find_host(const std::string& root, Board& board);

class Source {
 public:
  virtual ~Source() = default;
  /// Opens its files and adds its metrics, or says what is absent. Called once.
  virtual void open(const Host& host, Board& board) = 0;
  /// Writes present values. `now` is in s; the first call only remembers counters.
  virtual void sample(Board& board, double now) = 0;
  /// Least time between two samples, s: dear sources are asked less often than every tick.
  virtual double least_period() const { return 0; }
};

struct Registered {
  const char* name;
  const char* what;
  std::unique_ptr<Source> (*make)();
};

std::vector<Registered>& registry();

template <class T>
struct Registration {
  Registration(const char* name, const char* what) {
    registry().push_back({name, what, [] { return std::unique_ptr<Source>(new T); }});
  }
};

/// A counter's growth a second; unknown at the first value, where it went back, and where it is unknown.
class Rate {
 public:
  double of(double value, double now) {
    const double grown = value - last_, span = now - at_;
    const bool known = seen_ && grown >= 0 && span > 0;
    seen_ = value == value;
    last_ = value;
    at_ = now;
    return known ? grown / span : kUnknown;
  }

 private:
  double last_ = 0, at_ = 0;
  bool seen_ = false;
};

}  // namespace mm::watch

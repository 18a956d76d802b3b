#pragma once
/// A source of numbers: one file of `sources/` each. It opens what it reads once, and is then asked at every tick.
#include <sched.h>

#include <memory>
#include <string>
#include <vector>

#include "board.hpp"

namespace mm::perf {
class Kernel;
}

namespace mm::watch {

using perf::Kernel;

/// Where the sources look, and what all of them need to know of the machine.
struct Host {
  std::string root;          ///< prefix of /proc and /sys: empty, or a recorded tree
  std::string cpuinfo;       ///< /proc/cpuinfo, which a large machine takes long to write
  std::vector<int> cpus;     ///< OS numbers of the components of class cpu, in their order
  std::vector<int> node_of;  ///< node component of each of them
  std::vector<int> nodes;    ///< OS numbers of the components of class node
  double ticks_per_s = 100;  ///< of /proc/stat
  bool live = true;          ///< this machine, not a recorded tree
  Kernel* kernel = nullptr;  ///< that counters are opened with; none on a recorded tree
  json attained;             ///< bandwidths that a survey reached here, by node (docs/reference/frames.md)
  json canary;               ///< what a calibration of the canary found

  std::size_t parts = 1;             ///< nodes with CPUs: each has a thread of the sampler on its own CPUs
  std::vector<std::size_t> part_of;  ///< by place in `nodes`; that of a node without CPUs is the first
  std::vector<cpu_set_t> part_cpus;  ///< CPUs of each part

  std::size_t part_of_cpu(int cpu) const {
    for (std::size_t i = 0; i < cpus.size(); ++i)
      if (cpus[i] == cpu) return node_of[i] < 0 ? 0 : part_of[static_cast<std::size_t>(node_of[i])];
    return 0;
  }
};

/// Finds CPUs and nodes and adds their components.
Host find_host(const std::string& root, Board& board);
/// Adds a memory a node, and links by the firmware's distances, where no counters have said it better.
void complete_host(const Host& host, Board& board);

class Source {
 public:
  virtual ~Source() = default;
  /// Opens its files and adds its metrics, or says what is absent. Called once.
  virtual void open(const Host& host, Board& board) = 0;
  /// Writes present values. `now` is in s; the first call only remembers counters. After all of its parts.
  virtual void sample(Board& board, double now) = 0;
  /// What is dear to ask from afar: called for every part on a CPU of that part, at once with the others. Parts write
  /// to components of their own.
  virtual void sample_part(Board&, double, std::size_t /*part*/) {}
  virtual bool has_parts() const { return false; }
  /// Least time between two samples, s: dear sources are asked less often than every tick.
  virtual double least_period() const { return 0; }
};

struct Registered {
  const char* name;
  const char* what;
  std::unique_ptr<Source> (*make)();
  bool first;  ///< opened before the others: it finds components
};

std::vector<Registered>& registry();

template <class T>
struct Registration {
  Registration(const char* name, const char* what, bool first = false) {
    registry().push_back({name, what, [] { return std::unique_ptr<Source>(new T); }, first});
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

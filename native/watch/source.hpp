#pragma once
/// A source of metrics; each is one file in `sources/`. It opens its files once, and is sampled at every tick.
#include <sched.h>

#include <memory>
#include <string>
#include <vector>

#include "base/topology/topology.hpp"
#include "watch/board.hpp"

namespace mm::perf {
class PerfKernel;
}

namespace mm::watch {

using perf::PerfKernel;

/// Where sources read, and what they share about the machine.
struct Host {
  std::string root;              ///< prefix of /proc and /sys: empty, or a recorded tree
  std::string cpuinfo;           ///< /proc/cpuinfo, which is slow to read on a large machine
  Machine machine;               ///< the topology of that tree
  std::vector<int> cpus;         ///< OS numbers of the components of class cpu, in their order, offline CPUs included
  std::vector<int> node_of;      ///< node component of each of these CPUs
  std::vector<int> nodes;        ///< OS numbers of the components of class node
  double ticks_per_s = 100;      ///< in /proc/stat
  bool live = true;              ///< this machine, not a recorded tree
  PerfKernel* kernel = nullptr;  ///< for opening counters; null for a recorded tree
  json sustained;                ///< sustained bandwidths from a survey here, by node (docs/reference/frames.md)
  json canary;                   ///< calibration of the canary

  std::size_t parts = 1;             ///< nodes with CPUs: each has a sampler thread on its CPUs
  std::vector<std::size_t> part_of;  ///< by index in `nodes`; nodes without CPUs belong to part 0
  std::vector<cpu_set_t> part_cpus;  ///< CPUs of each part

  std::size_t part_of_cpu(int cpu) const {
    for (std::size_t i = 0; i < cpus.size(); ++i)
      if (cpus[i] == cpu) return node_of[i] < 0 ? 0 : part_of[static_cast<std::size_t>(node_of[i])];
    return 0;
  }
};

/// Finds CPUs and nodes and adds their components.
Host find_host(const std::string& root, Board& board);
/// Adds one memory per node, and links from the firmware's distances, unless counters define them.
void complete_host(const Host& host, Board& board);

class Source {
 public:
  virtual ~Source() = default;
  /// Opens its files and adds its metrics, or records their absence. Called once.
  virtual void open(const Host& host, Board& board) = 0;
  /// Writes current values, after all parts. `now` is in s; the first call only stores counters.
  virtual void sample(Board& board, double now) = 0;
  /// Samples what is expensive to read from a remote CPU. Called for every part on a CPU of that part, concurrently;
  /// each part writes only to its own components.
  virtual void sample_part(Board&, double, std::size_t /*part*/) {}
  virtual bool has_parts() const { return false; }
  /// Minimum time between two samples, s: expensive sources are not sampled at every tick.
  virtual double min_period() const { return 0; }
};

struct Registered {
  const char* name;
  const char* what;
  std::unique_ptr<Source> (*make)();
  bool first;  ///< opened before the others, because it adds components
};

std::vector<Registered>& registry();

template <class T>
struct Registration {
  Registration(const char* name, const char* what, bool first = false) {
    registry().push_back({name, what, [] { return std::unique_ptr<Source>(new T); }, first});
  }
};

/// The increase of a counter per second; unknown for the first value, for a value below the previous one, and if this
/// or the previous value is unknown.
class Rate {
 public:
  double of(double value, double now) {
    const double increase = value - last_, span = now - at_;
    const bool is_known = seen_ && increase >= 0 && span > 0;
    seen_ = value == value;
    last_ = value;
    at_ = now;
    return is_known ? increase / span : kUnknown;
  }

 private:
  double last_ = 0, at_ = 0;
  bool seen_ = false;
};

}  // namespace mm::watch

#pragma once
/// Observes running processes for a moment, at a bounded cost: on which nodes their threads ran, and where their pages
/// are.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "place/sample/pages.hpp"
#include "place/types.hpp"

namespace mm::place::sample {

/// Threads with the same set of allowed CPUs.
struct MaskUse {
  std::size_t threads = 0;
  double ran_s = 0, waited_s = 0;
};

struct ProcessSample {
  pid_t process = 0;
  std::string command;
  std::size_t threads = 0;  ///< number of threads; only some are observed if there are very many
  std::size_t observed_threads = 0;
  double ran_s = 0, waited_s = 0;        ///< sums over the observed threads: ran; could run, but waited for a CPU
  std::map<int, double> ran_by_node;     ///< node → s
  std::map<std::string, MaskUse> masks;  ///< allowed CPUs as a list → threads
  std::uint64_t resident_bytes = 0, swapped_bytes = 0;
  std::string allowed_nodes;  ///< memory nodes that its cpuset permits
  PageSample pages;
  std::string pages_absent;  ///< why the pages could not be sampled
};

struct Sample {
  double seconds = 0;                   ///< length of the observation
  double cost_s = 0;                    ///< CPU time of the observation
  int passes = 0;                       ///< how often the threads were read
  std::size_t processes = 0;            ///< number of processes that were given and exist
  std::vector<ProcessSample> observed;  ///< those with the largest memory and the most threads, if there are many
};

/// Observes these processes for `duration_s`. Processes that end meanwhile are left out.
Sample observe(const Machine& machine, const std::vector<pid_t>& processes, double duration_s);

json to_json(const Sample& sample);

/// meshmark-place sample PID,PID,… --duration 1s: prints one JSON object.
int sample_verb(int argc, char** argv);

}  // namespace mm::place::sample

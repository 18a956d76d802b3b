#pragma once
/// The queue of a mix: which waiting job starts next, and on which CPUs.
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "place/mix/simulation.hpp"

namespace mm::place::mix {

/// What became of a waiting job.
struct Decision {
  std::size_t job = 0;
  Placement placement;
  std::string refused;  ///< why it can never start; "" if it starts now
};

/// Jobs are numbers of entries of `jobs`.
class JobQueue {
 public:
  JobQueue(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs);
  void submit(std::size_t job) { waiting_.push_back(job); }
  /// Returns the jobs that leave the queue now, in the order in which they start.
  std::vector<Decision> start();
  /// Frees the CPUs of a job that has started.
  void finish(std::size_t job);
  const Occupancy& taken() const { return taken_; }  ///< how many jobs hold each CPU

 private:
  enum class Attempt { left, waits };
  Attempt try_start(std::size_t job, std::vector<Decision>& decisions);

  const Machine& machine_;
  const Settings& settings_;
  const std::vector<MixJob>& jobs_;
  std::size_t slots_ = 0;
  std::list<std::size_t> waiting_;
  std::vector<std::vector<int>> cpus_;  ///< CPUs of each running job
  Occupancy taken_;
  int used_slots_ = 0;
};

}  // namespace mm::place::mix

#pragma once
/// Simulates a mix of jobs that arrive, wait in a queue, and run on one machine under a placement policy.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place::mix {

/// A job. It computes in all of its slots for its whole run time, as one thread per slot.
struct MixJob {
  double submit_s = 0;
  double run_s = 0;  ///< time that it takes alone
  int slots = 1;
  double bytes_per_s = 0;  ///< memory traffic of all its slots when it runs alone
};

/// Which waiting job starts next: only the first one, or the first one that fits.
enum class Discipline { fcfs, first_fit };

struct Settings {
  Request request;  ///< policy, kind of slots and limits; `slots` is set for each job
  Discipline discipline = Discipline::fcfs;
  /// Slots of all running jobs together; empty: no limit, so that only the policy decides whether a job has to wait.
  std::optional<int> max_slots;
  double node_bytes_per_s = 0;  ///< bandwidth of each node; 0: no limit
  double core_yield = 1;        ///< work of a core with several busy threads, relative to a core with one
};

struct JobOutcome {
  double start_s = 0, end_s = 0;
  std::vector<int> cpus;        ///< empty if it was not bound
  bool oversubscribed = false;  ///< another job already held one of its CPUs when it started
  std::string refused;          ///< why it can never start; "" if it ran
};

/// Returns how each job fared, in the order of `jobs`.
///
/// Jobs are queued by time of submission; jobs of the same time keep their order. A running job progresses at the mean
/// rate of its slots, multiplied by the share of the memory traffic that it gets:
/// - The jobs that hold a slot share its cores equally. Jobs that are not bound share all cores equally.
/// - A job's memory is on the nodes of its CPUs, or on all nodes if it is not bound. The bandwidth of a saturated node
/// is
///   shared in proportion to demand (max-min fairness).
/// Times of context switches, of migrations and of remote accesses are not modelled.
std::vector<JobOutcome> simulate(const Machine& machine, const Settings& settings, const std::vector<MixJob>& jobs);

}  // namespace mm::place::mix

#pragma once
/// Results of a trial, and totals by group of actors and by batch (an equal part of the measured time or of the
/// accesses).
#include <cstdint>
#include <vector>

#include "model/trial.hpp"

namespace mm::model {

struct GroupResult {
  std::vector<double> latency_ps, reads, bytes;  ///< by batch: total latency of reads, their number, bytes moved
  std::vector<double> phase_ps, phases;          ///< by batch: total length and number of completed memory phases
  Time ended = 0;                                ///< end of its last actor; 0 if no actor ends
};

/// Lines that the CPUs and I/O ports of each node read from and wrote to the memory of each node: nodes x nodes, row =
/// node of the requester. Empty if the trial does not count them.
struct PairLines {
  std::vector<std::uint64_t> reads, writes;
};

struct TrialResult {
  std::vector<GroupResult> groups;
  PairLines pairs;
  Time measured = 0;
  std::vector<double> output_busy;  ///< share of the measured time, by output
  std::vector<double> memory_busy;  ///< by memory endpoint (index order)
  std::uint64_t packet_hops = 0, answered = 0, requested = 0, hits = 0;
  bool credits_back = true;
};

/// Totals by group and batch. `ended`: number of completed accesses of the actor.
class Results {
 public:
  Results(const Trial& trial, int line_bytes);

  void write_ended(const Actor& actor, std::uint64_t ended, Time now) {
    if (now < trial_.warm) return;
    groups_[static_cast<std::size_t>(actor.group)].bytes[batch_of(actor, ended, now)] += line_bytes_;
  }
  void read_ended(const Actor& actor, std::uint64_t ended, Time latency, Time now) {
    if (now < trial_.warm) return;
    GroupResult& group = groups_[static_cast<std::size_t>(actor.group)];
    const std::size_t batch = batch_of(actor, ended, now);
    group.bytes[batch] += line_bytes_;
    group.reads[batch] += 1;
    group.latency_ps[batch] += static_cast<double>(latency);
  }
  void phase_ended(const Actor& actor, std::uint64_t ended, Time from, Time now);
  void actor_ended(const Actor& actor, Time now);

  std::vector<GroupResult> take() { return std::move(groups_); }

 private:
  /// Returns the batch to which an access or a phase that ends now belongs. A batch is an equal part of the measured
  /// time, or of the actor's accesses if the trial ends when all actors have ended.
  std::size_t batch_of(const Actor& actor, std::uint64_t ended, Time now) const {
    const auto n = static_cast<std::size_t>(trial_.batches);
    const auto batch = trial_.measure > 0
                           ? static_cast<std::size_t>((now - trial_.warm) * trial_.batches / trial_.measure)
                           : static_cast<std::size_t>(ended * n / (actor.accesses + 1));
    return batch < n ? batch : n - 1;
  }

  const Trial& trial_;
  const int line_bytes_;
  std::vector<GroupResult> groups_;
};

}  // namespace mm::model

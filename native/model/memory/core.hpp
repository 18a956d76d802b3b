#pragma once
/// Cores and I/O ports: each runs the programs of its actors, limited by its outstanding loads.
#include <cstdint>
#include <vector>

#include "model/memory/coherence.hpp"
#include "model/memory/directory.hpp"
#include "model/memory/node_rules.hpp"
#include "model/memory/random.hpp"
#include "model/memory/transaction.hpp"
#include "model/network/graph.hpp"
#include "model/results.hpp"
#include "model/trial.hpp"

namespace mm::model {

/// Counts outstanding accesses, compares them with the limits of each core (miss buffers, write buffers) and node, and
/// lists the actors that wait for a buffer.
class Buffers {
 public:
  Buffers(const Graph& graph, const NodeRules& rules)
      : rules_(rules),
        reads_(graph.endpoints.size(), 0),
        writes_(graph.endpoints.size(), 0),
        node_reads_(graph.nodes(), 0),
        waiting_(graph.endpoints.size()) {}

  /// Returns whether this is a posted write, which has a separate buffer; other writes occupy a read buffer.
  bool posted(Op op) const { return op == Op::write && rules_.core.posted_writes; }
  bool free(std::uint32_t endpoint, bool posted) const {
    return posted ? writes_[endpoint] < rules_.core.write_buffers : reads_[endpoint] < rules_.core.outstanding;
  }
  bool node_free(std::uint32_t node) const { return rules_.outstanding == 0 || node_reads_[node] < rules_.outstanding; }
  void occupy(std::uint32_t endpoint, std::uint32_t node, bool posted) { change(endpoint, node, posted, 1); }
  void release(std::uint32_t endpoint, std::uint32_t node, bool posted) { change(endpoint, node, posted, -1); }
  int reads(std::uint32_t endpoint) const { return reads_[endpoint]; }

  void wait(std::uint32_t endpoint, std::uint32_t actor);
  void wait_for_node(std::uint32_t actor) { node_waiting_.push_back(actor); }
  /// Calls `wake` with each actor that may retry after an access of `endpoint` has ended.
  template <class Wake>
  void wake(std::uint32_t endpoint, const Wake& wake) {
    if (auto& list = waiting_[endpoint]; !list.empty()) {
      const std::uint32_t first = list.front();
      list.erase(list.begin());
      wake(first);
    }
    if (node_waiting_.empty()) return;
    for (const std::uint32_t actor : node_waiting_) wake(actor);
    node_waiting_.clear();
  }

 private:
  void change(std::uint32_t endpoint, std::uint32_t node, bool posted, int by) {
    if (posted) {
      writes_[endpoint] += by;
    } else {
      reads_[endpoint] += by;
      node_reads_[node] += by;
    }
  }

  const NodeRules& rules_;
  std::vector<int> reads_, writes_, node_reads_;
  std::vector<std::vector<std::uint32_t>> waiting_;  ///< by endpoint
  std::vector<std::uint32_t> node_waiting_;
};

class Cores {
 public:
  Cores(const Graph& graph, const NodeRules& rules, const Trial& trial, const Directory& directory, Protocol& protocol,
        Calendar& calendar, Results& results);

  /// Schedules the first access of every actor.
  void start();
  /// Handles an event kIssue: issues all accesses that the actor may issue now. If the next access has to wait for a
  /// time, an event is scheduled for that time. If it has to wait for another access, the end of that access schedules
  /// the event. An event does nothing if an event for an earlier time has been scheduled after it.
  void issue(std::uint32_t actor, Time now);
  /// Handles the end of an access of the actor.
  void retire(const Transaction& x, Time now);

  std::uint64_t unfinished() const {
    return unfinished_;
  }  ///< actors with a limited number of accesses that have not completed
  std::uint64_t hits() const { return hits_; }
  int outstanding_reads(std::uint32_t endpoint) const { return buffers_.reads(endpoint); }

 private:
  static constexpr std::uint64_t kEndless = ~std::uint64_t{0};

  struct ActorState {
    Draws draws;
    Time next_issue = 0;  ///< from pace and the core's issue gap
    std::uint64_t issued = 0, ended = 0;
    std::uint64_t phase_end = kEndless;  ///< number of issued accesses that ends the memory phase
    Time phase_from = 0;
    int reads_open = 0;
    std::size_t stream = 0;
    std::vector<std::uint64_t> at;  ///< by stream
    Time scheduled = kNever;
    bool finished = false;
  };

  void plan(std::uint32_t actor, Time at) {
    ActorState& s = states_[actor];
    if (at >= s.scheduled) return;
    s.scheduled = at;
    calendar_.push(at, event_of(kIssue, actor), 0);
  }
  bool rests(std::uint32_t number, Time now);
  bool hit(std::uint32_t number, Time now);
  void trace_access(const Traced& traced, Access& access) const;
  void stream_access(const AccessStream& stream, std::uint64_t count, Draws& draws, Access& access) const;
  bool may_issue(std::uint32_t number, std::uint32_t node, bool posted, Time now);
  void finish(std::uint32_t number, Time now);

  const Graph& graph_;
  const NodeRules& rules_;
  const Trial& trial_;
  const Directory& directory_;
  Protocol& protocol_;
  Calendar& calendar_;
  Results& results_;
  Buffers buffers_;
  std::vector<ActorState> states_;
  std::uint64_t unfinished_ = 0, hits_ = 0;
};

}  // namespace mm::model

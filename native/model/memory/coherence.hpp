#pragma once
/// The coherence protocol: requests to the home of a line, probes and forwards to the cores that hold it, and answers
/// to the requester. On nodes with a bypass, a requester on the home's node is reached without the router.
#include <cstdint>
#include <optional>

#include "model/memory/directory.hpp"
#include "model/memory/memory.hpp"
#include "model/memory/node_rules.hpp"
#include "model/memory/transaction.hpp"
#include "model/network/calendar.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/network/pool.hpp"
#include "model/results.hpp"
#include "model/trial.hpp"

namespace mm::model {

class Protocol {
 public:
  /// `directory`: the directory of traced lines.
  Protocol(const Graph& graph, const NodeRules& rules, const Trial& trial, Network& network,
           MemoryControllers& memories, Directory& directory, Calendar& calendar);

  void start(const Access& access, Time now);
  /// Handles a packet of `network` that reached an endpoint.
  void deliver(std::uint32_t endpoint, std::uint32_t packet, Time now);
  /// Handles a request at its home; it occupies `flits` of the controller's queue until the controller has served it.
  void request_at_home(std::uint32_t t, std::uint32_t flits, Time at);
  /// Called when the home has the data, has accepted the write, or has found the owner in the directory.
  void served(std::uint32_t t, std::uint32_t flits, Time now);
  /// Called when a core has looked up a probed line.
  void probed(std::uint32_t t, std::uint32_t endpoint, Time now);
  /// Ends a transaction. If another transaction waits for its traced line, continues the one that has waited longest.
  /// The returned reference is valid until the next call of `start`.
  const Transaction& finish(std::uint32_t t, Time now);

  std::uint64_t requested() const { return requested_; }
  std::uint64_t answered() const { return answered_; }
  std::uint64_t open() const { return requested_ - answered_; }
  /// Returns the lines that memories have served since the start or the last call of `forget_pairs`; empty unless
  /// Trial::traffic.
  const PairLines& pairs() const { return pairs_; }
  void forget_pairs();

 private:
  enum Message : std::uint8_t { kRead, kWrite, kForward, kProbe, kData, kAck };

  bool from_owner(const Transaction& x) const {
    return x.op != Op::write && x.state == State::dirty && rules_.coherence != Coherence::broadcast;
  }
  bool near(std::uint32_t a, std::uint32_t b) const {
    return rules_.bypass && graph_.endpoints[a].node == graph_.endpoints[b].node;
  }
  void send(std::uint32_t from, std::uint32_t to, Message message, std::uint32_t t, Time at, Time now);
  void respond(std::uint32_t from, Message message, std::uint32_t t, Time now);
  void look_up(std::uint32_t core, Message message, std::uint32_t t, Time at);
  void probe_all(std::uint32_t t, Time at);
  void count_pair(const Transaction& x);
  void invalidate_sharers(std::uint32_t t, Time now);
  void answer(std::uint32_t t, Time head, Time tail);

  const Graph& graph_;
  const NodeRules& rules_;
  Network& network_;
  MemoryControllers& memories_;
  Directory& directory_;
  Calendar& calendar_;
  std::optional<SingleWriterCheck> check_;
  Pool<Transaction> pool_;
  PairLines pairs_;
  std::uint64_t requested_ = 0, answered_ = 0;
};

}  // namespace mm::model

#pragma once
/// The network: packets cut through routers with virtual channels, credits and two-level arbitration.
///
/// A packet causes two events per hop: its head arrives (after the link and the router's pipeline), and its router
/// arbitrates. The rest is arithmetic on times known in advance: an output is busy until the tail has left; the space
/// that a packet frees in a buffer returns as a credit with a time stamp, which the upstream router evaluates when
/// needed. There is no event per flit, so the cost does not depend on the size of packets.
///
/// Arbitration, at most once per router and cycle: each local arbiter of an input nominates one packet, round robin
/// over virtual channels, for an output that is free and has space for it; the global arbiter of each output grants one
/// nominee, round robin over inputs; the others retry one cycle later. This imperfect matching is what limits real
/// routers under load.
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/network/calendar.hpp"
#include "model/network/graph.hpp"
#include "model/network/packets.hpp"
#include "model/network/routing.hpp"

namespace mm::model {

struct RouterRules {
  Channels channels;
  Time pipeline = 0;      ///< from the arrival of a head to its first arbitration
  Time cycle = 1000;      ///< between arbitrations
  Time allocation = 0;    ///< if exclusive: from the grant of a virtual channel to the first arbitration for the switch
  Time requeue = 0;       ///< if exclusive: from a packet's last flit to the next packet's request for a channel
  Time credit = 0;        ///< from the freeing of space to its use upstream
  int reads = 1;          ///< local arbiters per input
  int buffer_flits = 64;  ///< size of each virtual channel
  int flit_bytes = 8;
  bool exclusive = false;  ///< a packet owns its virtual channel until its tail has left: a FlitNetwork (flits.hpp)
  bool adaptive = true;    ///< false: dimension order (escape channels only)
};

RouterRules router_rules(const Graph& graph, const json& machine);

/// Kinds of events, in the upper four bits of Event::what. The network schedules the first three. The event loop calls
/// Network::arrive for kArrive and Network::arbitrate for kArbitrate; kDeliver is for the receiver of the packet, as in
/// Protocol::deliver.
enum : std::uint32_t { kArrive = 0, kArbitrate = 1, kDeliver = 2, kFirstOfOthers = 3 };
constexpr std::uint32_t event_of(std::uint32_t kind, std::uint32_t target) { return kind << 28 | target; }

class Network {
 public:
  Network(const Graph& graph, const Routing& routing, const RouterRules& rules, Calendar& calendar);

  std::uint32_t packet() { return pool_.take(); }
  Packet& at(std::uint32_t p) { return pool_[p]; }
  void release(std::uint32_t p) { pool_.release(p); }

  /// Sends a packet from an endpoint. It waits in an unlimited queue of its class until the router accepts it.
  void inject(std::uint32_t endpoint, std::uint32_t p, Time now);
  void arrive(std::uint32_t p, std::uint32_t input, Time now);
  void arbitrate(std::uint32_t router, Time now);
  /// Frees the space of a packet that an endpoint with a limited queue has consumed.
  void consumed(std::uint32_t endpoint, int klass, int flits, Time now);
  /// Packets of at most `flits` flits pass a bus without waiting: addresses have separate wires.
  void addresses(int flits) { address_flits_ = flits; }
  /// Limits how much of a class an endpoint accepts; default: unlimited.
  void bound(std::uint32_t endpoint, int klass, int flits);

  std::uint64_t inside() const { return inside_; }  ///< packets in flight
  std::uint64_t packet_hops() const { return hops_; }
  Time tail_of(std::uint32_t p, Time head) const;  ///< returns when the last flit arrives, at the last output's rate
  bool all_credits_back(Time now);
  std::string waits() const;  ///< returns which packets wait for what; for a run without progress
  std::size_t bytes() const;

  /// Returns the busy time of an output up to `now`, ps.
  Time busy(std::uint32_t output, Time now) const {
    const ServerState& s = servers_[graph_.outputs[output].server];
    const Time ahead = s.busy_until - now;
    const Time total = busy_[output];
    return ahead > 0 && s.user == output ? total - ahead : total;
  }
  std::uint64_t flits_through(std::uint32_t output) const { return flits_[output]; }
  const Graph& graph() const { return graph_; }
  const RouterRules& rules() const { return rules_; }

 private:
  struct Queue {  ///< state of one input and virtual channel
    std::uint32_t head = kNone, tail = kNone;
    Time retry = 0;                   ///< the earliest known time at which its head may be granted
    Time ready = 0;                   ///< when its head has passed the pipeline
    std::uint64_t minimal = 0;        ///< links on shortest paths; 0 if its target is at this router
    std::int16_t target_output = -1;  ///< the output to its target, if the target is at this router
    std::int16_t escape_output = -1, straight = -1;
    std::uint8_t escape = 0, klass = 0;
  };
  struct Space {  ///< room at the far end of one output and virtual channel
    std::int32_t flits = 0;
    std::uint16_t first = 0, count = 0;  ///< position and number of its dated credits
    bool starved = false, bounded = true;
  };
  struct ServerState {
    Time busy_until = -1000000000;  ///< long ago
    std::uint32_t user = kNone, sender = kNone;
  };
  struct Credit {
    Time at;
    std::int32_t flits;
  };
  struct Choice {
    std::uint16_t output;          ///< local number
    std::uint8_t channel, escape;  ///< escape class or kFresh
  };
  struct Nominee {
    std::uint32_t input, channel, arbiter, rank;
    Choice choice;
  };

  Time duration(std::uint32_t output, int flits) const {
    return (graph_.outputs[output].fs_per_flit * flits + 500) / 1000;
  }
  void lead(std::uint32_t input, std::uint32_t v, Time from);  ///< handles a packet that becomes the head of its queue
  bool choose(std::uint32_t base, Queue& queue, Time now, Choice& choice);
  bool has_space(std::uint32_t space, int flits, Time now, Time& when);
  Time earliest(std::uint32_t input, std::uint64_t channels) const;
  /// Calls `visit` with the local number of each input of a router at which a packet waits.
  template <class Visit>
  void for_each_waiting(std::uint32_t router, Visit visit) const {
    std::uint32_t local = 0;
    for (std::uint32_t w = first_word_[router]; w < first_word_[router + 1]; ++w, local += 64)
      for (std::uint64_t m = inputs_waiting_[w]; m; m &= m - 1)
        visit(local + static_cast<std::uint32_t>(std::countr_zero(m)));
  }
  std::uint64_t& word_of(std::uint32_t router, std::uint32_t input) {
    return inputs_waiting_[first_word_[router] + (input - graph_.first_input[router]) / 64];
  }
  std::uint64_t bit_of(std::uint32_t router, std::uint32_t input) const {
    return std::uint64_t{1} << (input - graph_.first_input[router]) % 64;
  }
  void grant(std::uint32_t router, const Nominee& nominee, Time now);
  void give_back(std::uint32_t output, std::uint32_t channel, Time at, int flits);
  void wake(std::uint32_t router, Time at);
  void schedule(std::uint32_t router, Time at) {
    if (at < next_[router]) {
      next_[router] = at;
      calendar_.push(at, event_of(kArbitrate, router), 0);
    }
  }
  void refill(std::uint32_t input, std::uint32_t v, Time now);

  const Graph& graph_;
  const Routing& routing_;
  const RouterRules rules_;
  Calendar& calendar_;
  const std::uint32_t v_;          ///< virtual channels per input
  const std::uint32_t per_class_;  ///< virtual channels per message class
  const std::uint32_t ring_;       ///< credits per space, a power of two
  const std::uint32_t reads_;      ///< local arbiters per input
  std::vector<Queue> queues_;      ///< input x channel
  std::vector<Space> spaces_;      ///< output x channel
  std::vector<Credit> credits_;    ///< space x ring
  std::vector<ServerState> servers_;
  std::vector<Time> busy_;  ///< by output, for all granted packets
  std::vector<std::uint64_t> flits_;
  std::vector<std::uint64_t> waiting_;         ///< by input: channels with a packet
  std::vector<std::uint32_t> first_word_;      ///< by router, in `inputs_waiting_`; routers + 1
  std::vector<std::uint64_t> inputs_waiting_;  ///< a bit for each input, a word for 64 inputs of a router
  std::vector<Time> reading_;                  ///< input x arbiter: time until which it is busy
  std::vector<std::uint8_t> turn_;             ///< by input: the channel with priority
  std::vector<std::uint16_t> favoured_;        ///< by output: the input with priority
  std::vector<Time> next_;                     ///< by router: time of the next arbitration
  std::vector<PoolQueue> sources_;             ///< endpoint x class
  std::vector<Time> injecting_;                ///< by endpoint: time until which it is busy
  PacketPool pool_;
  int address_flits_ = 0;
  std::uint64_t inside_ = 0, hops_ = 0;
};

}  // namespace mm::model

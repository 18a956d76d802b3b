#pragma once
/// The network of routers in which a virtual channel belongs to one packet at a time: flit by flit, on one clock.
///
/// A router has a first-in first-out buffer per input and virtual channel. The head of a packet is routed, competes for
/// a virtual channel of its output, and then each of its flits competes for the switch whenever the buffer at the far
/// end has room. Both allocators are separable and take one iteration: an output (or a virtual channel of it) picks one
/// of the inputs that request it, and an input accepts one of the outputs that picked it. Both choose round robin, and
/// a priority pointer advances only when the grant is accepted. When two outputs pick the same input, one of them stays
/// idle, which keeps real routers below the capacity of their links. Sources: Dally and Towles, "Principles and
/// Practices of Interconnection Networks" (2004), chapters 16, 18, 19; McKeown, "The iSLIP scheduling algorithm for
/// input-queued switches", IEEE/ACM ToN 7(2), 1999.
///
/// Packets may be longer than a buffer. Times are whole cycles; other times are rounded up.
#include <cstdint>
#include <string>
#include <vector>

#include "model/memory/random.hpp"
#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/network/packets.hpp"
#include "model/network/routing.hpp"

namespace mm::model {

constexpr std::uint32_t kMaxFlitPorts = 64;  ///< inputs or outputs of one of its routers: masks are one word

class FlitNetwork {
 public:
  /// Pre: routing in dimension order, no bus, at most `kMaxFlitPorts` ports at a router.
  FlitNetwork(const Graph& graph, const Routing& routing, const RouterRules& rules, std::uint64_t seed);

  std::uint32_t fresh() { return pool_.take(); }
  Packet& packet(std::uint32_t p) { return pool_[p]; }
  void release(std::uint32_t p) { pool_.release(p); }

  /// Sends a packet from an endpoint in the current cycle. It waits in an unlimited queue of its class.
  void inject(std::uint32_t endpoint, std::uint32_t p);
  /// Simulates the current cycle; returns the packets whose last flit arrives in it.
  const std::vector<std::uint32_t>& step();
  std::int64_t cycle() const { return cycle_; }
  /// Returns whether nothing happens until the next packet is sent, so that `jump` may skip cycles.
  bool quiet() const { return inside_ == 0 && cycle_ > last_change_ + static_cast<std::int64_t>(wheel_.size()); }
  void jump(std::int64_t cycle) { cycle_ = cycle; }

  std::uint64_t inside() const { return inside_; }       ///< packets in flight
  std::uint64_t packet_hops() const { return hops_; }    ///< routers passed by all packets
  std::int64_t last_move() const { return last_move_; }  ///< the last cycle in which a flit left a buffer
  bool all_credits_back() const;                         ///< returns whether every buffer is known to be empty
  std::string waits() const;  ///< returns which packets wait for what; for a run without progress

 private:
  enum class State : std::uint8_t { idle, routing, allocated, active };
  struct Channel {                ///< virtual channel of an input; small, since all of them are touched all the time
    std::uint32_t space = kNone;  ///< the virtual channel that it owns at an output
    /// Flits in its buffer. It is not beside `left`, because the compiler would load both as one word: a load that
    /// follows a store to only one of them has to wait until the store completes.
    std::uint16_t count = 0;
    std::uint16_t first = 0;  ///< position of the first of its packets
    std::uint16_t left = 0;   ///< flits of its packet that it has not forwarded
    std::uint16_t turn = 0;   ///< the virtual channel of an output that it accepts first
    State state = State::idle;
    std::uint8_t output = 0;         ///< local number
    std::uint8_t low = 0, high = 0;  ///< virtual channels that its packet may use there
  };
  static_assert(sizeof(Channel) == 16);
  struct Slot {  ///< events of one cycle: channels whose head is routed, channels that may use the switch, packets that
                 ///< end
    std::vector<std::uint32_t> heads, ready, delivered;
  };
  /// Values by the cycle in which they take effect, at most `width` per cycle.
  struct Wheel {
    std::vector<std::uint32_t> values, counts;
    std::uint32_t width = 0;
    void push(std::size_t at, std::uint32_t value) { values[at * width + counts[at]++] = value; }
  };
  struct Port {                           ///< output
    std::uint64_t requesting_inputs = 0;  ///< inputs with channels that may use the switch to this output
    std::uint64_t free = 0;               ///< virtual channels without owner
    std::int64_t free_from = 0;           ///< cycle from which it is free, if a flit takes more than a cycle
    std::int32_t delay = 1, takes = 1;
    std::uint32_t to = kNone;  ///< first channel at the far end; kNone: an endpoint
    std::uint8_t turn = 0;     ///< the input that it picks first
  };
  struct Entry {                 ///< input
    std::uint64_t wanting = 0;   ///< channels whose packets need a virtual channel of an output
    std::uint32_t upstream = 0;  ///< its first entry of credits_
    std::uint8_t turn = 0;       ///< the output that it accepts first
    std::uint8_t round = 0;      ///< the channel that goes first
  };
  struct Router {
    std::uint64_t requested_outputs = 0;  ///< outputs that inputs request
    std::uint64_t wanting = 0;            ///< inputs with channels that need a virtual channel of an output
    std::uint32_t in = 0, out = 0;
  };
  struct Source {  ///< state of an endpoint that sends
    std::uint32_t sending = kNone, left = 0, channel = 0;
    std::int64_t free_from = 0;
    std::uint8_t klass = 0;
  };
  struct Request {
    std::uint32_t channel, rank, output;
    std::uint64_t free;
  };

  static constexpr std::int32_t kUnbounded = 1 << 30;

  std::size_t at(std::int64_t cycle) const { return static_cast<std::size_t>(cycle) & wheel_mask_; }
  Slot& slot(std::int64_t cycle) { return wheel_[at(cycle)]; }
  std::int64_t cycles(Time t) const { return (t + rules_.cycle - 1) / rules_.cycle; }
  void arrive(std::uint32_t channel);
  void credit(std::uint32_t space);
  void route(std::uint32_t channel);
  void activate(std::uint32_t channel);
  void make_eligible(std::uint32_t channel);
  void make_ineligible(Router& router, std::uint32_t input, std::uint32_t k, std::uint32_t o);
  void send(std::uint32_t endpoint);
  void allocate_channels(Router& router);
  void own(Router& router, const Request& request, std::uint64_t choices);
  void allocate_switch(Router& router);
  void forward(Router& router, std::uint32_t input, std::uint32_t k, std::uint32_t o);
  std::uint32_t head_of(std::uint32_t channel) const { return packets_[channel * ring_ + channels_[channel].first]; }
  void follow(std::uint32_t channel, std::uint32_t p) {  ///< records that the flits of a packet will reach a channel
    packets_[channel * ring_ + last_[channel]] = p;
    last_[channel] = static_cast<std::uint16_t>((last_[channel] + 1U) & (ring_ - 1));
  }
  std::uint64_t& eligible(std::uint32_t input, std::uint32_t output) { return eligible_[input * ports_ + output]; }

  const Graph& graph_;
  const Routing& routing_;
  const RouterRules rules_;
  // Arrays by virtual channel have 2^shift_ entries for each input, output or endpoint.
  const std::uint32_t v_, per_class_, shift_, mask_, ring_, ports_;
  const std::int64_t pipeline_, allocation_, requeue_, credit_delay_;
  PacketPool pool_;
  Draws draws_;
  std::vector<Slot> wheel_;
  std::size_t wheel_mask_ = 0;
  Wheel arrivals_, credits_due_;  ///< channels that a flit reaches, entries of credits_
  std::vector<std::uint32_t> delivered_;
  std::vector<Channel> channels_;       ///< input x virtual channel
  std::vector<std::uint32_t> packets_;  ///< channel x ring: packets whose flits are in its buffer or on their way
  std::vector<std::uint16_t> last_;     ///< by channel: position for its next packet
  std::vector<std::int32_t>
      credits_;  ///< output x virtual channel, then endpoint x virtual channel: room at the far end
  std::vector<std::uint32_t> owner_;  ///< likewise: the channel that owns it, or kNone
  std::vector<Port> outputs_;
  std::vector<Entry> inputs_;
  std::vector<Router> routers_;
  bool slow_links_ = false;
  std::vector<std::uint64_t> eligible_;      ///< input x output of its router: channels that may use the switch
  std::vector<std::uint64_t> active_;        ///< routers with channels that need an output or the switch, as bits
  std::vector<std::uint64_t> sending_;       ///< endpoints with packets to send, as bits
  std::vector<std::uint16_t> channel_turn_;  ///< output x virtual channel: which input channel is next
  std::vector<Request> requests_;
  std::vector<std::uint32_t> winner_, winner_rank_;  ///< output x virtual channel
  std::vector<std::uint64_t> stamp_;
  std::uint64_t serial_ = 0;
  std::vector<Source> sources_;
  std::vector<PoolQueue> queues_;  ///< endpoint x class
  std::int64_t cycle_ = 0, last_change_ = 0, last_move_ = 0;
  std::uint64_t inside_ = 0, hops_ = 0;
};

}  // namespace mm::model

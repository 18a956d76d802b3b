#include "model/memory/coherence.hpp"

#include <algorithm>

namespace mm::model {
namespace {

// Message classes of the network: a later class never waits for an earlier one.
constexpr std::uint8_t kRequestClass = 0, kForwardClass = 1, kResponseClass = 2;

}  // namespace

Protocol::Protocol(const Graph& graph, const NodeRules& rules, const Trial& trial, Network& network,
                   MemoryControllers& memories, Directory& directory, Calendar& calendar)
    : graph_(graph), rules_(rules), network_(network), memories_(memories), directory_(directory), calendar_(calendar) {
  if (trial.check) check_.emplace();
  const std::size_t pairs = trial.traffic ? std::size_t{graph.nodes()} * graph.nodes() : 0;
  pairs_.reads.resize(pairs);
  pairs_.writes.resize(pairs);
  const PacketRules& p = rules.packets;
  network.addresses(std::max(p.request_flits, p.ack_flits));
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == EndpointKind::memory)
      network.bound(e, kRequestClass, rules.memory.queue * p.request_flits + p.data_flits);
}

void Protocol::start(const Access& access, Time now) {
  const std::uint32_t t = pool_.take();
  Transaction& x = pool_[t];
  x.issued = now;
  x.actor = access.actor;
  x.requester = access.requester;
  x.home = graph_.memories_of[access.home][access.controller];
  x.line = access.line;
  x.stripe = access.stripe;
  x.pending = 1;
  x.op = access.op;
  x.state = access.state;
  x.sharers = access.sharers;
  x.traced = access.traced;
  if (access.state == State::dirty) {
    const auto& cpus = graph_.cpus_of[access.owner < 0 ? access.home : static_cast<std::uint32_t>(access.owner)];
    x.owner = cpus.back() == x.requester ? cpus.front() : cpus.back();
  }
  ++requested_;
  const Time leaves = now + rules_.core.request;
  if (rules_.bypass && access.home == access.node)
    calendar_.push(leaves, event_of(kLocal, 0), t);
  else
    send(x.requester, x.home, x.op == Op::write ? kWrite : kRead, t, leaves, now);
}

/// Sends a message at time `at`, which includes the sender's delay.
void Protocol::send(std::uint32_t from, std::uint32_t to, Message message, std::uint32_t t, Time at, Time now) {
  const std::uint32_t p = network_.packet();
  Packet& packet = network_.at(p);
  packet.target = to;
  packet.about = t;
  packet.what = message;
  packet.born = at;
  const bool data = message == kWrite || message == kData;
  packet.flits = static_cast<std::uint16_t>(data              ? rules_.packets.data_flits
                                            : message == kAck ? rules_.packets.ack_flits
                                                              : rules_.packets.request_flits);
  packet.klass = message == kRead || message == kWrite      ? kRequestClass
                 : message == kForward || message == kProbe ? kForwardClass
                                                            : kResponseClass;
  if (at > now)
    calendar_.push(at, event_of(kSend, from), p);
  else
    network_.inject(from, p, now);
}

/// Handles an answer that a transaction waits for: usable at `head`, complete at `tail`.
inline void Protocol::answer(std::uint32_t t, Time head, Time tail) {
  Transaction& x = pool_[t];
  x.due = std::max(x.due, head);
  if (--x.pending > 0) return;
  const Time completion = x.op == Op::write ? tail : std::max(x.due + rules_.core.fill, tail);
  calendar_.push(completion, event_of(kDone, 0), t);
}

inline void Protocol::respond(std::uint32_t from, Message message, std::uint32_t t, Time now) {
  const std::uint32_t requester = pool_[t].requester;
  if (near(from, requester))
    answer(t, now, now);
  else
    send(from, requester, message, t, now, now);
}

void Protocol::deliver(std::uint32_t endpoint, std::uint32_t p, Time now) {
  const Packet packet = network_.at(p);
  const Time tail = network_.tail_of(p, now);
  network_.release(p);
  const std::uint32_t t = packet.about;
  switch (packet.what) {
    case kRead:
    case kWrite:
      request_at_home(t, packet.flits, packet.what == kWrite ? tail : now);
      break;
    case kForward:
    case kProbe:
      calendar_.push(now + rules_.core.probe, event_of(kProbed, endpoint), t);
      break;
    default:
      answer(t, rules_.core.critical_word ? now : tail, tail);
      break;
  }
}

void Protocol::request_at_home(std::uint32_t t, std::uint32_t flits, Time at) {
  Transaction& x = pool_[t];
  x.held = flits;
  if (x.traced && !directory_.occupy(t, x)) return;
  if (from_owner(x)) {
    calendar_.push(at + rules_.directory, event_of(kMemory, flits), t);
    return;
  }
  if (x.op != Op::write && rules_.coherence == Coherence::broadcast && graph_.nodes() > 1) probe_all(t, at);
  calendar_.push(memories_.serve(graph_.endpoints[x.home].index, x.stripe, x.op, at), event_of(kMemory, flits), t);
}

/// Probes a core on behalf of the home: by a message, or directly on the home's own node.
void Protocol::look_up(std::uint32_t core, Message message, std::uint32_t t, Time at) {
  const std::uint32_t home = pool_[t].home;
  if (near(core, home))
    calendar_.push(at + rules_.core.probe, event_of(kProbed, core), t);
  else
    send(home, core, message, t, at, at);
}

void Protocol::probe_all(std::uint32_t t, Time at) {
  Transaction& x = pool_[t];
  for (std::uint32_t n = 0; n < graph_.nodes(); ++n) {
    if (n == graph_.endpoints[x.requester].node || graph_.cpus_of[n].empty()) continue;
    ++x.pending;
    look_up(graph_.cpus_of[n].front(), kProbe, t, at);
  }
}

void Protocol::count_pair(const Transaction& x) {
  const std::size_t pair =
      std::size_t{graph_.endpoints[x.requester].node} * graph_.nodes() + graph_.endpoints[x.home].node;
  ++(x.op == Op::write ? pairs_.writes : pairs_.reads)[pair];
}

void Protocol::forget_pairs() {
  std::fill(pairs_.reads.begin(), pairs_.reads.end(), 0);
  std::fill(pairs_.writes.begin(), pairs_.writes.end(), 0);
}

void Protocol::served(std::uint32_t t, std::uint32_t flits, Time now) {
  const Transaction& x = pool_[t];
  if (flits > 0) network_.consumed(x.home, kRequestClass, static_cast<int>(flits), now);
  if (from_owner(x)) {
    look_up(x.owner, kForward, t, now);
    return;
  }
  if (!pairs_.reads.empty()) count_pair(x);
  if (x.op == Op::own && x.state == State::shared) invalidate_sharers(t, now);
  respond(x.home, x.op == Op::write ? kAck : kData, t, now);
}

/// Sharers of a traced line come from the directory; for other lines they are the nodes that follow the home.
void Protocol::invalidate_sharers(std::uint32_t t, Time now) {
  Transaction& x = pool_[t];
  if (x.traced) {
    for (const std::uint32_t sharer : directory_.sharers(x.line)) {
      if (sharer == x.requester) continue;
      ++x.pending;
      look_up(sharer, kForward, t, now);
    }
    return;
  }
  const std::uint32_t home = graph_.endpoints[x.home].node, requester_node = graph_.endpoints[x.requester].node;
  for (std::uint32_t i = 1; i <= x.sharers; ++i) {
    const std::uint32_t n = (home + i) % graph_.nodes();
    if (graph_.cpus_of[n].empty() || n == requester_node) continue;
    ++x.pending;
    look_up(graph_.cpus_of[n].front(), kForward, t, now);
  }
}

void Protocol::probed(std::uint32_t t, std::uint32_t endpoint, Time now) {
  const Transaction& x = pool_[t];
  if (x.traced && check_) check_->probed(x.line, endpoint, x.op);
  const bool data = x.state == State::dirty && x.owner == endpoint && x.op != Op::write;
  respond(endpoint, data ? kData : kAck, t, now);
}

const Transaction& Protocol::finish(std::uint32_t t, Time now) {
  const Transaction& x = pool_[t];
  pool_.release(t);
  ++answered_;
  if (!x.traced) return x;
  const std::uint32_t next = directory_.release(x);
  if (check_) check_->completed(x);
  if (next != kNone) request_at_home(next, pool_[next].held, now);
  return x;
}

}  // namespace mm::model

#include "model/memory/core.hpp"

#include <algorithm>
#include <cmath>

namespace mm::model {
namespace {

const AccessStream kTraced{};  ///< for actors with a trace, which have no streams

/// Returns a constant time, or an exponentially distributed one with this mean.
Time drawn(Time mean, bool random, Draws& draws) {
  return random ? static_cast<Time>(-std::log(draws.unit()) * static_cast<double>(mean)) : mean;
}

/// Returns the home node of a line that `node` accesses, before striping.
std::uint32_t home_of(const AccessStream& stream, std::uint32_t node, std::uint32_t nodes, Draws& draws) {
  switch (stream.homes) {
    case Homes::fixed:
      return stream.nodes.front();
    case Homes::uniform:
      return static_cast<std::uint32_t>(draws.below(nodes));
    case Homes::others: {
      const auto other = static_cast<std::uint32_t>(draws.below(std::max(1U, nodes - 1)));
      return other >= node && nodes > 1 ? other + 1 : other;
    }
    case Homes::list:
      return stream.nodes[draws.below(stream.nodes.size())];
    default:
      return node;
  }
}

}  // namespace

void Buffers::wait(std::uint32_t endpoint, std::uint32_t actor) {
  auto& list = waiting_[endpoint];
  if (std::find(list.begin(), list.end(), actor) == list.end()) list.push_back(actor);
}

Cores::Cores(const Graph& graph, const NodeRules& rules, const Trial& trial, const Directory& directory,
             Protocol& protocol, Calendar& calendar, Results& results)
    : graph_(graph),
      rules_(rules),
      trial_(trial),
      directory_(directory),
      protocol_(protocol),
      calendar_(calendar),
      results_(results),
      buffers_(graph, rules),
      states_(trial.actors.size()) {}

void Cores::start() {
  for (std::uint32_t a = 0; a < states_.size(); ++a) {
    const Actor& actor = trial_.actors[a];
    states_[a].draws = Draws(trial_.seed, a);
    states_[a].at.assign(actor.streams.size(), 0);
    states_[a].next_issue = actor.start;
    if (actor.burst > 0) states_[a].phase_end = actor.burst;
    plan(a, actor.start);
    unfinished_ += actor.accesses > 0;
  }
}

inline void Cores::trace_access(const Traced& traced, Access& access) const {
  const auto controllers = static_cast<std::uint64_t>(rules_.memory.controllers);
  access.op = traced.op;
  access.home = traced.home;
  access.line = traced.line;
  access.controller = static_cast<std::uint32_t>(traced.line % controllers);
  access.stripe = traced.line / controllers;
}

/// Sets `access` to the access number `count` of a stream.
inline void Cores::stream_access(const AccessStream& stream, std::uint64_t count, Draws& draws, Access& access) const {
  const std::uint64_t step = stream.random ? draws.below(stream.span_lines) : count % stream.span_lines;
  const auto line_bytes = static_cast<std::uint64_t>(rules_.memory.line_bytes);
  const auto controllers = static_cast<std::uint64_t>(rules_.memory.controllers);
  access.op = stream.op;
  access.state = stream.state;
  access.owner = stream.owner;
  access.sharers = static_cast<std::uint8_t>(stream.sharers);
  access.line = stream.base + (stream.stride_bytes == 0 ? step : step * stream.stride_bytes / line_bytes);
  access.controller = static_cast<std::uint32_t>(access.line % controllers);
  access.stripe = access.line / controllers;
  std::uint32_t home = home_of(stream, access.node, graph_.nodes(), draws);
  if (rules_.striping == Striping::pair && access.stripe % 2 == 1) home = partner(graph_, rules_, home);
  if (rules_.striping == Striping::all) home = static_cast<std::uint32_t>((home + access.stripe) % graph_.nodes());
  access.home = home;
}

/// Returns whether buffers and pace permit an access now; otherwise the actor is woken or scheduled when they do.
inline bool Cores::may_issue(std::uint32_t number, std::uint32_t node, bool posted, Time now) {
  const ActorState& s = states_[number];
  const Actor& actor = trial_.actors[number];
  if (!buffers_.free(actor.endpoint, posted)) {
    buffers_.wait(actor.endpoint, number);
    return false;
  }
  if (!posted && s.reads_open >= actor.chains) return false;
  if (!posted && !buffers_.node_free(node)) {
    buffers_.wait_for_node(number);
    return false;
  }
  if (s.next_issue > now) {
    plan(number, s.next_issue);
    return false;
  }
  return true;
}

void Cores::issue(std::uint32_t number, Time now) {
  ActorState& s = states_[number];
  if (s.scheduled != now) return;
  s.scheduled = kNever;
  const Actor& actor = trial_.actors[number];
  const bool traced = !actor.trace.empty();
  Access access;
  access.actor = number;
  access.requester = actor.endpoint;
  access.node = graph_.endpoints[actor.endpoint].node;
  access.traced = traced;
  while (!s.finished && (actor.accesses == 0 || s.issued < actor.accesses)) {
    if (s.issued == s.phase_end && !rests(number, now)) return;
    if (traced && hit(number, now)) continue;
    const AccessStream& stream = traced ? kTraced : actor.streams[s.stream];
    const bool posted = buffers_.posted(stream.op);
    if (!may_issue(number, access.node, posted, now)) return;
    if (s.issued + actor.burst == s.phase_end) s.phase_from = now;
    s.next_issue = now + std::max({actor.pace, stream.work, rules_.core.issue});
    if (traced) {
      trace_access(actor.trace[s.issued], access);
    } else {
      stream_access(stream, s.at[s.stream]++, s.draws, access);
      if (++s.stream == actor.streams.size()) s.stream = 0;
    }
    ++s.issued;
    buffers_.occupy(actor.endpoint, access.node, posted);
    if (!posted) ++s.reads_open;
    protocol_.start(access, now);
  }
}

/// Ends a memory phase and starts the rest; returns false if a read of the phase is outstanding.
bool Cores::rests(std::uint32_t number, Time now) {
  ActorState& s = states_[number];
  const Actor& actor = trial_.actors[number];
  if (s.reads_open > 0) return false;
  results_.phase_ended(actor, s.ended, s.phase_from, now);
  s.phase_end += actor.burst;
  s.next_issue = std::max(s.next_issue, now + drawn(actor.rest, actor.random_rest, s.draws));
  return true;
}

/// Completes a traced access that hits a line held by the core; returns whether it did.
bool Cores::hit(std::uint32_t number, Time now) {
  ActorState& s = states_[number];
  const Actor& actor = trial_.actors[number];
  const Traced& access = actor.trace[s.issued];
  if (!directory_.hits(access.line, actor.endpoint, access.op)) return false;
  ++s.issued;
  ++s.ended;
  ++hits_;
  if (s.ended == actor.accesses) finish(number, now);
  return true;
}

void Cores::finish(std::uint32_t number, Time now) {
  states_[number].finished = true;
  results_.actor_ended(trial_.actors[number], now);
  --unfinished_;
}

void Cores::retire(const Transaction& x, Time now) {
  const Actor& actor = trial_.actors[x.actor];
  ActorState& s = states_[x.actor];
  const bool posted = buffers_.posted(x.op);
  ++s.ended;
  if (x.op == Op::write)
    results_.write_ended(actor, s.ended, now);
  else
    results_.read_ended(actor, s.ended, x.due + rules_.core.fill - x.issued, now);
  buffers_.release(actor.endpoint, graph_.endpoints[actor.endpoint].node, posted);
  if (!posted) --s.reads_open;
  if (actor.accesses > 0 && s.ended == actor.accesses) {
    finish(x.actor, now);
  } else if (!posted) {
    if (actor.chains == 1) s.next_issue = std::max(s.next_issue, now + drawn(actor.think, actor.random_think, s.draws));
    plan(x.actor, std::max(now, s.next_issue));
  }
  buffers_.wake(actor.endpoint, [&](std::uint32_t a) { plan(a, std::max(now, states_[a].next_issue)); });
}

}  // namespace mm::model

#include "model/network/network.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "model/network/table.hpp"

namespace mm::model {

namespace {

constexpr std::int32_t kUnbounded = 1 << 30;

std::uint32_t ring_size(const RouterRules& rules) {
  return std::bit_ceil(static_cast<std::uint32_t>(rules.buffer_flits + 1));
}

/// Returns the first word of each router in masks of inputs, and the number of words.
std::vector<std::uint32_t> first_words(const Graph& graph) {
  std::vector<std::uint32_t> first = {0};
  for (std::uint32_t r = 0; r < graph.routers(); ++r)
    first.push_back(first.back() + (graph.first_input[r + 1] - graph.first_input[r] + 63) / 64);
  return first;
}

}  // namespace

RouterRules router_rules(const Graph& graph, const json& machine) {
  const Table all(machine, "");
  const Table t = all.table("router");
  RouterRules r;
  r.adaptive = t.choice("routing", {"adaptive", "dimension_order"}) == 0;
  const bool tree = graph.rule == EscapeRule::up_down;
  if (tree && !r.adaptive) t.refuse("routing", "dimension_order", "adaptive: the topology has no dimensions");
  r.channels.adaptive = t.integer("adaptive_channels", 0, 8, r.adaptive ? 1 : 0);
  r.channels.escape = t.integer("escape_channels", 0, 2, 2);
  r.channels.width = t.integer("channels_per_escape", 1, 8, 1);
  r.channels.classes = t.integer("message_classes", 1, 4, 3);
  if (r.adaptive && r.channels.adaptive < 1) t.refuse("adaptive_channels", "0", "at least 1 for adaptive routing");
  if (!r.adaptive && r.channels.adaptive > 0)
    t.refuse("adaptive_channels", std::to_string(r.channels.adaptive), "0 for routing = \"dimension_order\"");
  if (!r.adaptive && r.channels.escape < 1)
    t.refuse("escape_channels", "0", "1 or 2 for routing = \"dimension_order\"");
  if (tree && r.channels.escape == 1)
    t.refuse("escape_channels", "1", "0 or 2: the up and the down phase need one each");
  if (r.channels.all() > 64)
    t.refuse("adaptive_channels", std::to_string(r.channels.all()) + " virtual channels in total", "at most 64");
  r.pipeline = ps(t.number("pipeline_ns", 0, 1e6, 0));
  r.cycle = std::max<Time>(1, ps(t.number("cycle_ns", 0.001, 1e6, 1)));
  r.allocation = ps(t.number("allocation_ns", 0, 1e6, 0));
  r.requeue = ps(t.number("requeue_ns", 0, 1e6, 0));
  r.credit = ps(t.number("credit_ns", 0, 1e6, 0));
  r.reads = t.integer("local_arbiters", 1, 4, 1);
  r.buffer_flits = t.integer("buffer_flits", 1, 8192, 64);
  r.flit_bytes = t.integer("flit_bytes", 1, 1024, 8);
  r.exclusive = t.choice("channel_sharing", {"packets", "exclusive"}) == 1;
  if (r.exclusive && r.adaptive)
    t.refuse("channel_sharing", "exclusive", "packets; exclusive only with routing = \"dimension_order\"");
  return r;
}

Network::Network(const Graph& graph, const Routing& routing, const RouterRules& rules, Calendar& calendar)
    : graph_(graph),
      routing_(routing),
      rules_(rules),
      calendar_(calendar),
      v_(static_cast<std::uint32_t>(rules.channels.all())),
      per_class_(static_cast<std::uint32_t>(rules.channels.per_class())),
      ring_(ring_size(rules)),
      reads_(static_cast<std::uint32_t>(rules.reads)),
      queues_(graph.inputs.size() * v_),
      spaces_(graph.outputs.size() * v_),
      credits_(spaces_.size() * ring_),
      servers_(graph.servers.size()),
      busy_(graph.outputs.size(), 0),
      flits_(graph.outputs.size(), 0),
      waiting_(graph.inputs.size(), 0),
      first_word_(first_words(graph)),
      inputs_waiting_(first_word_.back(), 0),
      reading_(graph.inputs.size() * static_cast<std::size_t>(rules.reads), 0),
      turn_(graph.inputs.size(), 0),
      favoured_(graph.outputs.size(), 0),
      next_(graph.routers(), kNever),
      sources_(graph.endpoints.size() * static_cast<std::size_t>(rules.channels.classes)),
      injecting_(graph.endpoints.size(), 0) {
  for (std::size_t q = 0; q < queues_.size(); ++q) queues_[q].klass = static_cast<std::uint8_t>(q % v_ / per_class_);
  for (std::size_t o = 0; o < graph.outputs.size(); ++o)
    for (std::uint32_t v = 0; v < v_; ++v) {
      Space& s = spaces_[o * v_ + v];
      s.bounded = graph.outputs[o].to_endpoint == kNone;
      s.flits = s.bounded ? rules.buffer_flits : kUnbounded;
    }
}

void Network::bound(std::uint32_t endpoint, int klass, int flits) {
  // An endpoint has one queue per class, represented by the first channel of the class.
  const std::uint32_t first = graph_.endpoints[endpoint].output * v_ + static_cast<std::uint32_t>(klass) * per_class_;
  spaces_[first].bounded = true;
  spaces_[first].flits = flits;
}

void Network::inject(std::uint32_t endpoint, std::uint32_t p, Time now) {
  const Endpoint& e = graph_.endpoints[endpoint];
  Packet& packet = pool_[p];
  ++inside_;
  packet.next = kNone;
  packet.escape_class = kFresh;
  packet.hops = 0;
  const std::uint32_t first = packet.klass * per_class_;
  for (std::uint32_t v = first; v < first + per_class_; ++v)
    if (Queue& queue = queues_[e.input * v_ + v]; queue.head == kNone) {
      queue.head = queue.tail = p;
      refill(e.input, v, now);
      return;
    }
  sources_[endpoint * static_cast<std::size_t>(rules_.channels.classes) + packet.klass].push(pool_, p);
}

/// Accounts for the injection port and the pipeline, both from the packet's arrival at the head of the injection queue,
/// not from the previous packet's departure: the pipeline accepts the next packet while the previous one is inside.
void Network::refill(std::uint32_t input, std::uint32_t v, Time now) {
  const Queue& queue = queues_[input * v_ + v];
  const std::uint32_t endpoint = graph_.inputs[input].from_endpoint;
  const Endpoint& e = graph_.endpoints[endpoint];
  const Packet& packet = pool_[queue.head];
  const Time start = std::max(packet.born, injecting_[endpoint]);
  injecting_[endpoint] = start + (e.fs_per_flit * packet.flits + 500) / 1000;
  const Time pipeline = graph_.is_bus(e.router) ? 0 : rules_.pipeline;
  lead(input, v, std::max(now, start + e.delay + pipeline));
}

void Network::arrive(std::uint32_t p, std::uint32_t input, Time now) {
  Packet& packet = pool_[p];
  Queue& queue = queues_[input * v_ + packet.channel];
  packet.next = kNone;
  if (queue.head == kNone) {
    queue.head = queue.tail = p;
    lead(input, packet.channel, now);
  } else {
    pool_[queue.tail].next = p;
    queue.tail = p;
  }
}

void Network::lead(std::uint32_t input, std::uint32_t v, Time from) {
  Queue& queue = queues_[input * v_ + v];
  const Packet& packet = pool_[queue.head];
  const std::uint32_t router = graph_.inputs[input].router;
  const Endpoint& target = graph_.endpoints[packet.target];
  queue.retry = queue.ready = from;
  queue.straight = -1;
  if (target.router == router) {
    queue.minimal = 0;
    queue.target_output = static_cast<std::int16_t>(target.output - graph_.first_output[router]);
    queue.escape_output = -1;
  } else {
    queue.target_output = -1;
    queue.minimal = rules_.channels.adaptive > 0 ? routing_.minimal(router, target.router) : 0;
    if (rules_.channels.escape > 0) {
      const Hop fresh = routing_.escape(router, target.router, kFresh);
      queue.escape_output = fresh.output;
      queue.escape = fresh.escape;
      const std::uint32_t from_output = graph_.inputs[input].from_output;
      if (from_output != kNone) {
        const Output& in = graph_.outputs[from_output];
        const Output& out = graph_.outputs[graph_.first_output[router] + fresh.output];
        if (packet.escape_class != kFresh && routing_.keeps_class(graph_, in, out)) {
          const Hop straight_hop = routing_.escape(router, target.router, packet.escape_class);
          queue.escape_output = straight_hop.output;
          queue.escape = straight_hop.escape;
        }
        if (in.dimension >= 0)
          for (std::uint64_t m = queue.minimal; m; m &= m - 1) {
            const int o = std::countr_zero(m);
            const Output& candidate = graph_.outputs[graph_.first_output[router] + static_cast<std::uint32_t>(o)];
            if (candidate.dimension == in.dimension && candidate.direction == in.direction)
              queue.straight = static_cast<std::int16_t>(o);
          }
      }
    }
  }
  waiting_[input] |= std::uint64_t{1} << v;
  word_of(router, input) |= bit_of(router, input);
  if (queue.retry < kNever) schedule(router, queue.retry);
}

/// Returns whether a space can accept a packet now; otherwise lowers `when` to the earliest known time of a retry.
bool Network::has_space(std::uint32_t space, int flits, Time now, Time& when) {
  Space& s = spaces_[space];
  if (!s.bounded) return true;
  while (s.count > 0) {
    const Credit& c = credits_[space * ring_ + s.first];
    if (c.at > now) break;
    s.flits += c.flits;
    s.first = static_cast<std::uint16_t>((s.first + 1U) & (ring_ - 1));
    --s.count;
  }
  if (s.flits >= flits) return true;
  if (s.count > 0)
    when = std::min(when, credits_[space * ring_ + s.first].at);
  else
    s.starved = true;
  return false;
}

bool Network::choose(std::uint32_t base, Queue& queue, Time now, Choice& choice) {
  const int flits = pool_[queue.head].flits;
  const std::uint32_t first = queue.klass * per_class_, adaptive = static_cast<std::uint32_t>(rules_.channels.adaptive),
                      width = static_cast<std::uint32_t>(rules_.channels.width);
  Time when = kNever;
  const auto server_free = [&](std::uint32_t output) {
    if (flits <= address_flits_ && graph_.is_bus(graph_.outputs[output].router)) return true;
    const Time busy_until = servers_[graph_.outputs[output].server].busy_until;
    if (busy_until > now) when = std::min(when, busy_until);
    return busy_until <= now;
  };

  const bool leaves = queue.escape_output < 0 && adaptive == 0;
  bool has_room = false;  // on any adaptive channel, even if its server is busy
  bool has_choice = false;
  std::int32_t best = -1;
  const auto consider = [&](std::uint32_t local) {
    const std::uint32_t o = base + local;
    std::uint32_t channel = kNone;
    std::int32_t best_space = -1;
    const std::uint32_t last = first + (leaves || graph_.outputs[o].to_endpoint != kNone ? 1 : adaptive);
    for (std::uint32_t c = first; c < last; ++c)
      if (has_space(o * v_ + c, flits, now, when) && spaces_[o * v_ + c].flits > best_space) {
        best_space = spaces_[o * v_ + c].flits;
        channel = c;
      }
    if (channel == kNone) return;
    has_room = true;
    if (!server_free(o)) return;
    if (static_cast<int>(local) == queue.straight) best_space = kUnbounded;  // prefer to continue straight
    if (best_space <= best) return;
    best = best_space;
    has_choice = true;
    choice = {static_cast<std::uint16_t>(local), static_cast<std::uint8_t>(channel), kFresh};
  };
  if (queue.target_output >= 0) consider(static_cast<std::uint32_t>(queue.target_output));
  for (std::uint64_t m = queue.minimal; m; m &= m - 1) consider(static_cast<std::uint32_t>(std::countr_zero(m)));
  if (has_choice) return true;
  if (!has_room && queue.escape_output >= 0) {
    const std::uint32_t o = base + static_cast<std::uint32_t>(queue.escape_output);
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(rules_.channels.escape); ++k) {
      if (queue.escape != kEither && queue.escape != k) continue;
      for (std::uint32_t c = first + adaptive + k * width; c < first + adaptive + (k + 1) * width; ++c) {
        if (!has_space(o * v_ + c, flits, now, when)) continue;
        if (!server_free(o)) {
          queue.retry = when;
          return false;
        }
        choice = {static_cast<std::uint16_t>(queue.escape_output), static_cast<std::uint8_t>(c),
                  static_cast<std::uint8_t>(k)};
        return true;
      }
    }
  }
  queue.retry = when;
  return false;
}

void Network::give_back(std::uint32_t output, std::uint32_t channel, Time at, int flits) {
  const std::uint32_t space = output * v_ + channel;
  Space& s = spaces_[space];
  credits_[space * ring_ + ((s.first + s.count) & (ring_ - 1))] = {at, flits};
  ++s.count;
  if (s.starved) {
    s.starved = false;
    wake(graph_.outputs[output].router, at);
  }
}

void Network::wake(std::uint32_t router, Time at) {
  const std::uint32_t base = graph_.first_input[router];
  for_each_waiting(router, [&](std::uint32_t local) {
    const std::uint32_t input = base + local;
    for (std::uint64_t w = waiting_[input]; w; w &= w - 1) {
      Queue& queue = queues_[input * v_ + static_cast<std::uint32_t>(std::countr_zero(w))];
      queue.retry = std::min(queue.retry, std::max(at, queue.ready));
    }
  });
  schedule(router, at);
}

void Network::consumed(std::uint32_t endpoint, int klass, int flits, Time now) {
  const std::uint32_t space = graph_.endpoints[endpoint].output * v_ + static_cast<std::uint32_t>(klass) * per_class_;
  Space& s = spaces_[space];
  if (!s.bounded) return;
  s.flits += flits;
  if (s.starved) {
    s.starved = false;
    wake(graph_.endpoints[endpoint].router, now);
  }
}

/// Returns the earliest known time at which one of an input's channels may be granted.
Time Network::earliest(std::uint32_t input, std::uint64_t channels) const {
  Time at = kNever;
  for (; channels; channels &= channels - 1)
    at = std::min(at, queues_[input * v_ + static_cast<std::uint32_t>(std::countr_zero(channels))].retry);
  return at;
}

void Network::arbitrate(std::uint32_t router, Time now) {
  if (next_[router] != now) return;  // an earlier arbitration has replaced this one
  next_[router] = kNever;
  const std::uint32_t in = graph_.first_input[router], out = graph_.first_output[router];

  Nominee nominees[kMaxPorts];  // only entries in `nominated` are valid
  std::uint64_t nominated[kMaxPorts / 64];
  const std::uint32_t words = (graph_.first_output[router + 1] - out + 63) / 64;
  std::fill_n(nominated, words, 0);
  Time next_try = kNever;
  for_each_waiting(router, [&](std::uint32_t local) {
    const std::uint32_t input = in + local;
    std::uint64_t remaining = waiting_[input];
    for (std::uint32_t a = 0; a < reads_ && remaining; ++a) {
      const Time busy_until = reading_[input * reads_ + a];
      if (busy_until > now) {
        next_try = std::min(next_try, std::max(busy_until, earliest(input, remaining)));
        continue;
      }
      const int turn = turn_[input];
      while (remaining) {
        const std::uint64_t ahead = remaining >> turn << turn;
        const auto v = static_cast<std::uint32_t>(std::countr_zero(ahead ? ahead : remaining));
        remaining &= ~(std::uint64_t{1} << v);
        Queue& queue = queues_[input * v_ + v];
        Choice choice;
        if (queue.retry > now || !choose(out, queue, now, choice)) {
          next_try = std::min(next_try, queue.retry);
          continue;
        }
        const std::uint32_t o = choice.output;
        const std::uint32_t rank = (local - favoured_[out + o]) & (kMaxPorts - 1);
        if (nominated[o / 64] >> o % 64 & 1U) {
          next_try = std::min(next_try, now + rules_.cycle);
          if (rank >= nominees[o].rank) break;
        }
        nominees[o] = {input, v, a, rank, choice};
        nominated[o / 64] |= std::uint64_t{1} << o % 64;
        break;
      }
    }
  });
  const auto grant_output = [&](std::uint32_t o) {
    const Nominee& n = nominees[o];
    const Time busy_until = servers_[graph_.outputs[out + o].server].busy_until;
    const bool address = graph_.is_bus(router) && pool_[queues_[n.input * v_ + n.channel].head].flits <= address_flits_;
    if (busy_until > now && !address) {  // a bus that was just granted to another output
      next_try = std::min(next_try, busy_until);
      return;
    }
    grant(router, n, now);
    // Its other channels are considered again after the input has been read.
    if (const std::uint64_t remaining = waiting_[n.input])
      next_try = std::min(next_try, std::max(reading_[n.input * reads_ + n.arbiter], earliest(n.input, remaining)));
  };
  for (std::uint32_t w = 0; w < words; ++w)
    for (std::uint64_t m = nominated[w]; m; m &= m - 1)
      grant_output(w * 64 + static_cast<std::uint32_t>(std::countr_zero(m)));
  if (next_try < kNever) schedule(router, std::max(next_try, now + 1));
}

void Network::grant(std::uint32_t router, const Nominee& nominee, Time now) {
  const std::uint32_t input = nominee.input, v = nominee.channel;
  const Choice& choice = nominee.choice;
  Queue& queue = queues_[input * v_ + v];
  const std::uint32_t p = queue.head;
  Packet& packet = pool_[p];
  const std::uint32_t o = graph_.first_output[router] + choice.output;
  const Output& output = graph_.outputs[o];
  const std::uint32_t space = o * v_ + choice.channel;
  ++hops_;

  const bool address = packet.flits <= address_flits_ && graph_.is_bus(router);
  const Time takes = address ? 0 : duration(o, packet.flits) + graph_.servers[output.server].gap;
  const std::uint32_t from = graph_.inputs[input].from_output;
  ServerState& server = servers_[output.server];
  // The current driver of a bus: the node for everything it sends, or a CPU.
  const std::uint32_t sender = output.to_endpoint != kNone && from != kNone ? kNone - 1 : input;
  const Time turnaround = server.sender == sender ? 0 : graph_.servers[output.server].turnaround;
  const Time start = address ? now : std::max(now, server.busy_until + turnaround), end = start + takes;
  if (!address) {
    server.busy_until = end;
    server.user = o;
    server.sender = sender;
  }
  busy_[o] += takes;
  flits_[o] += packet.flits;
  reading_[input * reads_ + nominee.arbiter] = end;
  if (spaces_[space].bounded) spaces_[space].flits -= packet.flits;
  turn_[input] = static_cast<std::uint8_t>(v + 1 == v_ ? 0 : v + 1);
  favoured_[o] = static_cast<std::uint16_t>(input - graph_.first_input[router] + 1);

  // A packet frees its space flit by flit as it leaves. One credit stands for all of them, with a time at which a
  // packet that follows at the input's rate finds room for its last flit when this flit arrives.
  if (from != kNone) {
    const Time in_rate = duration(from, packet.flits - 1);
    give_back(from, packet.channel, std::max(start, end - in_rate) + rules_.credit, packet.flits);
  }

  // The next packet of the queue, or of its source.
  queue.head = packet.next;
  const auto bit = std::uint64_t{1} << v;
  if (queue.head == kNone) {
    queue.tail = kNone;
    waiting_[input] &= ~bit;
    if (waiting_[input] == 0) word_of(router, input) &= ~bit_of(router, input);
    if (const std::uint32_t endpoint = graph_.inputs[input].from_endpoint; endpoint != kNone) {
      PoolQueue& source = sources_[endpoint * static_cast<std::size_t>(rules_.channels.classes) + queue.klass];
      if (source.head != kNone) {
        queue.head = queue.tail = source.pop(pool_);
        refill(input, v, now);
      }
    }
  } else {
    lead(input, v, now);
  }
  packet.channel = choice.channel;
  packet.escape_class = choice.escape;
  ++packet.hops;
  if (output.to_endpoint != kNone) {
    calendar_.push(start + output.delay, event_of(kDeliver, output.to_endpoint), p);
    --inside_;
  } else {
    const Time pipeline = graph_.is_bus(output.to_router) ? 0 : rules_.pipeline;
    calendar_.push(start + output.delay + pipeline, event_of(kArrive, output.to_input), p);
  }
}

Time Network::tail_of(std::uint32_t p, Time head) const {
  const Packet& packet = pool_[p];
  return head + duration(graph_.endpoints[packet.target].output, packet.flits);
}

bool Network::all_credits_back(Time now) {
  Time when = kNever;
  for (std::size_t s = 0; s < spaces_.size(); ++s) {
    if (!spaces_[s].bounded || graph_.outputs[s / v_].to_endpoint != kNone) continue;
    if (!has_space(static_cast<std::uint32_t>(s), rules_.buffer_flits, now, when)) return false;
  }
  return true;
}

std::string Network::waits() const {
  std::string text;
  int shown = 0;
  for (std::size_t q = 0; q < queues_.size(); ++q) {
    if (queues_[q].head == kNone) continue;
    const auto input = static_cast<std::uint32_t>(q / v_);
    const std::uint32_t router = graph_.inputs[input].router, from = graph_.inputs[input].from_output;
    const std::uint32_t target = pool_[queues_[q].head].target;
    if (from == kNone) continue;
    if (++shown > 12) {
      text += "; ...";
      break;
    }
    std::string outputs;
    const auto add = [&](int o) {
      outputs += (outputs.empty() ? "" : " or ") + std::string("[") +
                 name_of(graph_, graph_.first_output[router] + static_cast<std::uint32_t>(o)) + "]";
    };
    if (queues_[q].target_output >= 0) add(queues_[q].target_output);
    for (std::uint64_t m = queues_[q].minimal; m; m &= m - 1) add(std::countr_zero(m));
    if (queues_[q].escape_output >= 0 && !(queues_[q].minimal >> queues_[q].escape_output & 1U))
      add(queues_[q].escape_output);
    text += (text.empty() ? "" : "; ") + std::string("[") + name_of(graph_, from) + "] channel " +
            std::to_string(q % v_) + " waits for " + outputs + " towards endpoint " + std::to_string(target);
  }
  return text;
}

std::size_t Network::bytes() const {
  return queues_.capacity() * sizeof(Queue) + spaces_.capacity() * sizeof(Space) +
         credits_.capacity() * sizeof(Credit) + pool_.bytes() + (busy_.capacity() + flits_.capacity()) * 8;
}

}  // namespace mm::model

#include "model/network/flits.hpp"

#include <algorithm>
#include <bit>

namespace mm::model {

namespace {

std::uint64_t bit(std::uint32_t n) { return std::uint64_t{1} << n; }

/// Returns the first set bit from `turn` on, round robin. Pre: some bit is set.
std::uint32_t round_robin(std::uint64_t bits, std::uint32_t turn) {
  const std::uint64_t ahead = bits >> (turn & 63U) << (turn & 63U);
  return static_cast<std::uint32_t>(std::countr_zero(ahead ? ahead : bits));
}

std::uint32_t most_outputs(const Graph& graph) {
  std::uint32_t most = 0;
  for (std::uint32_t r = 0; r < graph.routers(); ++r)
    most = std::max(most, graph.first_output[r + 1] - graph.first_output[r]);
  return most;
}

}  // namespace

FlitNetwork::FlitNetwork(const Graph& graph, const Routing& routing, const RouterRules& rules, std::uint64_t seed)
    : graph_(graph),
      routing_(routing),
      rules_(rules),
      v_(static_cast<std::uint32_t>(rules.channels.all())),
      per_class_(static_cast<std::uint32_t>(rules.channels.per_class())),
      shift_(static_cast<std::uint32_t>(std::bit_width(v_ - 1))),
      mask_((1U << shift_) - 1),
      ring_(std::bit_ceil(static_cast<std::uint32_t>(rules.buffer_flits + 2))),
      ports_(most_outputs(graph)),
      pipeline_(cycles(rules.pipeline)),
      allocation_(cycles(rules.allocation)),
      requeue_(cycles(rules.requeue)),
      credit_delay_(std::max<std::int64_t>(1, cycles(rules.credit))),
      draws_(seed, ~std::uint64_t{0}),
      channels_(graph.inputs.size() << shift_),
      packets_(channels_.size() * ring_),
      last_(channels_.size(), 0),
      credits_((graph.outputs.size() + graph.endpoints.size()) << shift_, rules.buffer_flits),
      owner_(credits_.size(), kNone),
      outputs_(graph.outputs.size()),
      inputs_(graph.inputs.size()),
      routers_(graph.routers()),
      eligible_(graph.inputs.size() * ports_, 0),
      active_(graph.routers() / 64 + 1, 0),
      sending_(graph.endpoints.size() / 64 + 1, 0),
      channel_turn_(graph.outputs.size() << shift_, 0),
      winner_(graph.outputs.size() << shift_, 0),
      winner_rank_(winner_.size(), 0),
      stamp_(winner_.size(), 0),
      sources_(graph.endpoints.size()),
      queues_(graph.endpoints.size() * static_cast<std::size_t>(rules.channels.classes)) {
  std::int64_t longest = pipeline_ + allocation_ + requeue_;
  for (std::uint32_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = graph.outputs[o];
    Port& port = outputs_[o];
    port.free = ~std::uint64_t{0} >> (64 - v_);
    port.delay = static_cast<std::int32_t>(std::max<std::int64_t>(1, cycles(output.delay)));
    port.takes = static_cast<std::int32_t>(std::max<std::int64_t>(1, cycles((output.fs_per_flit + 999) / 1000)));
    slow_links_ = slow_links_ || port.takes > 1;
    longest = std::max<std::int64_t>(longest, port.delay + port.takes);
    if (output.to_endpoint == kNone) {
      port.to = output.to_input << shift_;
      continue;
    }
    // An endpoint consumes a flit immediately, so only a buffer shorter than the round trip of its credit limits it.
    if (rules.buffer_flits * port.takes >= port.delay + credit_delay_)
      for (std::uint32_t k = 0; k < v_; ++k) credits_[o << shift_ | k] = kUnbounded;
  }
  for (const Endpoint& e : graph.endpoints) longest = std::max(longest, cycles(e.delay));
  for (std::uint32_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = graph.inputs[i];
    inputs_[i].upstream =
        (input.from_output != kNone ? input.from_output
                                    : static_cast<std::uint32_t>(graph.outputs.size()) + input.from_endpoint)
        << shift_;
  }
  for (std::uint32_t r = 0; r < routers_.size(); ++r) {
    routers_[r].in = graph.first_input[r];
    routers_[r].out = graph.first_output[r];
  }
  wheel_.resize(std::bit_ceil(static_cast<std::size_t>(longest + credit_delay_ + 2)));
  wheel_mask_ = wheel_.size() - 1;
  // At most one flit a cycle reaches an input or leaves it; the outputs to endpoints get credits back, too.
  arrivals_.width = static_cast<std::uint32_t>(inputs_.size());
  credits_due_.width = static_cast<std::uint32_t>(inputs_.size() + outputs_.size());
  for (Wheel* w : {&arrivals_, &credits_due_}) {
    w->counts.assign(wheel_.size(), 0);
    w->values.resize(wheel_.size() * w->width);
  }
}

void FlitNetwork::inject(std::uint32_t endpoint, std::uint32_t p) {
  queues_[endpoint * static_cast<std::size_t>(rules_.channels.classes) + pool_[p].klass].push(pool_, p);
  ++inside_;
  sending_[endpoint / 64] |= bit(endpoint % 64);
}

inline void FlitNetwork::make_eligible(std::uint32_t channel) {
  const std::uint32_t input = channel >> shift_, number = graph_.inputs[input].router, o = channels_[channel].output;
  Router& router = routers_[number];
  eligible(input, o) |= bit(channel & mask_);
  outputs_[router.out + o].requesting_inputs |= bit(input - router.in);
  router.requested_outputs |= bit(o);
  active_[number / 64] |= bit(number % 64);
}

inline void FlitNetwork::make_ineligible(Router& router, std::uint32_t input, std::uint32_t k, std::uint32_t o) {
  std::uint64_t& eligible_channels = eligible(input, o);
  eligible_channels &= ~bit(k);
  if (eligible_channels != 0) return;
  std::uint64_t& asking_inputs = outputs_[router.out + o].requesting_inputs;
  asking_inputs &= ~bit(input - router.in);
  if (!asking_inputs) router.requested_outputs &= ~bit(o);
}

inline void FlitNetwork::arrive(std::uint32_t channel) {
  Channel& c = channels_[channel];
  ++c.count;
  if (c.state == State::idle) {
    c.state = State::routing;
    slot(cycle_ + pipeline_).heads.push_back(channel);
  } else if (c.count == 1 && c.state == State::active && credits_[c.space] > 0) {
    make_eligible(channel);
  }
}

inline void FlitNetwork::credit(std::uint32_t space) {
  if (++credits_[space] != 1 || owner_[space] == kNone) return;
  const Channel& c = channels_[owner_[space]];
  if (c.state == State::active && c.count > 0) make_eligible(owner_[space]);
}

const std::vector<std::uint32_t>& FlitNetwork::step() {
  Slot& events = slot(cycle_);
  const std::size_t index = at(cycle_);
  const std::uint32_t* const arrived_channels = &arrivals_.values[index * arrivals_.width];
  for (std::uint32_t n = arrivals_.counts[index], i = 0; i < n; ++i) arrive(arrived_channels[i]);
  const std::uint32_t* const freed_spaces = &credits_due_.values[index * credits_due_.width];
  for (std::uint32_t n = credits_due_.counts[index], i = 0; i < n; ++i) credit(freed_spaces[i]);
  arrivals_.counts[index] = credits_due_.counts[index] = 0;
  for (const std::uint32_t c : events.heads) route(c);
  for (const std::uint32_t c : events.ready) activate(c);
  for (std::size_t w = 0; w < sending_.size(); ++w)
    for (std::uint64_t m = sending_[w]; m; m &= m - 1)
      send(static_cast<std::uint32_t>(64 * w) + static_cast<std::uint32_t>(std::countr_zero(m)));
  for (std::size_t w = 0; w < active_.size(); ++w)
    for (std::uint64_t m = active_[w]; m; m &= m - 1) {
      Router& router = routers_[64 * w + static_cast<std::size_t>(std::countr_zero(m))];
      if (router.wanting) allocate_channels(router);
      if (router.requested_outputs) allocate_switch(router);
      if (!router.wanting && !router.requested_outputs) active_[w] &= ~(m & -m);
    }
  if (inside_) last_change_ = cycle_;
  delivered_.swap(events.delivered);
  events.heads.clear();
  events.ready.clear();
  events.delivered.clear();
  inside_ -= delivered_.size();
  ++cycle_;
  return delivered_;
}

/// Sends the next flit of an endpoint, if the first buffer of the router has room.
void FlitNetwork::send(std::uint32_t endpoint) {
  Source& source = sources_[endpoint];
  if (source.free_from > cycle_) return;
  const Endpoint& e = graph_.endpoints[endpoint];
  const std::size_t classes = static_cast<std::size_t>(rules_.channels.classes);
  std::int32_t* const room = &credits_[(graph_.outputs.size() + endpoint) << shift_];
  if (source.sending == kNone) {
    std::uint32_t klass = source.klass;
    for (std::size_t i = 0; i < classes && queues_[endpoint * classes + klass].head == kNone; ++i)
      klass = klass + 1 == classes ? 0 : klass + 1;
    PoolQueue& queue = queues_[endpoint * classes + klass];
    if (queue.head == kNone) {
      sending_[endpoint / 64] &= ~bit(endpoint % 64);
      return;
    }
    const std::uint32_t first = klass * per_class_;
    std::uint32_t c = source.channel;
    for (std::uint32_t i = 0; i < per_class_; ++i) {
      c = c < first || c + 1 >= first + per_class_ ? first : c + 1;
      if (room[c] > 0) {
        source.sending = queue.pop(pool_);
        source.left = pool_[source.sending].flits;
        source.channel = c;
        follow(e.input << shift_ | c, source.sending);
        source.klass = static_cast<std::uint8_t>(klass + 1 == classes ? 0 : klass + 1);
        break;
      }
    }
    if (source.sending == kNone) return;
  }
  if (room[source.channel] == 0) return;
  --room[source.channel];
  --source.left;
  arrivals_.push(at(cycle_ + std::max<std::int64_t>(1, cycles(e.delay))), e.input << shift_ | source.channel);
  const std::int64_t takes = cycles((e.fs_per_flit + 999) / 1000);
  if (takes > 1) source.free_from = cycle_ + takes;
  if (source.left == 0) source.sending = kNone;
}

/// Sets the output of the head of a channel, and the virtual channels that it may use there.
void FlitNetwork::route(std::uint32_t channel) {
  Channel& c = channels_[channel];
  const Packet& packet = pool_[head_of(channel)];
  const std::uint32_t input = channel >> shift_, router = graph_.inputs[input].router;
  const Endpoint& target = graph_.endpoints[packet.target];
  const std::uint32_t first = packet.klass * per_class_, width = static_cast<std::uint32_t>(rules_.channels.width);
  std::uint32_t low = first, high = first + per_class_ - 1;
  if (target.router == router) {
    c.output = static_cast<std::uint8_t>(target.output - graph_.first_output[router]);
  } else {
    Hop hop = routing_.escape(router, target.router, kFresh);
    const std::uint32_t from = graph_.inputs[input].from_output;
    const bool straight =
        from != kNone &&
        routing_.keeps_class(graph_, graph_.outputs[from], graph_.outputs[graph_.first_output[router] + hop.output]);
    if (straight)
      hop.escape = static_cast<std::uint8_t>(((channel & mask_) - first) / width);
    else if (const Hop opposite = routing_.other_way(graph_, router, target.router); opposite.output != kNoHop)
      hop = draws_.below(2) ? opposite : hop;  // both ways round the ring are equally long
    // A packet that crosses neither date line takes either class and keeps it.
    const std::uint32_t k = hop.escape == kEither ? static_cast<std::uint32_t>(draws_.below(2)) : hop.escape;
    low = first + k * width;
    high = low + width - 1;
    c.output = hop.output;
  }
  c.low = static_cast<std::uint8_t>(low);
  c.high = static_cast<std::uint8_t>(high);
  inputs_[input].wanting |= bit(channel & mask_);
  routers_[router].wanting |= bit(input - graph_.first_input[router]);
  active_[router / 64] |= bit(router % 64);
}

/// Assigns virtual channels of the outputs to packets that need one: each picks an input channel, which accepts one.
void FlitNetwork::allocate_channels(Router& router) {
  const std::uint32_t in = router.in, out = router.out, all = kMaxFlitPorts << shift_;
  requests_.clear();
  for (std::uint64_t m = router.wanting; m; m &= m - 1) {
    const std::uint32_t input = in + static_cast<std::uint32_t>(std::countr_zero(m));
    for (std::uint64_t w = inputs_[input].wanting; w; w &= w - 1) {
      const std::uint32_t channel = input << shift_ | static_cast<std::uint32_t>(std::countr_zero(w));
      const Channel& c = channels_[channel];
      const std::uint64_t range = ~std::uint64_t{0} >> (63 - c.high) >> c.low << c.low;
      if (const std::uint64_t free = outputs_[out + c.output].free & range)
        requests_.push_back({channel, channel - (in << shift_), out + c.output, free});
    }
  }
  if (requests_.size() == 1) {
    own(router, requests_[0], requests_[0].free);
    return;
  }
  ++serial_;
  for (std::uint32_t r = 0; r < requests_.size(); ++r)
    for (std::uint64_t m = requests_[r].free; m; m &= m - 1) {
      const std::uint32_t space = requests_[r].output << shift_ | static_cast<std::uint32_t>(std::countr_zero(m));
      const std::uint32_t turn = channel_turn_[space];
      const std::uint32_t rank = requests_[r].rank >= turn ? requests_[r].rank - turn : requests_[r].rank + all - turn;
      if (stamp_[space] == serial_ && winner_rank_[space] <= rank) continue;
      stamp_[space] = serial_;
      winner_[space] = r;
      winner_rank_[space] = rank;
    }
  for (std::uint32_t r = 0; r < requests_.size(); ++r) {
    std::uint64_t won_channels = 0;
    for (std::uint64_t m = requests_[r].free; m; m &= m - 1)
      if (winner_[requests_[r].output << shift_ | static_cast<std::uint32_t>(std::countr_zero(m))] == r)
        won_channels |= m & -m;
    if (won_channels) own(router, requests_[r], won_channels);
  }
}

/// Assigns one of `choices` of the requested output to a channel.
void FlitNetwork::own(Router& router, const Request& request, std::uint64_t choices) {
  Channel& c = channels_[request.channel];
  const std::uint32_t base = static_cast<std::uint32_t>(c.output) << shift_;
  const std::uint32_t k = round_robin(choices, c.turn > base && c.turn <= (base | mask_) ? c.turn - base : 0);
  const std::uint32_t space = request.output << shift_ | k, input = request.channel >> shift_;
  c.turn = static_cast<std::uint16_t>(base + k + 1);
  channel_turn_[space] = static_cast<std::uint16_t>(request.rank + 1);
  c.space = space;
  c.state = State::allocated;
  owner_[space] = request.channel;
  outputs_[request.output].free &= ~bit(k);
  inputs_[input].wanting &= ~bit(request.channel & mask_);
  if (!inputs_[input].wanting) router.wanting &= ~bit(input - router.in);
  ++hops_;
  const std::uint32_t p = head_of(request.channel);
  ++pool_[p].hops;
  c.left = pool_[p].flits;
  if (outputs_[request.output].to != kNone) follow(outputs_[request.output].to | k, p);
  if (allocation_ == 0)
    activate(request.channel);
  else
    slot(cycle_ + allocation_).ready.push_back(request.channel);
}

void FlitNetwork::activate(std::uint32_t channel) {
  Channel& c = channels_[channel];
  c.state = State::active;
  if (c.count > 0 && credits_[c.space] > 0) make_eligible(channel);
}

/// Moves the first flit of virtual channel `k` of an input to the far end of its output `o`, a local number.
inline void FlitNetwork::forward(Router& router, std::uint32_t input, std::uint32_t k, std::uint32_t o) {
  const std::uint32_t channel = input << shift_ | k;
  Port& output = outputs_[router.out + o];
  Channel& c = channels_[channel];
  const std::uint32_t space = c.space;
  --c.count;
  const bool tail = --c.left == 0;
  if ((--credits_[space] == 0) | (c.count == 0) | tail) make_ineligible(router, input, k, o);
  if (output.takes > 1) output.free_from = cycle_ + output.takes;
  credits_due_.push(at(cycle_ + credit_delay_), inputs_[input].upstream | k);
  if (output.to != kNone) {
    arrivals_.push(at(cycle_ + output.delay), output.to | (space & mask_));
  } else {
    if (credits_[space] < kUnbounded / 2)
      credits_due_.push(at(cycle_ + output.delay + credit_delay_), space);
    else
      ++credits_[space];
    if (tail) slot(cycle_ + output.delay + output.takes).delivered.push_back(head_of(channel));
  }
  if (!tail) return;
  owner_[space] = kNone;
  output.free |= bit(space & mask_);
  c.space = kNone;
  c.first = static_cast<std::uint16_t>((c.first + 1U) & (ring_ - 1));
  if (c.count > 0) {
    c.state = State::routing;
    slot(cycle_ + 1 + requeue_).heads.push_back(channel);
  } else {
    c.state = State::idle;
  }
}

/// Sends at most one flit from each input and to each output.
void FlitNetwork::allocate_switch(Router& router) {
  std::uint64_t outputs_by_input[kMaxFlitPorts];  // by input: outputs; valid for the bits of `inputs`
  std::uint64_t inputs = 0;
  for (std::uint64_t m = router.requested_outputs; m; m &= m - 1) {
    const auto o = static_cast<std::uint32_t>(std::countr_zero(m));
    const Port& output = outputs_[router.out + o];
    if (slow_links_ && output.free_from > cycle_) continue;
    const std::uint32_t i = round_robin(output.requesting_inputs, output.turn);
    outputs_by_input[i] = (inputs >> i & 1U ? outputs_by_input[i] : 0) | bit(o);
    inputs |= bit(i);
  }
  if (inputs) last_move_ = cycle_;
  for (; inputs; inputs &= inputs - 1) {
    const auto i = static_cast<std::uint32_t>(std::countr_zero(inputs));
    Entry& input = inputs_[router.in + i];
    const std::uint32_t o = round_robin(outputs_by_input[i], input.turn);
    const std::uint32_t k = round_robin(eligible(router.in + i, o), input.round);
    outputs_[router.out + o].turn = static_cast<std::uint8_t>(i + 1);
    input.turn = static_cast<std::uint8_t>(o + 1);
    input.round = static_cast<std::uint8_t>(k + 1 == v_ ? 0 : k + 1);
    forward(router, router.in + i, k, o);
  }
}

bool FlitNetwork::all_credits_back() const {
  return std::ranges::all_of(credits_, [&](std::int32_t c) { return c == rules_.buffer_flits || c == kUnbounded; });
}

std::string FlitNetwork::waits() const {
  std::string text;
  int shown = 0;
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
    const Channel& c = channels_[channel];
    const std::uint32_t input = channel >> shift_, from = graph_.inputs[input].from_output;
    if (c.count == 0 || from == kNone) continue;
    if (++shown > 12) {
      text += "; ...";
      break;
    }
    const std::uint32_t output = graph_.first_output[graph_.inputs[input].router] + c.output;
    text += (text.empty() ? "" : "; ") + std::string("[") + name_of(graph_, from) + "] channel " +
            std::to_string((channel & mask_)) + " waits for [" + name_of(graph_, output) + "]";
  }
  return text;
}

}  // namespace mm::model

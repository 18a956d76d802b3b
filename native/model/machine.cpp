#include "machine.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/error.hpp"

namespace mm::model {

NodeRules node_rules(const Graph& graph, const json& machine) {
  const Table all(machine, "");
  const Table cpu = all.table("cpu"), memory = all.table("memory"), coherence = all.table("coherence"),
              packets = all.table("packets"), node = all.table("node"), router = all.table("router");
  if (node.integer("cpus", 0, kMaxPorts, 1) == 0) node.refuse("cpus", "0", "at least 1 in a machine with [memory]");
  NodeRules r;
  r.outstanding = cpu.integer("outstanding", 1, 4096);
  r.posts = cpu.flag("write_buffers_apart", true);
  r.write_buffers = cpu.integer("write_buffers", 1, 4096, r.outstanding);
  r.node_outstanding = node.integer("outstanding", 0, 65536, 0);
  r.request = ps(cpu.number("request_ns", 0, 1e6, 0));
  r.fill = ps(cpu.number("fill_ns", 0, 1e6, 0));
  r.issue = ps(cpu.number("issue_ns", 0, 1e6, 0));
  r.probe = ps(cpu.number("probe_ns", 0, 1e6, 0));
  r.critical_word = cpu.flag("critical_word_first", true);
  r.controllers = node.integer("controllers", 1, kMaxPorts, 1);
  r.channels = memory.integer("channels", 1, 64, 1);
  r.line_bytes = memory.integer("line_bytes", 8, 4096, 64);
  const double rate = memory.number("channel_gb_per_s", 1e-6, 1e6);
  r.occupancy_fs = std::llround(r.line_bytes / rate * 1e6);
  r.access = ps(memory.number("access_ns", 0, 1e6));
  r.activate = ps(memory.number("activate_ns", 0, 1e6, 0));
  r.turnaround = ps(memory.number("turnaround_ns", 0, 1e6, 0));
  r.gap = ps(memory.number("gap_ns", 0, 1e6, 0));
  r.page_bytes = memory.integer("page_bytes", 0, 1 << 30, 0);
  r.banks = memory.integer("banks", 1, 65536, 8);
  r.queue = memory.integer("queue", 1, 65536, 32);
  r.write_batch = memory.integer("write_batch", 1, 1024, 1);
  if (r.page_bytes != 0 && r.page_bytes < r.line_bytes)
    memory.refuse("page_bytes", std::to_string(r.page_bytes), "0, or at least line_bytes");
  const auto per_node = [&](const char* key, auto& list, double least, double most) {
    if (!memory.has(key)) return;
    const json& given = memory.at(key);
    const std::string allowed = "one number a node (" + std::to_string(graph.nodes()) + ")";
    if (!given.is_array() || given.size() != graph.nodes()) memory.refuse(key, brief(given), allowed);
    for (const json& v : given) {
      if (!v.is_number() || v.get<double>() < least || v.get<double>() > most) memory.refuse(key, brief(v), allowed);
      list.push_back(v.get<typename std::remove_reference_t<decltype(list)>::value_type>());
    }
  };
  per_node("node_channels", r.node_channels, 1, 64);
  per_node("node_share", r.node_share, 1e-3, 1e3);

  r.coherence = static_cast<Coherence>(coherence.choice("kind", {"directory", "broadcast", "snoop"}));
  r.directory = ps(coherence.number("directory_ns", 0, 1e6, 0));

  const int flit_bytes = router.integer("flit_bytes", 1, 1024, 8);
  r.request_flits = packets.integer("request_flits", 1, 1024, 1);
  r.ack_flits = packets.integer("ack_flits", 1, 1024, r.request_flits);
  r.data_flits = packets.integer("data_flits", 1, 8192, 1 + (r.line_bytes + flit_bytes - 1) / flit_bytes);
  const int buffer = router.integer("buffer_flits", 1, 8192, 64);
  if (r.data_flits > buffer)
    router.refuse("buffer_flits", std::to_string(buffer),
                  "at least packets.data_flits (" + std::to_string(r.data_flits) + "): a packet must fit");
  if (router.integer("message_classes", 1, 4, 3) < 3)
    router.refuse("message_classes", std::to_string(router.integer("message_classes", 1, 4)),
                  "3: requests, forwards and responses must not wait for each other");
  r.bypass = node.flag("bypass", true) && !node.has("bus");

  const Table placement = all.table("placement");
  r.striping = static_cast<Striping>(placement.choice("striping", {"none", "pair", "all"}));
  r.pair_dimension = placement.integer("pair_dimension", 0, 5, 0);
  if (!graph.shape.empty() && r.pair_dimension >= static_cast<int>(graph.shape.size()))
    placement.refuse("pair_dimension", std::to_string(r.pair_dimension), "a dimension of the topology");
  return r;
}

std::uint32_t partner(const Graph& graph, const NodeRules& rules, std::uint32_t node) {
  std::uint32_t other = node ^ 1U;
  if (!graph.shape.empty()) {
    std::uint32_t stride = 1;
    for (int d = 0; d < rules.pair_dimension; ++d)
      stride *= static_cast<std::uint32_t>(graph.shape[static_cast<std::size_t>(d)]);
    const int at = graph.coordinate(graph.node_router[node], rules.pair_dimension);
    other = at % 2 == 0 ? node + stride : node - stride;
    if (at % 2 == 0 && at + 1 >= graph.shape[static_cast<std::size_t>(rules.pair_dimension)]) other = node;
  }
  return other < graph.nodes() ? other : node;
}

namespace {

enum : std::uint32_t {
  kIssue = kFirstOfOthers,  ///< an actor may go on
  kSend,                    ///< a message leaves its endpoint
  kLocal,                   ///< a request reaches its own node's memory, without the router
  kMemory,                  ///< a controller has the data (or has taken the write)
  kProbed,                  ///< a core has looked up a probed line
  kDone,                    ///< the data has come, and is used
  kWindow,
};

enum : std::uint8_t { kRead, kWrite, kForward, kProbe, kData, kAck };

constexpr int kRequest = 0, kForwardClass = 1, kResponse = 2;

constexpr std::uint64_t kEndless = ~std::uint64_t{0};

struct Transaction {
  Time issued = 0, due = 0;
  std::uint32_t actor = 0, home = 0, next = kNone;
  std::uint64_t line = 0;
  std::uint32_t owner = kNone;  ///< endpoint
  std::int32_t pending = 0;
  Op op = Op::read;
  State state = State::clean;
  std::uint8_t sharers = 0;
  bool traced = false;
  std::uint32_t held = 0;  ///< flits of the controller's queue that are its own
};

struct ActorState {
  Draws draws;
  Time next_issue = 0;  ///< by pace and by the core's issue gap
  std::uint64_t issued = 0, ended = 0;
  std::uint64_t phase_end = kEndless;  ///< accesses issued by then end the memory phase
  Time phase_from = 0;
  int reads_open = 0;
  std::size_t stream = 0;
  std::vector<std::uint64_t> at;  ///< by stream
  Time scheduled = kNever;
  bool finished = false;
};

/// What the directory knows of a line that a trace touches.
struct Line {
  std::uint32_t owner = kNone;         ///< endpoint that may write it
  std::vector<std::uint32_t> sharers;  ///< endpoints that may read it
  bool busy = false;                   ///< a transaction on it is on its way; others wait
  std::vector<std::uint32_t> waiting;
};

struct Bank {
  std::uint64_t page = ~std::uint64_t{0};
  Time free_from = 0;
};

struct Channel {
  Time free_from = 0;  ///< of the data bus: all that is accepted is done by then
  Time busy = 0;
  int writes = 0;  ///< of the batch
};

/// A few events a bucket, whatever the size of the machine; the horizon stays above a memory access.
int bucket_shift(const Graph& graph) {
  return std::clamp(11 - static_cast<int>(std::bit_width(graph.endpoints.size() / 3)), 4, 9);
}

class Machine {
 public:
  Machine(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
          const Trial& trial, const FrameSink& frames)
      : g_(graph),
        rules_(rules),
        trial_(trial),
        frames_(frames),
        calendar_(bucket_shift(graph)),
        network_(graph, routing, routers, calendar_),
        states_(trial.actors.size()),
        open_reads_(graph.endpoints.size(), 0),
        open_writes_(graph.endpoints.size(), 0),
        node_open_(graph.nodes(), 0),
        waiting_(graph.endpoints.size()) {
    network_.addresses(std::max(rules_.request_flits, rules_.ack_flits));
    for (const Endpoint& e : g_.endpoints)
      if (e.kind == EndpointKind::memory)
        memory_of_index_.push_back(static_cast<std::uint32_t>(&e - g_.endpoints.data()));
    for (const std::uint32_t m : memory_of_index_) {
      const std::uint32_t node = g_.endpoints[m].node;
      const int channels = rules_.node_channels.empty() ? rules_.channels : rules_.node_channels[node];
      const double share = rules_.node_share.empty() ? 1 : rules_.node_share[node];
      memories_.push_back(
          {static_cast<std::uint32_t>(channels), static_cast<std::uint32_t>(channels_.size()),
           static_cast<Time>(std::llround(
               (static_cast<double>(rules_.occupancy_fs) / 1000 + static_cast<double>(rules_.gap)) / share))});
      channels_.resize(channels_.size() + static_cast<std::size_t>(channels));
      network_.bound(m, kRequest, rules_.queue * rules_.request_flits + rules_.data_flits);
    }
    if (rules_.page_bytes > 0) banks_.resize(channels_.size() * static_cast<std::size_t>(rules_.banks));
    int groups = 1;
    for (const Actor& a : trial.actors) groups = std::max(groups, a.group + 1);
    result_.groups.resize(static_cast<std::size_t>(groups));
    for (GroupResult& r : result_.groups) {
      const auto n = static_cast<std::size_t>(trial.batches);
      for (auto* list : {&r.latency_ps, &r.reads, &r.bytes, &r.phase_ps, &r.phases}) list->assign(n, 0);
    }
  }

  TrialResult run() {
    for (std::uint32_t a = 0; a < states_.size(); ++a) {
      states_[a].draws = Draws(trial_.seed, a);
      states_[a].at.assign(trial_.actors[a].streams.size(), 0);
      states_[a].next_issue = trial_.actors[a].start;
      if (trial_.actors[a].burst > 0) states_[a].phase_end = trial_.actors[a].burst;
      plan(a, trial_.actors[a].start);
      left_ += trial_.actors[a].accesses > 0;
    }
    const Time end = trial_.measure > 0 ? trial_.warm + trial_.measure : kNever;
    if (trial_.window > 0) calendar_.push(trial_.window, event_of(kWindow, 0), 0);
    bool started = trial_.warm == 0;
    bool stopped = false;
    Time now = 0;
    while (!calendar_.empty()) {
      const Event event = calendar_.pop();
      if (event.at >= end) {
        now = end;
        stopped = true;
        break;
      }
      now = event.at;
      if (!started && now >= trial_.warm) {
        started = true;
        mark(trial_.warm);
      }
      const std::uint32_t target = event.what & 0x0fffffff;
      switch (event.what >> 28) {
        case kArrive:
          network_.arrive(event.with, target, now);
          break;
        case kArbitrate:
          network_.arbitrate(target, now);
          break;
        case kDeliver:
          deliver(target, event.with, now);
          break;
        case kIssue:
          issue(target, now);
          break;
        case kSend:
          network_.inject(target, event.with, now);
          break;
        case kLocal:
          request_at_home(event.with, kNone, now);
          break;
        case kMemory:
          memory_done(event.with, target, now);
          break;
        case kProbed:
          probed(event.with, target, now);
          break;
        case kDone:
          done(event.with, now);
          break;
        default:
          frame(now);
          break;
      }
      if (trial_.measure == 0 && left_ == 0 && open_ == 0) break;
    }
    if (!stopped && calendar_.empty() && open_ > 0)
      throw Failure("no progress: " + std::to_string(open_) +
                    " requests are open and nothing moves: " + network_.waits());
    result_.measured = now - trial_.warm;
    result_.packet_hops = network_.packet_hops();
    result_.asked = asked_;
    result_.answered = answered_;
    const double span = static_cast<double>(std::max<Time>(result_.measured, 1));
    if (base_outputs_.empty()) mark(0);
    for (std::uint32_t o = 0; o < g_.outputs.size(); ++o)
      result_.output_busy.push_back(static_cast<double>(network_.busy(o, now) - base_outputs_[o]) / span);
    for (std::size_t m = 0; m < memories_.size(); ++m)
      result_.memory_busy.push_back((memory_busy(m, now) - base_memory_[m]) / span / memories_[m].channels);
    if (open_ == 0) result_.credits_back = network_.inside() == 0 && network_.all_credits_back(kNever - 1);
    return std::move(result_);
  }

 private:
  struct Memory {
    std::uint32_t channels, first;
    Time occupancy;  ///< of one line on one channel, with what is lost a line
  };

  double memory_busy(std::size_t m, Time now) const {
    double all = 0;
    for (std::uint32_t c = memories_[m].first; c < memories_[m].first + memories_[m].channels; ++c)
      all += static_cast<double>(channels_[c].busy - std::max<Time>(0, channels_[c].free_from - now));
    return all;
  }

  void mark(Time now) {
    base_outputs_.clear();
    base_memory_.clear();
    for (std::uint32_t o = 0; o < g_.outputs.size(); ++o) base_outputs_.push_back(network_.busy(o, now));
    for (std::size_t m = 0; m < memories_.size(); ++m) base_memory_.push_back(memory_busy(m, now));
  }

  void plan(std::uint32_t actor, Time at) {
    ActorState& s = states_[actor];
    if (at >= s.scheduled) return;
    s.scheduled = at;
    calendar_.push(at, event_of(kIssue, actor), 0);
  }

  std::uint32_t transaction() {
    if (free_ == kNone) {
      pool_.emplace_back();
      return static_cast<std::uint32_t>(pool_.size() - 1);
    }
    const std::uint32_t t = free_;
    free_ = pool_[t].next;
    pool_[t] = Transaction{};
    return t;
  }

  /// Issues what the actor may issue now; it is called again when something it waits for has come.
  void issue(std::uint32_t number, Time now) {
    ActorState& s = states_[number];
    if (s.scheduled != now) return;
    s.scheduled = kNever;
    const Actor& actor = trial_.actors[number];
    const std::uint32_t endpoint = actor.endpoint, node = g_.endpoints[endpoint].node;
    while (!s.finished) {
      if (actor.accesses > 0 && s.issued == actor.accesses) return;
      if (s.issued == s.phase_end) {
        if (s.reads_open > 0) return;  // the last answer will wake it
        if (s.phase_from >= trial_.warm) {
          GroupResult& group = result_.groups[static_cast<std::size_t>(actor.group)];
          const std::size_t batch = batch_of(number, now);
          group.phase_ps[batch] += static_cast<double>(now - s.phase_from);
          group.phases[batch] += 1;
        }
        s.phase_end += actor.burst;
        s.next_issue = std::max(s.next_issue, now + drawn(actor.rest, actor.random_rest, s));
      }
      if (!actor.trace.empty() && hit(number, now)) continue;
      const bool traced = !actor.trace.empty();
      const Stream& stream = traced ? kTraced : actor.streams[s.stream];
      const bool write = !traced && posted(stream.op);
      if (write ? open_writes_[endpoint] >= rules_.write_buffers
                : s.reads_open >= actor.chains || open_reads_[endpoint] >= rules_.outstanding) {
        if (write || open_reads_[endpoint] >= rules_.outstanding) wait(endpoint, number);
        return;  // an answer will wake it
      }
      if (!write && rules_.node_outstanding > 0 && node_open_[node] >= rules_.node_outstanding) {
        node_waiting_.push_back(number);
        return;
      }
      if (s.next_issue > now) {
        plan(number, s.next_issue);
        return;
      }
      if (s.issued + actor.burst == s.phase_end) s.phase_from = now;
      s.next_issue = now + std::max({actor.pace, stream.work, rules_.issue});
      start(number, stream, traced ? s.issued : s.at[s.stream]++, now);
      ++s.issued;
      if (++s.stream >= actor.streams.size()) s.stream = 0;
    }
  }

  /// A traced access to a line that the core has already ends at once; answers whether it was one.
  bool hit(std::uint32_t number, Time now) {
    ActorState& s = states_[number];
    const Actor& actor = trial_.actors[number];
    const Traced& access = actor.trace[s.issued];
    const auto found = lines_.find(access.line);
    if (found == lines_.end()) return false;
    const Line& line = found->second;
    const bool reads = std::find(line.sharers.begin(), line.sharers.end(), actor.endpoint) != line.sharers.end();
    if (line.owner != actor.endpoint && (access.op != Op::read || !reads)) return false;
    ++s.issued;
    ++s.ended;
    ++result_.hits;
    if (s.ended == actor.accesses) finish(number, now);
    return true;
  }

  void finish(std::uint32_t number, Time now) {
    states_[number].finished = true;
    GroupResult& group = result_.groups[static_cast<std::size_t>(trial_.actors[number].group)];
    group.ended = std::max(group.ended, now);
    --left_;
  }

  /// Takes a traced line for a transaction and says what must be done for it; false: it waits for the one before.
  bool take_line(std::uint32_t t) {
    Transaction& x = pool_[t];
    Line& line = lines_[x.line];
    if (line.busy) {
      line.waiting.push_back(t);
      return false;
    }
    line.busy = true;
    const std::uint32_t asking = trial_.actors[x.actor].endpoint;
    x.owner = line.owner != kNone && line.owner != asking ? line.owner : kNone;
    x.state = x.owner != kNone ? State::dirty : line.sharers.empty() ? State::clean : State::shared;
    return true;
  }

  /// The transaction is over: the directory changes, and the next one on the line goes on.
  void leave_line(const Transaction& x, Time now) {
    Line& line = lines_[x.line];
    const std::uint32_t asking = trial_.actors[x.actor].endpoint;
    if (x.op == Op::read) {
      if (line.owner != kNone) line.sharers.push_back(line.owner);
      line.owner = kNone;
      if (std::find(line.sharers.begin(), line.sharers.end(), asking) == line.sharers.end())
        line.sharers.push_back(asking);
    } else {
      line.owner = asking;
      line.sharers.clear();
    }
    if (trial_.check) check_single_writer(x, asking);
    line.busy = false;
    if (line.waiting.empty()) return;
    const std::uint32_t next = line.waiting.front();
    line.waiting.erase(line.waiting.begin());
    request_at_home(next, pool_[next].held, now);
  }

  /// What the cores hold, kept by what reached them and not by the directory: at most one may write, and then none
  /// reads.
  void check_single_writer(const Transaction& x, std::uint32_t asking) {
    auto& holders = held_[x.line];
    const char mode = x.op == Op::read ? 'r' : 'w';
    for (const auto& [who, how] : holders)
      if (who != asking && (how == 'w' || mode == 'w'))
        throw Failure("coherence is broken: line " + std::to_string(x.line) + " is held for " +
                      (how == 'w' ? "writing" : "reading") + " by endpoint " + std::to_string(who) +
                      " while endpoint " + std::to_string(asking) + (mode == 'w' ? " writes it" : " reads it"));
    holders[asking] = mode;
  }

  /// The equal part of the measured time, or of the actor's accesses, in which something ends now.
  std::size_t batch_of(std::uint32_t number, Time now) const {
    const auto n = static_cast<std::size_t>(trial_.batches);
    if (trial_.measure > 0)
      return std::min(n - 1, static_cast<std::size_t>((now - trial_.warm) * trial_.batches / trial_.measure));
    return std::min(n - 1, static_cast<std::size_t>(states_[number].ended * n / (trial_.actors[number].accesses + 1)));
  }

  /// A write that has a buffer of its own; others hold one of those that reads hold.
  bool posted(Op op) const { return op == Op::write && rules_.posts; }

  /// A time, or an exponential one of that mean.
  static Time drawn(Time mean, bool random, ActorState& s) {
    return random ? static_cast<Time>(-std::log(s.draws.unit()) * static_cast<double>(mean)) : mean;
  }

  void wait(std::uint32_t endpoint, std::uint32_t actor) {
    auto& list = waiting_[endpoint];
    if (std::find(list.begin(), list.end(), actor) == list.end()) list.push_back(actor);
  }

  void start(std::uint32_t number, const Stream& stream, std::uint64_t count, Time now) {
    ActorState& s = states_[number];
    const Actor& actor = trial_.actors[number];
    const std::uint32_t endpoint = actor.endpoint, node = g_.endpoints[endpoint].node;
    const auto line_bytes = static_cast<std::uint64_t>(rules_.line_bytes);
    const std::uint64_t step = stream.random ? s.draws.below(stream.span_lines) : count % stream.span_lines;
    const bool traced = !actor.trace.empty();
    const std::uint64_t line = traced                     ? actor.trace[count].line
                               : stream.stride_bytes == 0 ? stream.base + step
                                                          : stream.base + step * stream.stride_bytes / line_bytes;
    std::uint32_t home = node;
    switch (stream.homes) {
      case Homes::local:
        break;
      case Homes::fixed:
        home = stream.nodes.front();
        break;
      case Homes::uniform:
        home = static_cast<std::uint32_t>(s.draws.below(g_.nodes()));
        break;
      case Homes::others:
        home = static_cast<std::uint32_t>(s.draws.below(std::max(1U, g_.nodes() - 1)));
        if (home >= node && g_.nodes() > 1) ++home;
        break;
      case Homes::list:
        home = stream.nodes[s.draws.below(stream.nodes.size())];
        break;
    }
    const auto controllers = static_cast<std::uint64_t>(rules_.controllers);
    const std::uint64_t stripe = line / controllers;
    if (rules_.striping == Striping::pair && stripe % 2 == 1) home = partner(g_, rules_, home);
    if (rules_.striping == Striping::all) home = static_cast<std::uint32_t>((home + stripe) % g_.nodes());
    const std::uint32_t t = transaction();
    Transaction& x = pool_[t];
    x.issued = now;
    x.actor = number;
    x.line = line;
    x.op = traced ? actor.trace[count].op : stream.op;
    x.state = stream.state;
    x.traced = traced;
    if (traced) home = actor.trace[count].home;
    x.home = g_.memories_of[home][line % controllers];
    x.pending = 1;
    x.sharers = static_cast<std::uint8_t>(stream.sharers);
    if (stream.state == State::dirty && !traced) {
      const std::uint32_t owner = stream.owner < 0 ? home : static_cast<std::uint32_t>(stream.owner);
      x.owner = g_.cpus_of[owner].back();
      if (x.owner == endpoint && g_.cpus_of[owner].size() > 1) x.owner = g_.cpus_of[owner].front();
    }
    ++open_;
    ++asked_;
    if (posted(x.op)) {
      ++open_writes_[endpoint];
    } else {
      ++open_reads_[endpoint];
      ++node_open_[node];
      ++s.reads_open;
    }
    const bool near = rules_.bypass && home == node;
    if (near)
      calendar_.push(now + rules_.request, event_of(kLocal, 0), t);
    else
      send(endpoint, x.home, x.op == Op::write ? kWrite : kRead, t, now + rules_.request, now);
  }

  /// Sends a message; `at` lies ahead by what the sender needs before it leaves.
  void send(std::uint32_t from, std::uint32_t to, std::uint8_t what, std::uint32_t t, Time at, Time now) {
    const std::uint32_t p = network_.packet();
    Packet& packet = network_.at(p);
    packet.target = to;
    packet.about = t;
    packet.what = what;
    packet.born = at;
    const bool data = what == kWrite || what == kData;
    packet.flits = static_cast<std::uint16_t>(data           ? rules_.data_flits
                                              : what == kAck ? rules_.ack_flits
                                                             : rules_.request_flits);
    packet.klass = what == kRead || what == kWrite      ? kRequest
                   : what == kForward || what == kProbe ? kForwardClass
                                                        : kResponse;
    if (at > now)
      calendar_.push(at, event_of(kSend, from), p);
    else
      network_.inject(from, p, now);
  }

  void deliver(std::uint32_t endpoint, std::uint32_t p, Time now) {
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
        calendar_.push(now + rules_.probe, event_of(kProbed, endpoint), t);
        break;
      default:
        answer(t, rules_.critical_word ? now : tail, tail);
        break;
    }
  }

  /// A request is at its home; `flits` of the controller's queue are its own until the controller is done with it.
  void request_at_home(std::uint32_t t, std::uint32_t flits, Time at) {
    const std::uint32_t held = flits == kNone ? 0 : flits;
    pool_[t].held = held;
    if (pool_[t].traced && !take_line(t)) return;
    Transaction& x = pool_[t];
    if (x.op != Op::write && x.state == State::dirty && rules_.coherence != Coherence::broadcast) {
      calendar_.push(at + rules_.directory, event_of(kMemory, held), t);
      return;
    }
    if (x.op != Op::write && rules_.coherence == Coherence::broadcast && g_.nodes() > 1) probe_all(x, t, at);
    calendar_.push(serve(x, at), event_of(kMemory, held), t);
  }

  /// The home has a core look a line up: by a message, or directly where they are of one node.
  void look_up(std::uint32_t home, std::uint32_t core, std::uint8_t what, std::uint32_t t, Time at) {
    if (rules_.bypass && g_.endpoints[core].node == g_.endpoints[home].node)
      calendar_.push(at + rules_.probe, event_of(kProbed, core), t);
    else
      send(home, core, what, t, at, at);
  }

  void probe_all(Transaction& x, std::uint32_t t, Time at) {
    const std::uint32_t asking = trial_.actors[x.actor].endpoint;
    for (std::uint32_t n = 0; n < g_.nodes(); ++n) {
      if (n == g_.endpoints[asking].node || g_.cpus_of[n].empty()) continue;
      ++x.pending;
      const std::uint32_t cpu = g_.cpus_of[n].front();
      look_up(x.home, cpu, kProbe, t, at);
    }
  }

  /// Time at which the controller has the line's first data (or has taken the write).
  Time serve(const Transaction& x, Time at) {
    const std::uint32_t index = g_.endpoints[x.home].index;
    const Memory& m = memories_[index];
    const std::uint64_t mine = x.line / static_cast<std::uint64_t>(std::max(1, rules_.controllers));
    const auto c = m.first + static_cast<std::uint32_t>(mine % m.channels);
    Channel& channel = channels_[c];
    const Time takes = m.occupancy;
    Time ready = at;
    if (rules_.page_bytes > 0) {
      const std::uint64_t page = mine / m.channels * static_cast<std::uint64_t>(rules_.line_bytes) /
                                 static_cast<std::uint64_t>(rules_.page_bytes);
      // Consecutive pages lie in different banks; the hash keeps arrays of equal alignment apart.
      const std::uint64_t bank = (page ^ (page >> 7) ^ (page >> 13)) % static_cast<std::uint64_t>(rules_.banks);
      Bank& b = banks_[c * static_cast<std::size_t>(rules_.banks) + bank];
      ready = std::max(at, b.free_from);
      if (b.page != page) {
        ready += rules_.activate;
        b.page = page;
        b.free_from = ready;
      }
    }
    const Time start = std::max(channel.free_from, ready);
    Time end = std::max(channel.free_from, at) + takes;
    Time spent = takes;
    if (x.op == Op::write && ++channel.writes >= rules_.write_batch) {
      channel.writes = 0;
      end += 2 * rules_.turnaround;
      spent += 2 * rules_.turnaround;
    }
    channel.free_from = end;
    channel.busy += spent;
    return x.op == Op::write ? std::max(end, at) : start + rules_.access;
  }

  void memory_done(std::uint32_t t, std::uint32_t held, Time now) {
    Transaction& x = pool_[t];
    if (held > 0) network_.consumed(x.home, kRequest, static_cast<int>(held), now);
    const std::uint32_t asking = trial_.actors[x.actor].endpoint;
    const bool near = rules_.bypass && g_.endpoints[asking].node == g_.endpoints[x.home].node;
    if (x.op != Op::write && x.state == State::dirty && rules_.coherence != Coherence::broadcast) {
      look_up(x.home, x.owner, kForward, t, now);
      return;
    }
    if (x.op == Op::own && x.state == State::shared && x.traced)
      for (const std::uint32_t who : lines_[x.line].sharers) {
        if (who == asking) continue;
        ++x.pending;
        look_up(x.home, who, kForward, t, now);
      }
    else if (x.op == Op::own && x.state == State::shared)
      for (int i = 0; i < x.sharers; ++i) {
        std::uint32_t n = (g_.endpoints[x.home].node + 1 + static_cast<std::uint32_t>(i)) % g_.nodes();
        if (g_.cpus_of[n].empty() || n == g_.endpoints[asking].node) continue;
        ++x.pending;
        look_up(x.home, g_.cpus_of[n].front(), kForward, t, now);
      }
    if (near)
      answer(t, now, now);
    else
      send(x.home, asking, x.op == Op::write ? kAck : kData, t, now, now);
  }

  void probed(std::uint32_t t, std::uint32_t endpoint, Time now) {
    const Transaction& x = pool_[t];
    const std::uint32_t asking = trial_.actors[x.actor].endpoint;
    const bool data = x.state == State::dirty && x.owner == endpoint && x.op != Op::write;
    if (x.traced && trial_.check) {
      if (x.op == Op::own)
        held_[x.line].erase(endpoint);
      else
        held_[x.line][endpoint] = 'r';
    }
    if (rules_.bypass && g_.endpoints[asking].node == g_.endpoints[endpoint].node)
      answer(t, now, now);
    else
      send(endpoint, asking, data ? kData : kAck, t, now, now);
  }

  /// One of the answers that a transaction waits for has come: usable at `head`, whole at `tail`.
  void answer(std::uint32_t t, Time head, Time tail) {
    Transaction& x = pool_[t];
    x.due = std::max(x.due, head);
    if (--x.pending > 0) return;
    if (x.op == Op::write)
      calendar_.push(tail, event_of(kDone, 0), t);
    else
      calendar_.push(std::max(x.due + rules_.fill, tail), event_of(kDone, 0), t);
  }

  void done(std::uint32_t t, Time now) {
    const Transaction x = pool_[t];
    pool_[t].next = free_;
    free_ = t;
    --open_;
    ++answered_;
    const Actor& actor = trial_.actors[x.actor];
    ActorState& s = states_[x.actor];
    const std::uint32_t endpoint = actor.endpoint, node = g_.endpoints[endpoint].node;
    ++s.ended;
    GroupResult& group = result_.groups[static_cast<std::size_t>(actor.group)];
    if (now >= trial_.warm) {
      const std::size_t batch = batch_of(x.actor, now);
      group.bytes[batch] += rules_.line_bytes;
      if (x.op != Op::write) {
        group.reads[batch] += 1;
        group.latency_ps[batch] += static_cast<double>(x.due + rules_.fill - x.issued);
      }
    }
    if (posted(x.op)) {
      --open_writes_[endpoint];
    } else {
      --open_reads_[endpoint];
      --node_open_[node];
      --s.reads_open;
    }
    if (x.traced) leave_line(x, now);
    if (actor.accesses > 0 && s.ended == actor.accesses) {
      finish(x.actor, now);
    } else if (!posted(x.op)) {
      if (actor.chains == 1) s.next_issue = std::max(s.next_issue, now + drawn(actor.think, actor.random_think, s));
      plan(x.actor, std::max(now, s.next_issue));
    }
    if (auto& list = waiting_[endpoint]; !list.empty()) {
      const std::uint32_t first = list.front();
      list.erase(list.begin());
      plan(first, std::max(now, states_[first].next_issue));
    }
    if (!node_waiting_.empty()) {
      std::vector<std::uint32_t> again;
      again.swap(node_waiting_);
      for (const std::uint32_t a : again) plan(a, std::max(now, states_[a].next_issue));
    }
  }

  void frame(Time now) {
    if (frames_) {
      json line{{"type", "frame"},
                {"seq", ++frame_},
                {"t_s", static_cast<double>(now) * 1e-12},
                {"window_s", static_cast<double>(trial_.window) * 1e-12}};
      std::vector<Time> outputs(g_.outputs.size());
      std::vector<double> memory(memories_.size());
      for (std::uint32_t o = 0; o < g_.outputs.size(); ++o) outputs[o] = network_.busy(o, now);
      for (std::size_t m = 0; m < memories_.size(); ++m) memory[m] = memory_busy(m, now);
      if (last_outputs_.empty()) last_outputs_.assign(outputs.size(), 0), last_memory_.assign(memory.size(), 0);
      const auto window = static_cast<double>(trial_.window);
      const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
      json cpus = json::array(), channels = json::array(), links = json::array(), io = json::array();
      for (const std::uint32_t e : memory_order_) {
        const std::uint32_t m = g_.endpoints[e].index;
        channels.push_back(rounded((memory[m] - last_memory_[m]) / window / memories_[m].channels));
      }
      for (const std::uint32_t e : cpu_order_)
        cpus.push_back(rounded(1.0 * open_reads_[e] / std::max(1, rules_.outstanding)));
      const auto share = [&](std::size_t o) {
        return rounded(static_cast<double>(outputs[o] - last_outputs_[o]) / window);
      };
      for (const std::uint32_t e : io_order_) io.push_back(share(g_.endpoints[e].output));
      for (std::uint32_t o = 0; o < g_.outputs.size(); ++o)
        if (g_.outputs[o].to_router != kNone) links.push_back(share(o));
      last_outputs_ = std::move(outputs);
      last_memory_ = std::move(memory);
      line["values"] = {{"cpu.busy", cpus}, {"memory.busy", channels}, {"link.busy", links}, {"io.busy", io}};
      frames_(line);
    }
    // Windows alone are no progress: where nothing else is to come, the run ends (and says so, if requests are open).
    if (!calendar_.empty()) calendar_.push(now + trial_.window, event_of(kWindow, 0), 0);
  }

  inline static const Stream kTraced{};
  std::unordered_map<std::uint64_t, Line> lines_;
  std::unordered_map<std::uint64_t, std::map<std::uint32_t, char>> held_;  ///< with Trial::check

  const Graph& g_;
  const NodeRules& rules_;
  const Trial& trial_;
  const FrameSink& frames_;
  Calendar calendar_;
  Network network_;
  std::vector<ActorState> states_;
  std::vector<int> open_reads_, open_writes_, node_open_;
  std::vector<std::vector<std::uint32_t>> waiting_;  ///< actors that wait for a miss buffer or a write buffer
  std::vector<std::uint32_t> node_waiting_;
  std::vector<std::uint32_t> memory_of_index_;
  std::vector<Memory> memories_;
  std::vector<Channel> channels_;
  std::vector<Bank> banks_;
  std::vector<Transaction> pool_;
  std::uint32_t free_ = kNone;
  std::uint64_t open_ = 0, left_ = 0, asked_ = 0, answered_ = 0;
  TrialResult result_;
  std::uint64_t frame_ = 0;
  const std::vector<std::uint32_t> cpu_order_ = by_node(g_, EndpointKind::cpu),
                                   memory_order_ = by_node(g_, EndpointKind::memory),
                                   io_order_ = by_node(g_, EndpointKind::io);
  std::vector<Time> base_outputs_, last_outputs_;
  std::vector<double> base_memory_, last_memory_;
};

}  // namespace

TrialResult simulate(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
                     const Trial& trial, const FrameSink& frames) {
  return Machine(graph, routing, routers, rules, trial, frames).run();
}

}  // namespace mm::model

#include "model/memory/traffic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "model/memory/random.hpp"
#include "model/network/flits.hpp"

namespace mm::model {

namespace {

/// After a load has proved too high, this many more deliveries show that the network is not deadlocked.
constexpr std::uint64_t kDeliveriesToSee = 100;

enum class Pattern { uniform, hot_spot, transpose, complement, tornado, neighbour };

/// Destinations of the packets of each CPU: the classic patterns (Dally and Towles, "Principles and Practices of
/// Interconnection Networks", 2004, section 3.2). Tornado and neighbour apply to each coordinate of the nodes; without
/// coordinates, they apply to the numbers of the CPUs, as the other patterns do.
class Destinations {
 public:
  Destinations(const Graph& graph, const std::vector<std::uint32_t>& cpus, Pattern pattern) : pattern_(pattern) {
    const auto count = static_cast<std::uint32_t>(cpus.size());
    const auto side = static_cast<std::uint32_t>(std::lround(std::sqrt(count)));
    for (std::uint32_t c = 0; c < count; ++c) to_.push_back(fixed(c, count, side));
    if ((pattern != Pattern::tornado && pattern != Pattern::neighbour) || graph.shape.empty()) return;
    std::map<std::size_t, std::uint32_t> first;  // first CPU of each place; the other CPUs of a node follow it
    for (std::uint32_t c = 0; c < count; ++c) first.emplace(place(graph, router_of(graph, cpus[c]), 0), c);
    for (std::uint32_t c = 0; c < count; ++c) {
      const std::uint32_t router = router_of(graph, cpus[c]);
      to_[c] = first.at(place(graph, router, 1)) + (c - first.at(place(graph, router, 0)));
    }
  }
  std::uint32_t of(std::uint32_t from, Draws& draws) const {
    return pattern_ == Pattern::uniform ? static_cast<std::uint32_t>(draws.below(to_.size())) : to_[from];
  }

 private:
  std::uint32_t fixed(std::uint32_t from, std::uint32_t count, std::uint32_t side) const {
    switch (pattern_) {
      case Pattern::transpose:
        return from / side + from % side * side;
      case Pattern::complement:
        return count - 1 - from;
      case Pattern::tornado:
      case Pattern::neighbour:
        return (from + step(count)) % count;
      default:
        return 0;
    }
  }
  static std::uint32_t router_of(const Graph& graph, std::uint32_t cpu) {
    return graph.anchor[graph.endpoints[cpu].router];
  }
  std::uint32_t step(std::uint32_t length) const { return pattern_ == Pattern::tornado ? (length + 1) / 2 - 1 : 1; }
  /// Returns the place of a router among all coordinates, or the place `by` steps of the pattern further in each
  /// coordinate.
  std::size_t place(const Graph& graph, std::uint32_t router, std::uint32_t by) const {
    std::size_t index = 0;
    for (std::size_t d = graph.shape.size(); d-- > 0;) {
      const auto length = static_cast<std::uint32_t>(graph.shape[d]);
      const auto coordinate = static_cast<std::uint32_t>(graph.coordinate(router, static_cast<int>(d)));
      index = index * length + (coordinate + by * step(length)) % length;
    }
    return index;
  }

  const Pattern pattern_;
  std::vector<std::uint32_t> to_;
};

/// The requested traffic.
struct Workload {
  Pattern pattern;
  double load;  ///< flits per CPU and cycle
  int flits;    ///< flits of a packet
  std::uint64_t warm, packets;
  bool poisson;
};

Workload workload_of(const Table& t, const RouterRules& rules) {
  Workload w{};
  w.pattern = static_cast<Pattern>(
      t.choice("pattern", {"uniform", "hot_spot", "transpose", "complement", "tornado", "neighbour"}));
  w.load = t.number("load", 1e-9, 1e3);
  w.flits = t.integer("packet_flits", 1, 65535, 1);
  if (!rules.exclusive && w.flits > rules.buffer_flits)
    t.refuse("packet_flits", std::to_string(w.flits),
             "at most " + std::to_string(rules.buffer_flits) +
                 " (router.buffer_flits): a packet cuts through only if the next buffer holds all of it");
  w.warm = static_cast<std::uint64_t>(t.integer("warm_packets", 0, 1 << 30, 20000));
  w.packets = static_cast<std::uint64_t>(t.integer("packets", 1, 1 << 30, 100000));
  w.poisson = t.flag("poisson", false);
  return w;
}

/// Arrival times and destinations of the packets of one CPU.
class PacketSource {
 public:
  PacketSource(std::uint64_t seed, std::uint32_t cpu) : to(seed, 2ULL * cpu + 1), gap_(seed, 2ULL * cpu) {}
  /// Returns the time of the next packet; `per_cycle`: packets per cycle.
  Time next(double per_cycle, bool poisson, Time cycle) {
    if (poisson) {
      exact_ += -std::log(gap_.unit()) / per_cycle * static_cast<double>(cycle);
      return static_cast<Time>(std::llround(exact_));
    }
    // Bernoulli trials per cycle: geometric gaps.
    exact_ += per_cycle >= 1 ? 1 : std::floor(std::log(gap_.unit()) / std::log1p(-per_cycle)) + 1;
    return static_cast<Time>(exact_) * cycle;
  }
  Draws to;

 private:
  Draws gap_;
  double exact_ = 0;  ///< ps, or cycles
};

/// Latencies of the measured packets, in ps.
struct Latencies {
  std::uint64_t count = 0;
  double sum = 0, squares = 0, hops = 0;
  Time first_born = -1, last_delivered = 0;

  void add(const Packet& packet, Time tail) {
    const auto latency = static_cast<double>(tail - packet.born);
    sum += latency;
    squares += latency * latency;
    hops += packet.hops;
    ++count;
    last_delivered = tail;
  }
  double mean() const { return count ? sum / static_cast<double>(count) : 0; }
  double deviation() const {
    return count > 1 ? std::sqrt(std::max(0.0, squares / static_cast<double>(count) - mean() * mean())) : 0.0;
  }
};

/// Sends packets regardless of arrivals, and measures the packets after a warm-up.
class OpenLoop {
 public:
  OpenLoop(const Graph& graph, const RouterRules& rules, const Workload& workload, std::vector<std::uint32_t> cpus,
           std::uint64_t seed)
      : rules_(rules),
        workload_(workload),
        cpus_(std::move(cpus)),
        to_(graph, cpus_, workload.pattern),
        max_inside_(std::max<std::uint64_t>(200ULL * cpus_.size(), 100000)) {
    for (std::uint32_t c = 0; c < cpus_.size(); ++c) sources_.emplace_back(seed, c);
  }

 protected:
  ~OpenLoop() = default;

  Time next(std::uint32_t cpu) {
    return sources_[cpu].next(workload_.load / workload_.flits, workload_.poisson, rules_.cycle);
  }

  void delivered(const Packet& packet, Time tail) {
    if (unstable_) ++deliveries_since_;
    if (deliveries_since_ >= kDeliveriesToSee) stop_ = true;
    ++delivered_;
    if (!packet.about) return;
    latencies_.add(packet, tail);
    stop_ = latencies_.count == workload_.packets;
  }

  /// Prepares a packet of a CPU. `inside`: packets in the network, including this one. Returns whether the CPU
  /// continues to send.
  bool prepare(Packet& packet, std::uint32_t cpu, std::uint64_t inside) {
    packet.born = now_;
    packet.flits = static_cast<std::uint16_t>(workload_.flits);
    packet.target = cpus_[to_.of(cpu, sources_[cpu].to)];
    if (sent_ >= workload_.warm && measured_ < workload_.packets) {
      packet.about = 1;
      if (measured_++ == 0 && start_.at == 0) {
        latencies_.first_born = now_;
        start_ = {now_, delivered_};
      }
      if (measured_ == workload_.packets && end_.at == 0) end_ = {now_, delivered_};
    }
    ++sent_;
    if (inside > max_inside_ / 2 && !half_full_) {
      half_full_ = true;
      start_ = {now_, delivered_};
      end_ = {};  // what was measured before says nothing about the rate at which a full network delivers
    }
    if (inside <= max_inside_) return true;
    // Arrivals exceed departures. Stop sending; a few more deliveries show that the network is not deadlocked.
    unstable_ = true;
    if (end_.at == 0) end_ = {now_, delivered_};
    deliveries_since_ = 0;
    return false;
  }

  [[noreturn]] static void no_progress(std::uint64_t inside, const std::string& waits) {
    throw Failure("no progress: " + std::to_string(inside) + " packets wait for each other: " + waits);
  }

  json result(std::uint64_t packet_hops) const {
    const Mark end = end_.at > 0 ? end_ : Mark{now_, delivered_};
    const double window = static_cast<double>(end.at - start_.at), cycle = static_cast<double>(rules_.cycle);
    const Latencies& l = latencies_;
    const double accepted = static_cast<double>(end.delivered - start_.delivered) * workload_.flits * cycle / window /
                            static_cast<double>(cpus_.size());
    return json{{"load", workload_.load},
                {"accepted", window > 0 ? accepted : 0.0},
                {"unstable", unstable_},
                {"latency_s", l.mean() * 1e-12},
                {"latency_cycles", l.mean() / cycle},
                {"latency_deviation_s", l.deviation() * 1e-12},
                {"hops", l.count ? l.hops / static_cast<double>(l.count) : 0.0},
                {"packets", l.count},
                {"packet_hops", packet_hops},
                {"simulated_s", static_cast<double>(l.last_delivered - std::max<Time>(l.first_born, 0)) * 1e-12}};
  }

  struct Mark {
    Time at = 0;
    std::uint64_t delivered = 0;
  };

  const RouterRules& rules_;
  const Workload workload_;
  const std::vector<std::uint32_t> cpus_;
  Time now_ = 0;
  bool stop_ = false, unstable_ = false;

 private:
  const Destinations to_;
  const std::uint64_t max_inside_;  ///< limit of packets in the network, above which the load is too high
  std::vector<PacketSource> sources_;
  Latencies latencies_;
  Mark start_, end_;  ///< start and end of the window in which deliveries count
  std::uint64_t sent_ = 0, measured_ = 0, delivered_ = 0, deliveries_since_ = 0;
  bool half_full_ = false;
};

/// Runs over the network of packets, event by event.
class PacketLoop : OpenLoop {
 public:
  PacketLoop(const Graph& graph, const Routing& routing, const RouterRules& rules, const Workload& workload,
             std::vector<std::uint32_t> cpus, std::uint64_t seed)
      : OpenLoop(graph, rules, workload, std::move(cpus), seed),
        calendar_(std::max(6, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rules.cycle))) - 1)),
        network_(graph, routing, rules, calendar_) {}

  json run() {
    for (std::uint32_t c = 0; c < cpus_.size(); ++c) plan(c);
    while (!calendar_.empty() && !stop_) {
      const Event event = calendar_.pop();
      now_ = event.at;
      const std::uint32_t target = event.what & 0x0fffffff;
      switch (event.what >> 28) {
        case kArrive:
          network_.arrive(event.with, target, now_);
          break;
        case kArbitrate:
          network_.arbitrate(target, now_);
          break;
        case kDeliver:
          delivered(network_.at(event.with), network_.tail_of(event.with, now_));
          network_.release(event.with);
          break;
        default:
          if (!unstable_) send(target);
      }
    }
    if (calendar_.empty() && network_.inside() > 0) no_progress(network_.inside(), network_.waits());
    return result(network_.packet_hops());
  }

 private:
  void plan(std::uint32_t cpu) { calendar_.push(next(cpu), event_of(kFirstOfOthers, cpu), 0); }

  void send(std::uint32_t cpu) {
    const std::uint32_t p = network_.packet();
    const bool continues = prepare(network_.at(p), cpu, network_.inside() + 1);
    network_.inject(cpus_[cpu], p, now_);
    if (continues) plan(cpu);
  }

  Calendar calendar_;
  Network network_;
};

/// Runs over the network of flits, cycle by cycle.
class FlitLoop : OpenLoop {
 public:
  FlitLoop(const Graph& graph, const Routing& routing, const RouterRules& rules, const Workload& workload,
           std::vector<std::uint32_t> cpus, std::uint64_t seed)
      : OpenLoop(graph, rules, workload, std::move(cpus), seed), network_(graph, routing, rules, seed) {}

  json run() {
    for (std::uint32_t c = 0; c < cpus_.size(); ++c) plan(c);
    while (!stop_) {
      if (network_.quiet()) {
        if (births_.empty()) break;
        network_.jump(std::max(network_.cycle(), births_.top().first));
      }
      now_ = network_.cycle() * rules_.cycle;
      while (!unstable_ && !births_.empty() && births_.top().first <= network_.cycle()) {
        const std::uint32_t cpu = births_.top().second;
        births_.pop();
        send(cpu);
      }
      for (const std::uint32_t p : network_.step()) {
        delivered(network_.packet(p), now_);
        network_.release(p);
        if (stop_) break;
      }
      if (network_.inside() > 0 && network_.cycle() - network_.last_move() > kPatience)
        no_progress(network_.inside(), network_.waits());
    }
    return result(network_.packet_hops());
  }

 private:
  static constexpr std::int64_t kPatience = 100000;      ///< cycles without a moving flit that make a deadlock
  using Birth = std::pair<std::int64_t, std::uint32_t>;  ///< cycle, CPU

  void plan(std::uint32_t cpu) { births_.emplace((next(cpu) + rules_.cycle - 1) / rules_.cycle, cpu); }

  void send(std::uint32_t cpu) {
    const std::uint32_t p = network_.fresh();
    const bool continues = prepare(network_.packet(p), cpu, network_.inside() + 1);
    network_.inject(cpus_[cpu], p);
    if (continues) plan(cpu);
  }

  FlitNetwork network_;
  std::priority_queue<Birth, std::vector<Birth>, std::greater<>> births_;
};

}  // namespace

json run_traffic(const Graph& graph, const Routing& routing, const RouterRules& rules, const Table& workload,
                 std::uint64_t seed) {
  const Workload requested = workload_of(workload, rules);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == EndpointKind::cpu) cpus.push_back(e);
  if (cpus.empty()) workload.refuse("pattern", "a machine without CPUs", "at least one");
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(cpus.size())));
  if (requested.pattern == Pattern::transpose && side * side != cpus.size())
    workload.refuse("pattern", "transpose on " + std::to_string(cpus.size()) + " CPUs", "a square number of CPUs");
  for (std::uint32_t r = 0; rules.exclusive && r < graph.routers(); ++r) {
    if (graph.is_bus(r))
      throw UsageError("router.channel_sharing", "found \"exclusive\" with a node.bus", "packets, or no bus");
    if (const std::uint32_t ports = graph.first_output[r + 1] - graph.first_output[r]; ports > kMaxFlitPorts)
      throw UsageError("router.channel_sharing",
                       "found \"exclusive\" with a router of " + std::to_string(ports) + " ports",
                       "packets, or at most " + std::to_string(kMaxFlitPorts) + " ports");
  }
  if (rules.exclusive) return FlitLoop(graph, routing, rules, requested, std::move(cpus), seed).run();
  return PacketLoop(graph, routing, rules, requested, std::move(cpus), seed).run();
}

}  // namespace mm::model

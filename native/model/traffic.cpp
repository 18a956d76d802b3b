#include "traffic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "random.hpp"

namespace mm::model {

namespace {

/// After a load has proved too high: this many more deliveries show that it is not a deadlock.
constexpr std::uint64_t kDeliveriesToSee = 100;

enum class Pattern { uniform, hot_spot, transpose, complement, tornado, neighbour };

/// The destination of a packet from CPU `from`.
std::uint32_t destination(Pattern pattern, std::uint32_t from, std::uint32_t count, Draws& draws) {
  switch (pattern) {
    case Pattern::uniform:
      return static_cast<std::uint32_t>(draws.below(count));
    case Pattern::hot_spot:
      return 0;
    case Pattern::transpose: {
      const auto side = static_cast<std::uint32_t>(std::lround(std::sqrt(count)));
      return from / side + from % side * side;
    }
    case Pattern::complement:
      return count - 1 - from;
    case Pattern::tornado:
      return (from + (count - 1) / 2) % count;
    case Pattern::neighbour:
      return (from + 1) % count;
  }
  return 0;
}

/// The requested traffic.
struct Workload {
  Pattern pattern;
  double load;  ///< flits per CPU and cycle
  int flits;    ///< of a packet
  std::uint64_t warm, packets;
  bool poisson;
};

Workload workload_of(const Table& t, const RouterRules& rules) {
  Workload w{};
  w.pattern = static_cast<Pattern>(
      t.choice("pattern", {"uniform", "hot_spot", "transpose", "complement", "tornado", "neighbour"}));
  w.load = t.number("load", 1e-9, 1e3);
  w.flits = t.integer("packet_flits", 1, rules.buffer_flits, 1);
  w.warm = static_cast<std::uint64_t>(t.integer("warm_packets", 0, 1 << 30, 20000));
  w.packets = static_cast<std::uint64_t>(t.integer("packets", 1, 1 << 30, 100000));
  w.poisson = t.flag("poisson", false);
  return w;
}

/// Arrival times and destinations of the packets of one CPU.
class Source {
 public:
  Source(std::uint64_t seed, std::uint32_t cpu) : to(seed, 2ULL * cpu + 1), gap_(seed, 2ULL * cpu) {}
  /// Time of the next packet; `per_cycle`: packets per cycle.
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

class OpenLoop {
 public:
  OpenLoop(const Graph& graph, const Routing& routing, const RouterRules& rules, const Workload& workload,
           std::vector<std::uint32_t> cpus, std::uint64_t seed)
      : rules_(rules),
        workload_(workload),
        cpus_(std::move(cpus)),
        max_inside_(std::max<std::uint64_t>(200ULL * cpus_.size(), 100000)),
        calendar_(std::max(6, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rules.cycle))) - 1)),
        network_(graph, routing, rules, calendar_) {
    for (std::uint32_t c = 0; c < cpus_.size(); ++c) {
      sources_.emplace_back(seed, c);
      plan(c);
    }
  }

  json run() {
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
          deliver(event.with);
          break;
        default:
          if (!unstable_) send(target);
      }
    }
    if (calendar_.empty() && network_.inside() > 0)
      throw Failure("no progress: " + std::to_string(network_.inside()) +
                    " packets wait for each other: " + network_.waits());
    return result();
  }

 private:
  struct Mark {
    Time at = 0;
    std::uint64_t delivered = 0;
  };

  void plan(std::uint32_t cpu) {
    const double per_cycle = workload_.load / workload_.flits;  // packets
    calendar_.push(sources_[cpu].next(per_cycle, workload_.poisson, rules_.cycle), event_of(kFirstOfOthers, cpu), 0);
  }

  void deliver(std::uint32_t p) {
    const Packet& packet = network_.at(p);
    const Time tail = network_.tail_of(p, now_);
    if (unstable_) ++deliveries_since_;
    if (deliveries_since_ >= kDeliveriesToSee) stop_ = true;
    ++delivered_;
    if (packet.about) {
      latencies_.add(packet, tail);
      stop_ = latencies_.count == workload_.packets;
    }
    network_.release(p);
  }

  void send(std::uint32_t cpu) {
    const std::uint32_t p = network_.packet();
    Packet& packet = network_.at(p);
    packet.born = now_;
    packet.flits = static_cast<std::uint16_t>(workload_.flits);
    packet.target =
        cpus_[destination(workload_.pattern, cpu, static_cast<std::uint32_t>(cpus_.size()), sources_[cpu].to)];
    if (sent_ >= workload_.warm && measured_ < workload_.packets) {
      packet.about = 1;
      if (measured_++ == 0 && start_.at == 0) {
        latencies_.first_born = now_;
        start_ = {now_, delivered_};
      }
      if (measured_ == workload_.packets && end_.at == 0) end_ = {now_, delivered_};
    }
    ++sent_;
    network_.inject(cpus_[cpu], p, now_);
    if (network_.inside() > max_inside_ / 2 && !half_full_) {
      half_full_ = true;
      start_ = {now_, delivered_};
    }
    if (network_.inside() <= max_inside_) {
      plan(cpu);
      return;
    }
    // Arrivals exceed departures. Stop sending; a few more deliveries show that it is not a deadlock.
    unstable_ = true;
    if (end_.at == 0) end_ = {now_, delivered_};
    deliveries_since_ = 0;
  }

  json result() const {
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
                {"packet_hops", network_.packet_hops()},
                {"simulated_s", static_cast<double>(l.last_delivered - std::max<Time>(l.first_born, 0)) * 1e-12}};
  }

  const RouterRules& rules_;
  const Workload workload_;
  const std::vector<std::uint32_t> cpus_;
  const std::uint64_t max_inside_;  ///< limit of packets in the network, above which the load is too high
  Calendar calendar_;
  Network network_;
  std::vector<Source> sources_;
  Latencies latencies_;
  Mark start_, end_;  ///< of the window in which deliveries count
  std::uint64_t sent_ = 0, measured_ = 0, delivered_ = 0, deliveries_since_ = 0;
  Time now_ = 0;
  bool stop_ = false, half_full_ = false, unstable_ = false;
};

}  // namespace

json run_traffic(const Graph& graph, const Routing& routing, const RouterRules& rules, const Table& workload,
                 std::uint64_t seed) {
  const Workload requested = workload_of(workload, rules);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == EndpointKind::cpu) cpus.push_back(e);
  if (cpus.empty()) workload.refuse("pattern", "a machine without CPUs", "at least one");
  return OpenLoop(graph, routing, rules, requested, std::move(cpus), seed).run();
}

}  // namespace mm::model

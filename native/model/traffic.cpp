#include "traffic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "random.hpp"

namespace mm::model {

namespace {

/// After a load has proved too high: so many more deliveries show that it is not a deadlock.
constexpr std::uint64_t kDeliveriesToSee = 100;

enum class Pattern { uniform, hot_spot, transpose, complement, tornado, neighbour };

/// CPU `from` sends to the answer.
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

}  // namespace

json run_traffic(const Graph& graph, const Routing& routing, const RouterRules& rules, const Table& workload,
                 std::uint64_t seed) {
  const auto pattern = static_cast<Pattern>(
      workload.choice("pattern", {"uniform", "hot_spot", "transpose", "complement", "tornado", "neighbour"}));
  const double load = workload.number("load", 1e-9, 1e3);  // flits a CPU and cycle
  const int flits = workload.integer("packet_flits", 1, rules.buffer_flits, 1);
  const auto warm = static_cast<std::uint64_t>(workload.integer("warm_packets", 0, 1 << 30, 20000));
  const auto wanted = static_cast<std::uint64_t>(workload.integer("packets", 1, 1 << 30, 100000));
  const bool poisson = workload.flag("poisson", false);

  std::vector<std::uint32_t> cpus;
  for (std::uint32_t e = 0; e < graph.endpoints.size(); ++e)
    if (graph.endpoints[e].kind == EndpointKind::cpu) cpus.push_back(e);
  if (cpus.empty()) workload.refuse("pattern", "a machine without CPUs", "at least one");
  const auto count = static_cast<std::uint32_t>(cpus.size());

  Calendar calendar(std::max(6, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rules.cycle))) - 1));
  Network network(graph, routing, rules, calendar);
  const double per_cycle = load / flits;  // packets a CPU and cycle
  struct Source {
    Draws gap, to;
    double exact = 0;  // ps
  };
  std::vector<Source> sources(count);
  const auto advance = [&](std::uint32_t c) {
    Source& s = sources[c];
    if (poisson) {
      s.exact += -std::log(s.gap.unit()) / per_cycle * static_cast<double>(rules.cycle);
      return static_cast<Time>(std::llround(s.exact));
    }
    // Bernoulli a cycle: geometric gaps.
    const double cycles = per_cycle >= 1 ? 1 : std::floor(std::log(s.gap.unit()) / std::log1p(-per_cycle)) + 1;
    s.exact += cycles;
    return static_cast<Time>(s.exact) * rules.cycle;
  };
  for (std::uint32_t c = 0; c < count; ++c) {
    sources[c].gap = Draws(seed, 2ULL * c);
    sources[c].to = Draws(seed, 2ULL * c + 1);
    calendar.push(advance(c), event_of(kFirstOfOthers, c), 0);
  }

  std::uint64_t sent = 0, measured_sent = 0, done = 0, delivered = 0, deliveries_since = 0;
  std::uint64_t delivered_start = 0, delivered_end = 0;
  double sum = 0, sum2 = 0, hops = 0;
  Time first = -1, last = 0, window_start = 0, window_end = 0, now = 0;
  bool stop = false, half_full = false;
  const auto mark_start = [&] { window_start = now, delivered_start = delivered; };
  const auto mark_end = [&] { window_end = now, delivered_end = delivered; };
  const std::uint64_t most_inside = std::max<std::uint64_t>(200ULL * count, 100000);
  bool unstable = false;
  while (!calendar.empty() && !stop) {
    const Event event = calendar.pop();
    now = event.at;
    const std::uint32_t kind = event.what >> 28, target = event.what & 0x0fffffff;
    if (kind == kArrive) {
      network.arrive(event.with, target, now);
    } else if (kind == kArbitrate) {
      network.arbitrate(target, now);
    } else if (kind == kDeliver) {
      const Packet& packet = network.at(event.with);
      const Time tail = network.tail_of(event.with, now);
      if (unstable) ++deliveries_since;
      if (deliveries_since >= kDeliveriesToSee) stop = true;
      ++delivered;
      if (packet.about) {
        const auto latency = static_cast<double>(tail - packet.born);
        sum += latency;
        sum2 += latency * latency;
        hops += packet.hops;
        ++done;
        last = tail;
        stop = done == wanted;
      }
      network.release(event.with);
    } else if (!unstable) {
      const std::uint32_t p = network.packet();
      Packet& packet = network.at(p);
      packet.born = now;
      packet.flits = static_cast<std::uint16_t>(flits);
      packet.target = cpus[destination(pattern, target, count, sources[target].to)];
      if (sent >= warm && measured_sent < wanted) {
        packet.about = 1;
        if (measured_sent++ == 0 && window_start == 0) first = now, mark_start();
        if (measured_sent == wanted && window_end == 0) mark_end();
      }
      ++sent;
      network.inject(cpus[target], p, now);
      if (network.inside() > most_inside / 2 && !half_full) half_full = true, mark_start();
      if (network.inside() > most_inside) {
        // More comes than leaves. Nothing more is sent; a few more deliveries show that it is not a deadlock.
        unstable = true;
        if (window_end == 0) mark_end();
        deliveries_since = 0;
      } else {
        calendar.push(advance(target), event_of(kFirstOfOthers, target), 0);
      }
    }
  }
  if (calendar.empty() && network.inside() > 0)
    throw Failure("no progress: " + std::to_string(network.inside()) +
                  " packets wait for each other: " + network.waits());
  const double window = static_cast<double>((window_end > 0 ? window_end : now) - window_start);
  const double mean = done ? sum / static_cast<double>(done) : 0;
  return json{
      {"load", load},
      {"accepted", window > 0 ? static_cast<double>((window_end > 0 ? delivered_end : delivered) - delivered_start) *
                                    flits * static_cast<double>(rules.cycle) / window / count
                              : 0.0},
      {"unstable", unstable},
      {"latency_s", mean * 1e-12},
      {"latency_cycles", mean / static_cast<double>(rules.cycle)},
      {"latency_deviation_s",
       done > 1 ? std::sqrt(std::max(0.0, sum2 / static_cast<double>(done) - mean * mean)) * 1e-12 : 0.0},
      {"hops", done ? hops / static_cast<double>(done) : 0.0},
      {"packets", done},
      {"packet_hops", network.packet_hops()},
      {"simulated_s", static_cast<double>(last - std::max<Time>(first, 0)) * 1e-12}};
}

}  // namespace mm::model

#include "watch/canary.hpp"

#include <sched.h>

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::watch {

namespace {

constexpr std::size_t kBytes = 2u << 20;
constexpr int kChunks = 24, kLoads = 32;

}  // namespace

Walker::Walker(int node, bool bound, std::uint64_t seed) : arena_(memory_of_node(node, bound, kBytes)) {
  clock_info();  // calibrate now, not within a tick; raises Absent where times cannot be measured
  at_ = make_random_ring(arena_->data(), kBytes / kLineBytes, kLineBytes, seed);
  for (std::size_t b = 0; b < kBytes; b += kLineBytes) flush_line(arena_->data() + b);
}

double Walker::walk() {
  std::array<double, kChunks> latencies{};
  Link* p = at_;
  Link* const first = p;
  for (double& t : latencies) {
    const Ticks begin = ticks();
    for (int i = 0; i < kLoads; ++i) {
      p = p->next;
      asm volatile("" : "+r"(p));
    }
    t = seconds(ticks() - begin) / kLoads;
  }
  at_ = p;
  for (p = first; p != at_;) {
    Link* const next = p->next;
    flush_line(p);
    p = next;
  }
  std::nth_element(latencies.begin(), latencies.begin() + kChunks / 2, latencies.end());
  return latencies[kChunks / 2];
}

LoadedCurve::LoadedCurve(const json& points) {
  const auto invalid_points = [] {
    return Failure("--canary: points of [B/s, low, middle, high in s] are required, in ascending B/s");
  };
  if (!points.is_array()) throw invalid_points();
  for (const json& point : points) {
    if (!point.is_array() || point.size() != 4) throw invalid_points();
    for (const json& number : point)
      if (!number.is_number()) throw invalid_points();
    const double rate = point[0], low = point[1], middle = point[2], high = point[3];
    if (!(low > 0 && low <= middle && middle <= high && rate >= 0) || (!traffic_.empty() && rate <= traffic_.back()))
      throw invalid_points();
    traffic_.push_back(rate);
    low_.push_back(low);
    middle_.push_back(middle);
    high_.push_back(high);
  }
  // Latency does not fall with traffic: where the measured curve falls, it is noise.
  for (std::vector<double>* curve : {&low_, &middle_, &high_})
    for (std::size_t i = 1; i < curve->size(); ++i) (*curve)[i] = std::max((*curve)[i], (*curve)[i - 1]);
}

LoadedCurve::Estimate LoadedCurve::traffic(double low, double middle, double high) const {
  const auto traffic_at = [&](const std::vector<double>& curve, double latency) {
    if (latency <= curve.front()) return traffic_.front();
    for (std::size_t i = 1; i < curve.size(); ++i)
      if (latency < curve[i])
        return traffic_[i - 1] + (traffic_[i] - traffic_[i - 1]) * (latency - curve[i - 1]) / (curve[i] - curve[i - 1]);
    return traffic_.back();
  };
  // From the least traffic whose band reaches the lower bound to the most whose band starts below the upper one.
  return {traffic_at(high_, low), traffic_at(middle_, middle), traffic_at(low_, high)};
}

namespace {

struct PaceSample {
  double moved;
  std::vector<double> latencies;
};

PaceSample measure(Walker& walker, PacedTeam& team, double pace, double seconds) {
  team.pace(pace);
  nap(0.1);
  PaceSample step{0, {}};
  const double begin = wall_s(), moved_before = team.moved();
  while (wall_s() - begin < seconds) {
    step.latencies.push_back(walker.walk());
    nap(0.005);
  }
  step.moved = (team.moved() - moved_before) / (wall_s() - begin);
  return step;
}

}  // namespace

json calibrate(const Host& host, int steps, double seconds) {
  if (!can_flush()) throw Absent("cannot flush cache lines on this processor", "");
  json nodes = json::object(), shows_traffic = json::object();
  const bool bound = host.nodes.size() > 1;
  cpu_set_t initial_cpus;
  sched_getaffinity(0, sizeof initial_cpus, &initial_cpus);
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    const std::vector<int> cpus = usable_cpus(host, n, initial_cpus);
    if (cpus.size() < 2) continue;  // no CPU is left to generate traffic
    cpu_set_t first_cpu{};
    CPU_SET(static_cast<std::size_t>(cpus.front()), &first_cpu);
    sched_setaffinity(0, sizeof first_cpu, &first_cpu);
    Walker walker(host.nodes[n], bound, 777 + n);
    PacedTeam team({cpus.begin() + 1, cpus.end()}, host.nodes[n], bound, PacedAccess::read);
    const double max_rate = measure(walker, team, 1e15, std::min(seconds, 0.5)).moved;
    // Measure all steps in several rounds, so that drift affects all of them alike.
    constexpr int kRounds = 4;
    struct StepRounds {
      double moved = 0;
      std::vector<double> medians;
    };
    std::vector<StepRounds> rounds_by_step(static_cast<std::size_t>(steps) + 1);
    for (int round = 0; round < kRounds; ++round)
      for (int i = 0; i <= steps; ++i) {
        const int k = round % 2 == 0 ? i : steps - i;
        PaceSample step = measure(walker, team, k == steps ? 1e15 : max_rate * k / steps, seconds / kRounds);
        StepRounds& rounds = rounds_by_step[static_cast<std::size_t>(k)];
        rounds.moved += step.moved / kRounds;
        std::nth_element(step.latencies.begin(),
                         step.latencies.begin() + static_cast<std::ptrdiff_t>(step.latencies.size() / 2),
                         step.latencies.end());
        rounds.medians.push_back(step.latencies[step.latencies.size() / 2]);
      }
    sched_setaffinity(0, sizeof initial_cpus, &initial_cpus);
    json points = json::array();
    double last = -1;
    for (StepRounds& step : rounds_by_step) {
      if (step.moved <= last) continue;
      std::sort(step.medians.begin(), step.medians.end());
      // The band is the spread between rounds: within one round the median is known far better, but that does not
      // reflect the error of an estimate minutes later.
      points.push_back({step.moved, step.medians.front(),
                        (step.medians[kRounds / 2 - 1] + step.medians[kRounds / 2]) / 2, step.medians.back()});
      last = step.moved;
    }
    const std::string key = std::to_string(host.nodes[n]);
    shows_traffic[key] = LoadedCurve(points).shows_traffic();
    nodes[key] = points;
  }
  if (nodes.empty()) throw Absent("a node with two or more CPUs is required: one generates traffic, one measures", "");
  return {{"nodes", nodes}, {"tells", shows_traffic}};
}

}  // namespace mm::watch

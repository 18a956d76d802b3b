/// The canary, for machines without memory counters: on every memory node a few loads that miss all caches, and a chain
/// of dependent additions. The loads show memory-bandwidth contention; the additions show the clock rate of the CPU.
/// With a curve of this machine (`--calibrate`), the latency of the loads yields an estimate of the traffic of others.
#include "watch/canary.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "watch/traffic/paced.hpp"

namespace mm::watch {
namespace {

constexpr std::uint64_t kAdds = 16000;  // 5 µs at 3 GHz
constexpr std::size_t kKept = 32;       // walks per estimate: eight seconds at four walks a second

class CanarySource : public Source {
 public:
  void open(const Host& host, Board& board) override {
    host_ = &host;
    if (!host.live) {
      board.absent("node.latency", "a recorded tree has no memory to measure");
      return;
    }
    if (!can_flush()) {
      board.absent("node.latency", "cannot flush cache lines on this processor");
      return;
    }
    nodes_.resize(host.nodes.size());
    for (std::size_t n = 0; n < host.nodes.size(); ++n) try {
        nodes_[n].walker = std::make_unique<Walker>(host.nodes[n], host.nodes.size() > 1, 12345 + n);
      } catch (const std::exception& error) {
        board.absent("node.latency:node " + std::to_string(host.nodes[n]), error.what());
      }
    latency_ =
        board.add({"node.latency", "s", "latency of a load that misses all caches, by a canary on a CPU of the node"});
    clock_ = board.add({"node.clock", "Hz", "rate of dependent additions on a CPU of the node, by a canary"});
    // With counters of the controllers, no estimate is needed.
    if (board.find("memory.busy") == kNone) open_estimate(host, board);
  }

  bool has_parts() const override { return true; }

  void sample_part(Board& board, double, std::size_t part) override {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      Node& node = nodes_[n];
      if (host_->part_of[n] != part || !node.walker) continue;
      const double latency = node.walker->walk();
      node.cpu = sched_getcpu();
      board.set(latency_, n, latency);
      board.set(clock_, n, clock_rate());
      if (!node.curve) continue;
      node.walks[node.walked++ % kKept] = latency;
    }
  }

  void sample(Board& board, double) override {
    for (std::size_t c = 0; c < node_of_memory_.size(); ++c) {
      if (node_of_memory_[c] == kNone) continue;
      Node& node = nodes_[node_of_memory_[c]];
      if (!node.curve || node.walked < 8) continue;
      const std::size_t count = std::min(node.walked, kKept);
      std::array<double, kKept> sorted = node.walks;
      std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
      const auto half_width =
          static_cast<std::size_t>(0.98 * std::sqrt(static_cast<double>(count))) + 1;  // 95 % of the median
      const auto estimate = node.curve.traffic(sorted[count / 2 - std::min(half_width, count / 2)], sorted[count / 2],
                                               sorted[std::min(count / 2 + half_width, count - 1)]);
      const double factor = own_traffic_factor(board, node_of_memory_[c], node);
      board.set(moved_, c, estimate.middle * factor);
      board.set(moved_ + 1, c, estimate.low * factor);
      board.set(moved_ + 2, c, estimate.high * factor);
      for (const auto& [metric, value] :
           {std::pair{pressure_, estimate.middle}, {pressure_ + 1, estimate.low}, {pressure_ + 2, estimate.high}})
        board.set(metric, c, std::min(1.0, value * factor / node.max_traffic));
    }
  }

  double min_period() const override { return 0.25; }

 private:
  struct Node {
    std::unique_ptr<Walker> walker;
    LoadedCurve curve;
    double max_traffic = 0;  ///< traffic at a pressure of 1, B/s
    std::array<double, kKept> walks{};
    std::size_t walked = 0;
    int cpu = -1;  ///< CPU of the last walk
    double factor = 1;
  };

  void open_estimate(const Host& host, Board& board) {
    const json& calibration = host.canary;
    if (!calibration.is_object()) {
      board.absent("memory.pressure", "the canary was not calibrated on this machine", "meshmark watch --calibrate");
      return;
    }
    const json nodes = calibration.value("nodes", json::object());
    node_of_memory_.assign(board.components("memory"), kNone);
    for (std::size_t c = 0; c < node_of_memory_.size(); ++c) {
      const auto n = board.component("memory", c).value("node", std::size_t{kNone});
      if (n >= nodes_.size()) continue;
      const std::string key = std::to_string(host.nodes[n]);
      if (!nodes.contains(key)) {
        board.absent("memory.pressure:memory " + key, "the canary was not calibrated on this node",
                     "meshmark watch --calibrate");
        continue;
      }
      nodes_[n].curve = LoadedCurve(nodes.at(key));
      if (!nodes_[n].curve.shows_traffic()) {
        board.absent("memory.pressure:memory " + key,
                     "traffic did not change the canary's latency during calibration: the CPUs here cannot saturate "
                     "this memory");
        nodes_[n].curve = {};
        continue;
      }
      node_of_memory_[c] = n;
      nodes_[n].max_traffic = nodes_[n].curve.max_traffic();
      if (const json& a = host.sustained; a.is_object() && a.contains("memory") && a.at("memory").contains(key))
        for (const json& point : a.at("memory").at(key))
          nodes_[n].max_traffic = std::max(nodes_[n].max_traffic, point.at(1).get<double>());
    }
    const std::string full_share = "sustained bandwidth of this memory";
    moved_ = add_with_interval(
        board, {"memory.moved", "B/s", "traffic of others, estimated from the canary's latency", "", true});
    pressure_ = add_with_interval(
        board, {"memory.pressure", "1", "traffic of others, estimated from the canary's latency", full_share, true});
    board.set_header("use", {{"memory", "memory.pressure"}});
  }

  static std::size_t add_with_interval(Board& board, ComponentMetric metric) {
    const std::string name = metric.name;
    const std::size_t first = board.add(metric);
    metric.name = name + "_low";
    metric.what += ", lower bound of the 95 % interval";
    board.add(metric);
    metric.name = name + "_high";
    metric.what.replace(metric.what.find("lower"), 5, "upper");
    board.add(metric);
    return first;
  }

  /// Returns the factor for the canary's own CPU, whose other traffic pauses while the canary walks. Assumes that this
  /// CPU's traffic resembles the traffic of the other CPUs, in proportion to the time that it is busy.
  double own_traffic_factor(const Board& board, std::size_t n, Node& node) const {
    const std::size_t busy = board.find("cpu.busy");
    if (busy == kNone) return 1;
    double all = 0, own_share = 0;
    for (std::size_t i = 0; i < host_->cpus.size(); ++i) {
      const double share = board.at(busy, i);
      if (host_->node_of[i] != static_cast<int>(n) || !(share >= 0)) continue;
      all += share;
      if (host_->cpus[i] == node.cpu) own_share = share;
    }
    const double current_factor = all - own_share > 0.05 ? all / (all - own_share) : 1;
    node.factor += (std::min(current_factor, 4.0) - node.factor) * 0.1;  // as slow as the series of walks
    return node.factor;
  }

  /// Returns the best of three runs: interrupts only slow a run down.
  static double clock_rate() {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Ticks begin = ticks();
      std::uint64_t sum = dependent_adds(kAdds);
      asm volatile("" : "+r"(sum));
      best = std::min(best, seconds(ticks() - begin));
    }
    return static_cast<double>(kAdds) / best;
  }

  const Host* host_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<std::size_t> node_of_memory_;
  std::size_t latency_ = 0, clock_ = 0, moved_ = 0, pressure_ = 0;
};

const Registration<CanarySource> canary_source(
    "canary", "memory latency and clock rate by short measurements, for machines without counters");

}  // namespace
}  // namespace mm::watch

/// A canary where no counter exists: a few loads that miss every cache, on every memory node, and a run of dependent
/// additions. How long the loads take says how crowded the memory is; how long the additions take, how fast the CPU
/// runs.
///
/// The lines it has walked are flushed afterwards, so the next walk goes to memory whatever the size of the caches, and
/// all of them lie in one huge page, so it measures no address translation. About 0.2 ms a node and walk.
#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "base/memory.hpp"
#include "kernels/chase.hpp"
#include "watch/source.hpp"

namespace mm::watch {
namespace {

constexpr std::size_t kLine = 64, kBytes = 2u << 20;
constexpr int kChunks = 24, kLoads = 32;  // a chunk's mean is one value; their median is the answer
constexpr std::uint64_t kAdds = 16000;    // 5 µs at 3 GHz

bool flush(const void* line) {
#if defined(__x86_64__)
  _mm_clflush(line);
  return true;
#elif defined(__aarch64__)
  asm volatile("dc civac, %0" ::"r"(line) : "memory");
  return true;
#else
  (void)line;
  return false;
#endif
}

class Canary : public Source {
 public:
  void open(const Host& host, Board& board) override {
    if (!host.live) {
      board.absent("node.latency", "a recorded tree has no memory to ask");
      return;
    }
    if (int probe = 0; !flush(&probe)) {
      board.absent("node.latency", "no way to flush a line is known for this processor");
      return;
    }
    part_of_ = host.part_of;
    for (std::size_t n = 0; n < host.nodes.size(); ++n) {
      Node node;
      try {
        MemoryRequest request;
        request.bytes = kBytes;
        request.pages = Pages::thp;
        request.policy = host.nodes.size() > 1 ? Policy::node : Policy::local;
        request.node = host.nodes.size() > 1 ? host.nodes[n] : -1;
        node.arena = Arena::make(request);
        node.at = make_random_ring(node.arena->data(), kBytes / kLine, kLine, 12345 + n);
        for (std::size_t b = 0; b < kBytes; b += kLine) flush(node.arena->data() + b);
      } catch (const std::exception& why) {
        board.absent("node.latency:node " + std::to_string(host.nodes[n]), why.what());
      }
      nodes_.push_back(std::move(node));
    }
    clock_info();  // calibrated now, not within a tick
    latency_ = board.add({"node.latency", "s", "a load that misses every cache, by a canary from a CPU of the node"});
    clock_ = board.add({"node.clock", "Hz", "rate of dependent additions on a CPU of the node, by a canary"});
  }

  bool has_parts() const override { return true; }
  void sample_part(Board& board, double, std::size_t part) override {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (part_of_[n] != part || !nodes_[n].arena) continue;
      board.set(latency_, n, walk(nodes_[n]));
      board.set(clock_, n, run());
    }
  }
  void sample(Board&, double) override {}

  double least_period() const override { return 0.25; }

 private:
  struct Node {
    std::shared_ptr<Arena> arena;
    Link* at = nullptr;
  };

  static double walk(Node& node) {
    std::array<double, kChunks> took{};
    Link* p = node.at;
    Link* const first = p;
    for (double& t : took) {
      const Ticks begin = ticks();
      for (int i = 0; i < kLoads; ++i) {
        p = p->next;
        asm volatile("" : "+r"(p));
      }
      t = seconds(ticks() - begin) / kLoads;
    }
    node.at = p;
    for (p = first; p != node.at;) {
      Link* const next = p->next;
      flush(p);
      p = next;
    }
    std::nth_element(took.begin(), took.begin() + kChunks / 2, took.end());
    return took[kChunks / 2];
  }

  /// The best of three: an interrupt only makes it slower.
  static double run() {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const Ticks begin = ticks();
      std::uint64_t kept = dependent_adds(kAdds);
      asm volatile("" : "+r"(kept));
      best = std::min(best, seconds(ticks() - begin));
    }
    return static_cast<double>(kAdds) / best;
  }

  std::vector<Node> nodes_;
  std::vector<std::size_t> part_of_;
  std::size_t latency_ = 0, clock_ = 0;
};

const Registration<Canary> here("canary",
                                "memory latency and clock rate by a short measurement, where no counter exists");

}  // namespace
}  // namespace mm::watch

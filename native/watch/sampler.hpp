#pragma once
/// The sampling loop: samples all sources at every tick, and writes a frame.
#include <atomic>
#include <exception>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "watch/source.hpp"

namespace mm::watch {

struct SamplerSettings {
  std::string root;                  ///< a recorded tree; empty: this machine
  std::vector<std::string> sources;  ///< names; empty: all
  std::vector<std::string> without;  ///< names of sources to omit
  double period_s = 1;
  double duration_s = 0;         ///< 0: until stopped
  double hold_s = 0;             ///< length of a batch of frames, so that a recorder wakes less often
  json sustained;                ///< sustained bandwidths from a survey of this machine
  json canary;                   ///< calibration of the canary
  PerfKernel* kernel = nullptr;  ///< for opening counters; default: this machine's
};

/// Writes lines to a reader that may be slow or gone. Frames that the reader does not accept in time are dropped and
/// counted.
class Outlet {
 public:
  explicit Outlet(int descriptor);
  /// Writes whole lines. Returns false if it drops them, with all their `frames`, because earlier lines are pending.
  bool line(const std::string& text, std::uint64_t frames = 1);
  void flush();  ///< waits until the reader has everything or is gone
  bool gone() const { return gone_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void push();
  int descriptor_;
  std::string pending_;
  std::uint64_t dropped_ = 0;
  bool gone_ = false;
};

class Sampler {
 public:
  explicit Sampler(const SamplerSettings& settings);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  json header() const;
  const Host& host() const { return host_; }
  /// Returns the components and metrics, with the values of the last sample.
  const Board& board() const { return board_; }
  /// Samples all sources that are due. The first call stores initial values of counters.
  void sample(double now);
  /// Samples the initial values, writes the header, then frames until the duration ends, `stop` is set or the reader is
  /// gone.
  void run(Outlet& out, const std::atomic<bool>& stop);

 private:
  struct Opened {
    const char* name;
    std::unique_ptr<Source> source;
    std::size_t first, last;  ///< range of its metrics
    double due = 0;
    bool now = false;  ///< sampled at this tick
  };
  /// The thread of a node. At a tick, it samples that node's part of the sources on the node's CPUs.
  struct Part {
    std::binary_semaphore go{0};
    std::exception_ptr error;
    std::thread thread;
  };
  void start_parts();
  void stop_parts();
  void sample_part(std::size_t part);

  SamplerSettings settings_;
  Board board_;
  Host host_;
  std::vector<Opened> sources_;
  std::vector<std::unique_ptr<Part>> parts_;  ///< from the second part; the main thread samples the first
  std::counting_semaphore<> done_{0};
  double now_ = 0;
  bool stopping_ = false;
  std::string started_;
};

}  // namespace mm::watch

#pragma once
/// The loop: all sources at every tick, a frame of JSON Lines after it.
#include <atomic>
#include <exception>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "source.hpp"

namespace mm::watch {

struct Settings {
  std::string root;                  ///< a recorded tree; empty: this machine
  std::vector<std::string> sources;  ///< names; none: all
  std::vector<std::string> without;  ///< names of those that are left out
  double period_s = 1;
  double duration_s = 0;     ///< 0: until it is told to stop
  double hold_s = 0;         ///< frames are written this often: a recorder need not wake for each
  json attained;             ///< bandwidths that a survey reached on this machine
  json canary;               ///< what a calibration of the canary found
  Kernel* kernel = nullptr;  ///< that counters are opened with; by default this machine's
};

/// Lines for a reader that may be slow or gone: a frame that it cannot take is dropped and counted, never waited for.
class Outlet {
 public:
  explicit Outlet(int descriptor);
  /// Writes whole lines; false: they are dropped, all `frames` of them, because older ones are not out yet.
  bool line(const std::string& text, std::uint64_t frames = 1);
  void flush();  ///< waits until the reader has all, or is gone
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
  explicit Sampler(const Settings& settings);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  json header() const;
  const Host& host() const { return host_; }
  /// Runs until the duration is over, `stop` is set or the reader is gone.
  void run(Outlet& out, const std::atomic<bool>& stop);

 private:
  struct Opened {
    const char* name;
    std::unique_ptr<Source> source;
    std::size_t first, last;  ///< its metrics
    double due = 0;
    bool now = false;  ///< sampled at this tick
  };
  /// The thread of a node: it waits for a tick and asks the sources for their part on that node's CPUs.
  struct Part {
    std::binary_semaphore go{0};
    std::exception_ptr wrong;
    std::thread thread;
  };
  void start_parts();
  void stop_parts();
  void sample(double now);
  void sample_part(std::size_t part);

  Settings settings_;
  Board board_;
  Host host_;
  std::vector<Opened> sources_;
  std::vector<std::unique_ptr<Part>> parts_;  ///< of the second part and on; the first is the main thread's
  std::counting_semaphore<> done_{0};
  double now_ = 0;
  bool over_ = false;
  std::string started_;
};

}  // namespace mm::watch

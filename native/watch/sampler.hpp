#pragma once
/// The loop: all sources at every tick, a frame of JSON Lines after it.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "source.hpp"

namespace mm::watch {

struct Settings {
  std::string root;                  ///< a recorded tree; empty: this machine
  std::vector<std::string> sources;  ///< names; none: all
  double period_s = 1;
  double duration_s = 0;  ///< 0: until it is told to stop
  double hold_s = 0;      ///< frames are written this often: a recorder need not wake for each
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
  json header() const;
  /// Runs until the duration is over, `stop` is set or the reader is gone.
  void run(Outlet& out, const std::atomic<bool>& stop);

 private:
  struct Opened {
    const char* name;
    std::unique_ptr<Source> source;
    std::size_t first, last;  ///< its metrics
    double due = 0;
  };
  void sample(double now);

  Settings settings_;
  Board board_;
  Host host_;
  std::vector<Opened> sources_;
  std::string started_;
};

}  // namespace mm::watch

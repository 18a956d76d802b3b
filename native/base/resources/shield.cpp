#include "base/resources/shield.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.hpp"

namespace mm {
namespace {

constexpr double kRealTimeShare = 0.7;  // share of wall time; well below the Linux kernel's throttle at 0.95

}  // namespace

/// Occupies unused CPUs at real-time priority while a burst runs.
class Shield::Holder {
 public:
  explicit Holder(const std::vector<int>& cpus) {
    threads_.reserve(cpus.size());
    try {
      for (int cpu : cpus) threads_.emplace_back([this, cpu] { hold(cpu); });
    } catch (...) {
      end();  // destroying a joinable thread would terminate the process
      throw;
    }
  }
  ~Holder() { end(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  void end() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }
  void hold(int cpu) {
    try {
      pin(cpu);
    } catch (const Failure&) {
      return;  // the CPU went offline: there is nothing to occupy
    }
    sched_param param{};
    param.sched_priority = 5;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) != 0) return;
    while (!stop_.load(std::memory_order_relaxed)) {
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
  }
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

Shield::Shield(Team& team, const std::string& kind, const std::vector<int>& cpus)
    : team_(team), real_time_(kind != "off" && team.real_time(true)) {
  if (real_time_ && kind == "hold") {
    std::vector<int> other_cpus;
    for (const int cpu : cpus)
      if (std::find(team.cpus().begin(), team.cpus().end(), cpu) == team.cpus().end()) other_cpus.push_back(cpu);
    holder_ = std::make_unique<Holder>(other_cpus);
  }
  from_s_ = wall_s();
}

Shield::~Shield() { release(); }

double Shield::release() {
  if (released_) return 0;
  released_ = true;
  holder_.reset();
  team_.real_time(false);
  return real_time_ ? wall_s() - from_s_ : 0;
}

void RealTimeShare::start() { window_s_ = wall_s(); }

void RealTimeShare::ran(double real_time_s) {
  spent_s_ += real_time_s;
  if (real_time_s > 0 && spent_s_ <= 0.1) return;
  const double pause_s = spent_s_ / kRealTimeShare - (wall_s() - window_s_);
  if (real_time_s > 0 && pause_s > 0) usleep(static_cast<useconds_t>(pause_s * 1e6));
  spent_s_ = 0;
  window_s_ = wall_s();
}

}  // namespace mm

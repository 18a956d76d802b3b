#pragma once
/// Runs a plan: sets up all programs, releases each at its time, samples them, and terminates all of them in the end.
#include <string_view>

#include "load/scenario/canary.hpp"
#include "load/scenario/job.hpp"
#include "load/scenario/journal.hpp"
#include "load/scenario/plan.hpp"
#include "load/scenario/processes/processes.hpp"
#include "load/scenario/processes/spawn.hpp"
#include "load/scenario/run_clock.hpp"

namespace mm::load {

/// Times of samples on a fixed grid, so that a late sample does not delay the next.
class SampleGrid {
 public:
  SampleGrid(double begin_s, double every_s) : every_s_(every_s), next_s_(begin_s + every_s) {}
  double next_s() const { return next_s_; }
  bool due(double now_s) const { return now_s >= next_s_; }
  /// Moves on to the next sample; `now_s` is the time after the last one.
  void advance(double now_s);

 private:
  double every_s_, next_s_;
};

class Supervisor {
 public:
  /// `signals`: a signalfd of SIGCHLD and of the signals that stop the run. `notify`: as for Journal.
  Supervisor(const RunPlan& plan, const Inherited& inherited, int signals, int notify);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Returns the exit status: 0; 1 if a program failed; 128 + the signal that stopped the run.
  int run();

 private:
  void canary_for(const char* when, double duration_s);
  void start(std::size_t job);
  void set_up();
  void wait_for_gates();
  void set_ready(Job& job, json more = json::object());
  void supervise();
  void release(std::size_t job);
  /// Releases due programs; returns the time of the next release.
  double release_due(double now_s);
  void wait_until(double until_s);
  bool handle_status(Job& job);
  void handle_line(Job& job, std::string_view line);
  void handle_signals();
  void reap();
  void handle_exit(Job& job, int wait_status, const rusage& use, double at_s);
  void fail(Job& job, const std::string& reason);
  void terminate_all();
  void kill_all() noexcept;
  void write_end(double cost_s, double elapsed_s, const json& machine) const;

  const RunPlan& plan_;
  const Inherited& inherited_;
  const int signals_;
  RunClock clock_;
  Journal journal_;
  Jobs jobs_;
  Processes processes_;
  Canary canary_;
  ControlGroups groups_;
  double start_s_ = 0, max_late_s_ = 0;
  bool stopping_ = false, timed_out_ = false;
  int stopped_by_ = 0;  ///< signal that stopped the run; 0 if no signal did
};

}  // namespace mm::load

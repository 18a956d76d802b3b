#pragma once
/// The lines of a run on standard output, each with its time.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "base/resources/host.hpp"
#include "load/scenario/processes/spawn.hpp"
#include "load/scenario/processes/threads.hpp"
#include "load/scenario/run_clock.hpp"

namespace mm::load {

/// All methods throw Failure if they cannot write.
class Journal {
 public:
  /// `notify`: descriptor that receives a byte for every event, so that a reader need not poll the journal; -1: none.
  Journal(const RunClock& clock, int notify) : clock_(clock), notify_(notify) {}

  void header(const RunPlan& plan, const Inherited& inherited) const;
  /// `about`: the program concerned; null: the event concerns the run.
  void event(const char* name, const Start* about, const json& more = json::object());
  /// Forwards a line of a synthetic program with the program's name and copy in the scenario. Windows are numerous, so
  /// only their prefix is parsed.
  void window(const Start& program, std::string_view line) const;
  void of_program(const char* type, const Start& program, json line) const;
  /// Writes the totals of a thread as soon as it ends, so that the journal of a killed run is as complete as possible.
  void thread_total(const Start& program, const Thread& thread, const Use& use) const;

 private:
  std::string prefix(const char* type, const Start& program) const;
  const RunClock& clock_;
  int notify_;
};

/// Returns whether a line of a program is a window: its work within one interval.
bool is_window(std::string_view line);

/// One sample: a line with the threads that changed since their last line.
class SampleLine {
 public:
  explicit SampleLine(double at_s);
  /// Adds the changes since the thread's last line; adds nothing for a thread that slept.
  void add(Thread& thread);
  /// Writes the line unless it is empty.
  void write();

 private:
  std::string text_;
  std::size_t empty_;
};

/// Returns the busy and the stolen time of each CPU between two samples.
json machine_use(const CpuTimes& before, const CpuTimes& after);

}  // namespace mm::load

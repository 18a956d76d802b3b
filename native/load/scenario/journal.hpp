#pragma once
/// The lines that a run writes on standard output, each with the time it is about.
#include <cstdint>
#include <string>
#include <string_view>

#include "host.hpp"
#include "json.hpp"
#include "load/scenario/run_clock.hpp"
#include "load/scenario/spawn.hpp"
#include "load/scenario/threads.hpp"

namespace mm::load {

/// All methods throw Failure where nothing can be written.
class Journal {
 public:
  /// `notify`: descriptor that gets a byte with every event, so that a reader need not poll the journal; -1: none.
  Journal(const RunClock& clock, int notify) : clock_(clock), notify_(notify) {}

  void header(const RunPlan& plan, const Inherited& inherited) const;
  /// `about`: the program that it concerns; null: the run.
  void event(const char* name, const Start* about, const json& more = json::object());
  /// Passes on a line of a synthesised program, with the program's name and copy in the scenario. Of windows, which
  /// are many, only the beginning is parsed.
  void window(const Start& program, std::string_view line) const;
  void of_program(const char* type, const Start& program, json line) const;
  /// What a thread came to, as soon as it has ended: the journal of a run that is killed then holds as much as it can.
  void thread_total(const Start& program, const Thread& thread, const Use& use) const;

 private:
  std::string beginning(const char* type, const Start& program) const;
  const RunClock& clock_;
  int notify_;
};

/// Whether a line of a program is a window: what it did within one interval.
bool is_window(std::string_view line);

/// One sample: a line with those threads that did something since their last one.
class SampleLine {
 public:
  explicit SampleLine(double at_s);
  /// What changed since the last line about it; nothing for a thread that slept.
  void add(Thread& thread);
  /// Nothing where no thread was added.
  void write();

 private:
  std::string text_;
  std::size_t empty_;
};

/// Busy and stolen time of each CPU between two readings.
json machine_use(const CpuTimes& before, const CpuTimes& after);

}  // namespace mm::load

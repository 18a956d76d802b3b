#pragma once
/// Events that the Linux kernel counts (perf_event_open) per CPU or per thread, read in groups, and the named events
/// available for any thread.
#include <linux/perf_event.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mm::perf {

/// An event as perf_event_open encodes it; `scale` converts one count to the event's unit.
struct Encoding {
  std::uint64_t config[3] = {};
  double scale = 1;
};

/// System calls of perf events; tests substitute their own.
class PerfKernel {
 public:
  virtual ~PerfKernel() = default;
  /// Opens an event on one CPU (-1: the calling thread on any CPU) in the group of `leader` (-1: as a leader). Returns
  /// a descriptor, or -errno.
  virtual int open(perf_event_attr& attributes, int cpu, int leader) = 0;
  /// Returns the bytes read, or -1.
  virtual long read(int descriptor, void* into, std::size_t bytes) = 0;
  virtual void close(int descriptor) = 0;
};
PerfKernel& real_kernel();

/// Events of one PMU on one CPU, or of the thread that opens them (-1). They form one group if they fit, otherwise
/// several. Each group is read in one call with its own times, so that rates refer to the time in which it counted.
class PmuCounts {
 public:
  /// `user_only` excludes events inside the Linux kernel.
  PmuCounts(PerfKernel& kernel, std::uint32_t type, int cpu, const std::vector<Encoding>& events,
            bool user_only = false);
  ~PmuCounts();
  PmuCounts(const PmuCounts&) = delete;
  PmuCounts& operator=(const PmuCounts&) = delete;

  /// Opens all available events. Returns 0, or the errno of the first failure.
  int open();
  /// Reads all groups. Returns false if no group counted since the last call; then it reopens the events, at most once
  /// a second.
  bool read(double now);

  /// Returns the counts of an event between the last two calls of `read`, scaled and extrapolated to the full time; NaN
  /// if it did not count at all.
  double grown(std::size_t event) const { return events_[event].grown; }
  /// Returns the time in which the event's group was enabled, in s.
  double window(std::size_t event) const { return events_[event].window; }
  /// Returns the share of that time in which the events counted; below 1 if more events than counters share a PMU.
  double counted() const { return counted_; }
  bool has(std::size_t event) const { return events_[event].group >= 0; }
  int cpu() const { return cpu_; }

 private:
  struct Event {
    Encoding encoding;
    int group = -1;
    std::size_t place = 0;  ///< index in its group
    int descriptor = -1;
    std::uint64_t last = 0;
    double grown = 0, window = 0;
  };
  struct Group {
    int leader = -1;
    std::size_t size = 0;
    std::uint64_t enabled = 0, running = 0;
    bool has_baseline = false;
  };
  void close();

  PerfKernel& kernel_;
  std::uint32_t type_;
  int cpu_;
  bool user_only_;
  std::vector<Event> events_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> buffer_;
  double counted_ = 0, tried_ = 0;
};

/// Raises the soft limit of open files to the hard limit: each event is an open file, and the default limit of most
/// shells is too low for many threads.
void allow_many_events();

/// An event that can be counted per thread, defined alike on every machine.
struct ThreadEvent {
  std::string name;  ///< snake_case; the unit comes last unless it is a count
  std::string unit, meaning;
  std::uint32_t type;
  std::uint64_t config;
  double scale;
  int group;               ///< events with the same number are counted together
  bool in_kernel = false;  ///< it occurs only inside the Linux kernel
};

/// Returns all events that can be counted per thread, whether or not this machine supports them.
std::vector<ThreadEvent> thread_events();

/// The events that this process may count for its threads. The constructor tests each event by opening it.
class ThreadEvents {
 public:
  explicit ThreadEvents(PerfKernel& kernel = real_kernel());

  struct Lacking {
    std::vector<std::string> names;
    std::string reason, enable;
  };
  const std::vector<ThreadEvent>& had() const { return had_; }
  /// Returns the unavailable events, grouped by reason.
  const std::vector<Lacking>& lacking() const { return lacking_; }
  /// Returns whether only user-space events are counted, because the Linux kernel permits no others.
  bool user_only() const { return user_only_; }
  PerfKernel& kernel() const { return *kernel_; }

 private:
  PerfKernel* kernel_;
  std::vector<ThreadEvent> had_;
  std::vector<Lacking> lacking_;
  bool user_only_ = false;
};

/// Counts of the calling thread from `begin` to `end`. The same thread must call all members.
class ThreadCounts {
 public:
  explicit ThreadCounts(const ThreadEvents& events);
  void begin();
  void end();
  /// Returns the count of an available event, extrapolated to the full time; NaN if it never counted. `event` is its
  /// index in `ThreadEvents::had`.
  double of(std::size_t event) const;

 private:
  struct Place {
    std::size_t group, index;
  };
  std::vector<std::unique_ptr<PmuCounts>> groups_;
  std::vector<Place> places_;
};

}  // namespace mm::perf

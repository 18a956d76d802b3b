#pragma once
/// Events that the kernel counts (perf_event_open), of a CPU or of a thread, read as groups; and those that any thread
/// can be asked for by name.
#include <linux/perf_event.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mm::perf {

/// An event as the kernel wants it, and what one count of it means.
struct Encoding {
  std::uint64_t config[3] = {};
  double scale = 1;
};

/// The kernel, or in tests what stands for it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Opens an event that counts on one CPU (-1: the calling thread, wherever it is), in the group of `leader` (-1: it
  /// leads one). Returns a descriptor, or -errno.
  virtual int open(perf_event_attr& attributes, int cpu, int leader) = 0;
  /// Bytes read, or -1.
  virtual long read(int descriptor, void* into, std::size_t bytes) = 0;
  virtual void close(int descriptor) = 0;
};
Kernel& real_kernel();

/// Events of one PMU on one CPU, or of the thread that opens them (-1). They are opened as one group, and where it does
/// not fit as more; each group is read at once, with its own times, so that rates are over the time in which it
/// counted.
class Counts {
 public:
  /// `user_only`: what happens inside the kernel is not counted.
  Counts(Kernel& kernel, std::uint32_t type, int cpu, const std::vector<Encoding>& events, bool user_only = false);
  ~Counts();
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  /// Opens what can be had. Returns 0, or the errno of the first event that could not.
  int open();
  /// Reads all groups. False where nothing counted since the last reading: then it is opened anew, at most once a
  /// second.
  bool read(double now);

  /// Counts of an event since the last reading, times its scale, as if it had counted all the time; unknown where it
  /// did not count at all.
  double grown(std::size_t event) const { return events_[event].grown; }
  /// s in which the event's group was to count.
  double window(std::size_t event) const { return events_[event].window; }
  /// Share of that time in which it did: less than 1 where PMUs are shared by more events than they have counters.
  double counted() const { return counted_; }
  bool has(std::size_t event) const { return events_[event].group >= 0; }
  int cpu() const { return cpu_; }

 private:
  struct Event {
    Encoding encoding;
    int group = -1;
    std::size_t place = 0;  ///< in its group
    int descriptor = -1;
    std::uint64_t last = 0;
    double grown = 0, window = 0;
  };
  struct Group {
    int leader = -1;
    std::size_t size = 0;
    std::uint64_t enabled = 0, running = 0;
    bool seen = false;
  };
  void close();

  Kernel& kernel_;
  std::uint32_t type_;
  int cpu_;
  bool user_only_;
  std::vector<Event> events_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> buffer_;
  double counted_ = 0, tried_ = 0;
};

/// Each event is an open file, and many threads with a few each are more than most shells allow: takes what the hard
/// limit lets us have.
void allow_many_events();

/// An event that a thread is asked for, the same on every machine.
struct Event {
  std::string name;  ///< snake_case, unit last where it is not a number of times
  std::string unit, meaning;
  std::uint32_t type;
  std::uint64_t config;
  double scale;
  int group;               ///< counted at once with those of the same number
  bool in_kernel = false;  ///< it happens there alone
};

/// All events that a thread can be asked for, whether or not this machine counts them.
std::vector<Event> thread_events();

/// Which events the kernel lets this process count of its own threads. It is asked once, by opening each of them.
class ThreadEvents {
 public:
  explicit ThreadEvents(Kernel& kernel = real_kernel());

  struct Lacking {
    std::vector<std::string> names;
    std::string reason, enable;
  };
  const std::vector<Event>& had() const { return had_; }
  /// Those that cannot be counted, by reason.
  const std::vector<Lacking>& lacking() const { return lacking_; }
  /// The kernel's own work is left out: it lets this user count no more.
  bool user_only() const { return user_only_; }
  Kernel& kernel() const { return *kernel_; }

 private:
  Kernel* kernel_;
  std::vector<Event> had_;
  std::vector<Lacking> lacking_;
  bool user_only_ = false;
};

/// Counts of the thread that makes it, from `begin` to `end`, which that thread calls.
class ThreadCounts {
 public:
  explicit ThreadCounts(const ThreadEvents& events);
  void begin();
  void end();
  /// Of an event by its place among those that are had, as if it had counted all the time; NaN where it never did.
  double of(std::size_t event) const;

 private:
  struct Place {
    std::size_t group, index;
  };
  std::vector<std::unique_ptr<Counts>> groups_;
  std::vector<Place> places_;
};

}  // namespace mm::perf

#pragma once
/// Hardware (and the kernel's own) counters: PMUs of the event_source tree, and events of one CPU read as groups.
#include <linux/perf_event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "definitions.hpp"

namespace mm::watch {

/// A folder of /sys/bus/event_source/devices.
struct Pmu {
  std::string name, folder;
  std::uint32_t type = 0;
  std::vector<int> cpus;  ///< that its counters are read on; none: every CPU
};

/// All PMUs below a root, by name, those with numbers in the order of the numbers.
std::vector<Pmu> find_pmus(const std::string& root);

/// An event as the kernel wants it, and what one count of it means.
struct Encoding {
  std::uint64_t config[3] = {};
  double scale = 1;
};

/// `event=0x04,umask=0x3` by the bit fields of the PMU's format; none where a term is unknown or no number.
std::optional<Encoding> encode(const std::string& pmu_folder, std::string_view terms);
/// An event by its alias, or else by its terms.
std::optional<Encoding> encode(const std::string& pmu_folder, const EventDefinition& event);

/// The kernel, or in tests what stands for it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Opens an event that counts on one CPU, in the group of `leader` (-1: it leads one). Returns a descriptor, or
  /// -errno.
  virtual int open(perf_event_attr& attributes, int cpu, int leader) = 0;
  /// Bytes read, or -1.
  virtual long read(int descriptor, void* into, std::size_t bytes) = 0;
  virtual void close(int descriptor) = 0;
};
Kernel& real_kernel();

/// Events of one PMU on one CPU. They are opened as one group, and where it does not fit as more; each group is read at
/// once, with its own times, so that rates are over the time in which it counted.
class Counts {
 public:
  Counts(Kernel& kernel, std::uint32_t type, int cpu, const std::vector<Encoding>& events);
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
  std::vector<Event> events_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> buffer_;
  double counted_ = 0, tried_ = 0;
};

}  // namespace mm::watch

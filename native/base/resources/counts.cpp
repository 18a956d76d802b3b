#include "base/resources/counts.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/clock.hpp"

namespace mm::perf {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

constexpr std::uint64_t cache_event(std::uint64_t cache, std::uint64_t operation, std::uint64_t result) {
  return cache | operation << 8 | result << 16;
}

bool forbidden(int error) { return error == EACCES || error == EPERM; }

ThreadEvents::Lacking why_not(int error) {
  if (forbidden(error))
    return {{},
            "the Linux kernel does not permit this user to count events",
            "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=2"};
  if (error == ENOSYS) return {{}, "this Linux kernel has no perf_event_open, or a sandbox blocks it", ""};
  if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV || error == ENXIO || error == EINVAL)
    return {{}, "the processor's counters do not support this event here; hypervisors hide many", ""};
  return {{}, "the counter cannot be opened: " + std::generic_category().message(error), ""};
}

class RealKernel : public PerfKernel {
 public:
  int open(perf_event_attr& attributes, int cpu, int leader) override {
    const long descriptor =
        ::syscall(SYS_perf_event_open, &attributes, cpu < 0 ? 0 : -1, cpu, leader, PERF_FLAG_FD_CLOEXEC);
    return descriptor < 0 ? -errno : static_cast<int>(descriptor);
  }
  long read(int descriptor, void* into, std::size_t bytes) override { return ::read(descriptor, into, bytes); }
  void close(int descriptor) override { ::close(descriptor); }
};

}  // namespace

/// Events are grouped in pairs, because every processor has two programmable counters; processors with more counters
/// run the pairs concurrently, like one group. The Linux kernel accepts a group with more events than counters but
/// never counts it.
std::vector<ThreadEvent> thread_events() {
  return {
      {"cycles", "1", "processor cycles of the threads while they ran", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 1,
       0},
      {"instructions", "1", "instructions retired", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 1, 0},
      {"cache_references", "1", "accesses to the last-level cache, by the processor's own definition",
       PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES, 1, 1},
      {"cache_misses", "1", "accesses that the last-level cache could not serve", PERF_TYPE_HARDWARE,
       PERF_COUNT_HW_CACHE_MISSES, 1, 1},
      {"branches", "1", "branches retired", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1, 2},
      {"branch_misses", "1", "branches predicted wrongly", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, 1, 2},
      {"l1_misses", "1", "loads that the first-level data cache could not serve", PERF_TYPE_HW_CACHE,
       cache_event(PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS), 1, 3},
      {"tlb_misses", "1", "loads whose page the data TLB did not hold", PERF_TYPE_HW_CACHE,
       cache_event(PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS), 1, 3},
      {"page_faults", "1", "page faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 1, 4},
      {"context_switches", "1", "context switches of the threads", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES,
       1, 4, true},
      {"task_clock_s", "s", "time on a CPU by the scheduler's clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK,
       1e-9, 4},
  };
}

PerfKernel& real_kernel() {
  static RealKernel kernel;
  return kernel;
}

PmuCounts::PmuCounts(PerfKernel& kernel, std::uint32_t type, int cpu, const std::vector<Encoding>& events,
                     bool user_only)
    : kernel_(kernel), type_(type), cpu_(cpu), user_only_(user_only) {
  for (const Encoding& e : events) events_.push_back({e, -1, 0, -1, 0, kUnknown, 0});
  buffer_.resize(3 + events_.size());
}

PmuCounts::~PmuCounts() { close(); }

void PmuCounts::close() {
  for (Event& e : events_) {
    if (e.descriptor >= 0) kernel_.close(e.descriptor);
    e.descriptor = e.group = -1;
  }
  groups_.clear();
}

int PmuCounts::open() {
  close();
  int first_error = 0;
  for (Event& e : events_) {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = type_;
    attributes.config = e.encoding.config[0];
    attributes.config1 = e.encoding.config[1];
    attributes.config2 = e.encoding.config[2];
    attributes.exclude_kernel = attributes.exclude_hv = user_only_ ? 1 : 0;
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    int descriptor = -1;
    if (!groups_.empty()) descriptor = kernel_.open(attributes, cpu_, groups_.back().leader);
    // If the PMU has no counter left for this group, start another group, which is multiplexed with it.
    if (groups_.empty() || descriptor == -EINVAL) {
      descriptor = kernel_.open(attributes, cpu_, -1);
      if (descriptor >= 0) groups_.push_back({descriptor});
    }
    if (descriptor < 0) {
      if (first_error == 0) first_error = -descriptor;
      if (descriptor == -EACCES || descriptor == -EPERM || descriptor == -EMFILE) break;  // no other event can succeed
      continue;
    }
    e.descriptor = descriptor;
    e.group = static_cast<int>(groups_.size()) - 1;
    e.place = groups_.back().size++;
  }
  return first_error;
}

bool PmuCounts::read(double now) {
  bool alive = false;
  counted_ = 1;
  for (Event& e : events_) e.grown = kUnknown, e.window = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const std::size_t bytes = (3 + group.size) * sizeof(std::uint64_t);
    if (kernel_.read(group.leader, buffer_.data(), buffer_.size() * sizeof(std::uint64_t)) !=
            static_cast<long>(bytes) ||
        buffer_[0] != group.size)
      continue;
    const auto increase = [](std::uint64_t now_ns, std::uint64_t then_ns) {
      return now_ns > then_ns ? now_ns - then_ns : 0;
    };
    const std::uint64_t enabled = increase(buffer_[1], group.enabled), running = increase(buffer_[2], group.running);
    const bool can_extrapolate = group.has_baseline && enabled > 0 && running > 0;
    alive = alive || enabled > 0;
    if (group.has_baseline && enabled > 0)
      counted_ = std::min(counted_, std::min(1.0, static_cast<double>(running) / static_cast<double>(enabled)));
    for (Event& e : events_) {
      if (e.group != static_cast<int>(g)) continue;
      const std::uint64_t value = buffer_[3 + e.place];
      if (can_extrapolate && value >= e.last) {
        // Extrapolated from the time the event counted to the time it was enabled.
        e.grown = static_cast<double>(value - e.last) * e.encoding.scale *
                  (static_cast<double>(enabled) / static_cast<double>(running));
        e.window = static_cast<double>(enabled) * 1e-9;
      }
      e.last = value;
    }
    group.enabled = buffer_[1];
    group.running = buffer_[2];
    group.has_baseline = true;
  }
  if (!alive) {
    counted_ = kUnknown;
    // A CPU that goes offline invalidates its events. Reopen them; they count again once the CPU is back.
    if (now - tried_ >= 1) {
      tried_ = now;
      open();
      if (!groups_.empty()) read(now);  // sets the baseline
      counted_ = kUnknown;
    }
  }
  return alive;
}

void allow_many_events() {
  if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

ThreadEvents::ThreadEvents(PerfKernel& kernel) : kernel_(&kernel) {
  const std::vector<ThreadEvent> all = thread_events();
  const auto opens = [&](const ThreadEvent& e) {
    return PmuCounts(kernel, e.type, -1, {{{e.config, 0, 0}, e.scale}}, user_only_).open();
  };
  // Use the same mode for all events: a ratio of events in different modes is meaningless.
  user_only_ = std::any_of(all.begin(), all.end(), [&](const ThreadEvent& e) { return forbidden(opens(e)); });
  for (const ThreadEvent& e : all) {
    Lacking absence;
    if (user_only_ && e.in_kernel)
      absence = {{},
                 "the Linux kernel permits this user to count only user-space events",
                 "CAP_PERFMON, or kernel.perf_event_paranoid=1"};
    else if (const int error = opens(e); error != 0)
      absence = why_not(error);
    if (absence.reason.empty()) {
      had_.push_back(e);
      continue;
    }
    const auto same_reason =
        std::find_if(lacking_.begin(), lacking_.end(), [&](const Lacking& l) { return l.reason == absence.reason; });
    (same_reason == lacking_.end() ? lacking_.emplace_back(std::move(absence)) : *same_reason).names.push_back(e.name);
  }
}

ThreadCounts::ThreadCounts(const ThreadEvents& events) {
  const std::vector<ThreadEvent>& available_events = events.had();
  for (std::size_t i = 0; i < available_events.size();) {
    std::vector<Encoding> encodings;
    for (const int group = available_events[i].group; i < available_events.size() && available_events[i].group == group;
         ++i) {
      places_.push_back({groups_.size(), encodings.size()});
      encodings.push_back({{available_events[i].config, 0, 0}, available_events[i].scale});
    }
    groups_.push_back(
        std::make_unique<PmuCounts>(events.kernel(), available_events[i - 1].type, -1, encodings, events.user_only()));
    groups_.back()->open();
  }
}

void ThreadCounts::begin() {
  for (const auto& group : groups_) group->read(wall_s());
}

void ThreadCounts::end() {
  for (const auto& group : groups_) group->read(wall_s());
}

double ThreadCounts::of(std::size_t event) const {
  const Place& place = places_.at(event);
  return groups_[place.group]->grown(place.index);
}

}  // namespace mm::perf

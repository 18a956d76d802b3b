#pragma once
/// Counters of a kernel that does not exist.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/resources/counts.hpp"

/// Counters with values set by a test.
class MadeUpKernel : public mm::perf::PerfKernel {
 public:
  struct Event {
    std::uint64_t type, config, value = 0;
    int cpu, leader;
    bool open = true;
  };
  std::map<int, Event> events;
  std::uint64_t enabled = 0, running = 0;  ///< ns, of all groups
  std::size_t max_per_group = 99;          ///< events per group
  int refuse = 0;                          ///< errno
  int opened = 0;
  std::set<int> read_leaders;              ///< leaders that were read
  std::function<void()> between_readings;  ///< called once, before a leader is read again

  int open(perf_event_attr& a, int cpu, int leader) override {
    if (refuse != 0) return -refuse;
    std::size_t mates = 1;
    for (const auto& [d, e] : events) mates += e.open && leader >= 0 && (d == leader || e.leader == leader);
    if (mates > max_per_group) return -EINVAL;
    const int d = 100 + opened++;
    events[d] = {a.type, a.config, 0, cpu, leader, true};
    return d;
  }
  long read(int d, void* into, std::size_t bytes) override {
    if (!read_leaders.insert(d).second && between_readings) {
      between_readings();
      between_readings = nullptr;
    }
    std::vector<std::uint64_t> said{0, enabled, running};
    for (const auto& [other, e] : events)
      if (e.open && (other == d || e.leader == d)) said.push_back(e.value), ++said[0];
    if (said.size() * 8 > bytes) return -1;
    std::copy(said.begin(), said.end(), static_cast<std::uint64_t*>(into));
    return static_cast<long>(said.size() * 8);
  }
  void close(int d) override { events.at(d).open = false; }
  std::uint64_t& value(int d) { return events.at(d).value; }
};

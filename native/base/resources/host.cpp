#include "base/resources/host.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "base/options/options.hpp"
#include "base/resources/team.hpp"
#include "sys/files.hpp"

namespace mm {
namespace {

/// Returns the word in brackets: "always [madvise] never" → "madvise". Returns the whole line if it has no brackets.
std::string chosen(const std::string& line) {
  const std::size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? line : line.substr(open + 1, close - open - 1);
}

/// Returns the governors of the allowed CPUs, sorted and separated by commas; "" if the Linux kernel has none.
std::string governors() {
  std::set<std::string> names;
  for (const int cpu : allowed_cpus())
    if (std::string name =
            first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/scaling_governor");
        !name.empty())
      names.insert(std::move(name));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

void put(json& to, const char* key, const std::string& value) {
  if (!value.empty()) to[key] = value;  // leave out values that sysfs lacks
}

}  // namespace

double load_1min() {
  std::ifstream in("/proc/loadavg");
  double load = 0;
  in >> load;
  return load;
}

std::string kernel_release(const std::string& root) {
  if (root.empty()) {
    utsname name{};
    uname(&name);
    return name.release;
  }
  std::string release = first_line(root + "/proc/sys/kernel/osrelease");
  if (!release.empty()) return release;
  std::istringstream words(first_line(root + "/proc/version"));  // "Linux version 6.1.0 (builder) #1 SMP …"
  std::string system, version, number;
  words >> system >> version >> number;
  return system == "Linux" && version == "version" ? number : "";
}

std::string host_name() {
  utsname name{};
  uname(&name);
  return name.nodename;
}

json host_conditions() {
  json c;
  c["kernel_release"] = kernel_release();
  c["cpus_allowed"] = cpu_list(allowed_cpus());
  c["cpus_online"] = first_line("/sys/devices/system/cpu/online");
  put(c, "nodes_online", first_line("/sys/devices/system/node/online"));
  put(c, "governor", governors());
  put(c, "thp", chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled")));
  put(c, "numa_balancing", first_line("/proc/sys/kernel/numa_balancing"));
  put(c, "smt", first_line("/sys/devices/system/cpu/smt/active"));
  put(c, "clocksource", first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
  c["load_1min"] = load_1min();
  return c;
}

CpuTimes read_cpu_times() {
  CpuTimes times;
  std::ifstream in("/proc/stat");
  for (std::string line; std::getline(in, line) && line.rfind("cpu", 0) == 0;) {
    if (line[3] == ' ') continue;
    std::istringstream words(line.substr(3));
    std::size_t cpu = 0;
    long long user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    words >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    if (times.busy.size() <= cpu) times.busy.resize(cpu + 1), times.steal.resize(cpu + 1);
    times.busy[cpu] = user + nice + system + irq + softirq;
    times.steal[cpu] = steal;
  }
  return times;
}

double ticks_per_second() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

}  // namespace mm

#include "place/observe/state.hpp"

#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "base/clock.hpp"
#include "base/options/options.hpp"
#include "place/binding/bind.hpp"

namespace mm::place::observe {

Context::Context(const Machine& machine_, pid_t root_, Expectation expected_)
    : machine(machine_),
      root(root_),
      expected(std::move(expected_)),
      began_s(wall_s()),
      first_online(ids_of(read_text("/sys/devices/system/cpu/online"))),
      tick_rate(static_cast<double>(::sysconf(_SC_CLK_TCK))),
      page_bytes(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {
  std::sort(expected.cpus.begin(), expected.cpus.end());
  std::sort(expected.memory_nodes.begin(), expected.memory_nodes.end());
  for (const int cpu : expected.cpus)
    if (!std::binary_search(first_online.begin(), first_online.end(), cpu)) offline.insert(cpu);
  std::tie(cgroup, cgroup_cpus) = cpuset_of(root);
}

double Context::elapsed() const { return wall_s() - began_s; }

void Context::update_offline() {
  const std::vector<int> online = ids_of(read_text("/sys/devices/system/cpu/online"));
  for (const int cpu : first_online)
    if (!std::binary_search(online.begin(), online.end(), cpu)) offline.insert(cpu);
}

std::pair<std::string, std::vector<int>> cpuset_of(pid_t process) {
  const auto home = cpuset_home(process);
  if (!home) return {};
  const char* const file = home->version == 1 ? "/cpuset.effective_cpus" : "/cpuset.cpus.effective";
  // Version 2: a group without the controller has the CPUs of its parent.
  for (std::string at = home->folder;; at.resize(at.rfind('/'))) {
    const std::vector<int> cpus = ids_of(read_text(at + file));
    if (!cpus.empty() || at.size() <= home->mount.size()) return {home->path, cpus};
  }
}

double thread_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9; }

}  // namespace mm::place::observe

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/binding/bind.hpp"
#include "place/binding/pages.hpp"
#include "place/command.hpp"
#include "place/ledger/ledger.hpp"
#include "place/observe.hpp"
#include "place/observe/text.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place {

using observe::mib;
using observe::within;

namespace {

/// Returns the table of the threads of a running program.
std::string table(const Report& report, bool with_relative) {
  std::vector<std::vector<std::string>> rows{
      {"process", "thread", "command", "allowed", "ran on", "moves", "waiting", "memory by node"}};
  for (const ThreadVerdict& thread : report.threads) {
    std::string allowed = cpu_list(thread.allowed), memory;
    if (with_relative) allowed += " (relative " + cpu_list(relative(thread.allowed, report.cgroup_cpus)) + ")";
    for (const auto& [node, bytes] : thread.pages)
      memory += (memory.empty() ? "" : ", ") + std::to_string(node) + ": " + mib(bytes);
    if (thread.huge_bytes > 0) memory += "; huge: " + mib(thread.huge_bytes);
    char waiting[32];
    std::snprintf(waiting, sizeof waiting, "%.2f s", thread.waiting_s);
    rows.push_back({std::to_string(thread.process), std::to_string(thread.thread), thread.command, allowed,
                    cpu_list(thread.ran_on), thread.migrations < 0 ? "?" : std::to_string(thread.migrations), waiting,
                    memory});
  }
  return aligned(rows);
}

/// Returns the reservation of a process, from the file that its environment names; nullopt if it has none.
std::optional<Reservation> reservation_of(pid_t process) {
  const std::string text = read_text("/proc/" + std::to_string(process) + "/environ"), key = "MESHMARK_CLAIM=";
  for (std::size_t at = 0; at < text.size();) {
    const std::string entry = text.c_str() + at;
    at += entry.size() + 1;
    if (entry.compare(0, key.size(), key) != 0) continue;
    const std::string path = entry.substr(key.size()), folder = path.substr(0, path.rfind('/'));
    if (folder.empty() || folder == path) return {};
    Ledger ledger(folder);
    for (Reservation& reservation : ledger.reservations())
      if (reservation.path == path) return reservation;
  }
  return {};
}

}  // namespace

int placed_verb(int argc, char** argv) {
  Arguments app{
      "Show where the threads and pages of a running program are, and whether they are where they should be.\n"
      "Exit status 0: the placement held, or none was expected; 1: it did not hold.\n\n"
      "example: meshmark placed 4711 --cpus 0-3 --nodes 0",
      "meshmark placed"};
  std::string pid_text, cpus, nodes;
  double watch_s = 1, gap_s = 0;
  bool each = false, as_json = false;
  app.add("PID", pid_text, "the process whose tree to observe").required();
  app.time("--duration", watch_s, "observe for this time [1s]", 0, 1e6);
  app.time("--interval", gap_s, "interval of samples [1ms, growing to 100ms]", 1e-9);
  app.add("--cpus", cpus, "CPUs that every thread should be allowed to use [the CPUs of its reservation]");
  app.add("--nodes", nodes, "memory nodes where its pages should be");
  app.flag("--each", each, "each rank or thread has its own CPU of --cpus, or its own part of the reservation");
  app.flag("--json", as_json, "print one JSON object");
  if (!app.read(argc, argv, "placed")) return 0;
  const pid_t process = read_pid(pid_text);
  if (::kill(process, 0) != 0 && errno == ESRCH) throw Failure("PID: no such process: " + pid_text);

  const Machine machine = machine_of("host");
  Expectation expected;
  if (!nodes.empty()) {
    std::vector<int> all_nodes;
    for (const Node& node : machine.nodes) all_nodes.push_back(node.id);
    expected.memory_nodes = parse_cpu_list("--nodes", nodes, all_nodes);
    if (!within(expected.memory_nodes, all_nodes))
      throw UsageError("--nodes", "found " + quote(nodes), cpu_list(all_nodes));
    count_pages(process);  // fails if they cannot be observed, which would make a verdict meaningless
  }
  if (!cpus.empty()) {
    std::vector<int> all_cpus;
    for (const Cpu& cpu : machine.cpus) all_cpus.push_back(cpu.id);
    expected.cpus = parse_cpu_list("--cpus", cpus, all_cpus);
    if (!within(expected.cpus, all_cpus)) throw UsageError("--cpus", "found " + quote(cpus), cpu_list(all_cpus));
    for (const int cpu : expected.cpus) expected.layout.parts.push_back({cpu});
  } else if (const auto reservation = reservation_of(process)) {
    expected.layout = reservation->layout;
    expected.cpus = reservation->layout.cpus();
  }
  if (each && expected.cpus.empty()) throw UsageError("--each", "requires CPUs", "--cpus LIST --each");
  expected.each = each;

  Observer observer(machine, process, expected);
  const double end_s = wall_s() + watch_s;
  observer.sample();
  while (wall_s() < end_s && ::kill(process, 0) == 0) {
    const double pause_s = std::min(gap_s > 0 ? gap_s : observer.next_s(), end_s - wall_s());
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(pause_s, 0.0)));
    observer.sample();
  }
  const Report report = observer.report();
  if (report.threads.empty()) throw Failure("PID: process " + pid_text + " has ended");
  if (as_json) {
    std::cout << to_line(to_json(report)) << "\n";
    return report.held ? 0 : 1;
  }
  std::vector<int> online;
  for (const Cpu& cpu : machine.cpus) online.push_back(cpu.id);
  std::cout << table(report, !report.cgroup_cpus.empty() && report.cgroup_cpus != online);
  if (!expected.cpus.empty() || !expected.memory_nodes.empty()) {
    std::cout << to_text(report);
  } else {
    for (const std::string& absent : report.absent) std::cout << "absent: " << absent << "\n";
  }
  return report.held ? 0 : 1;
}

}  // namespace mm::place

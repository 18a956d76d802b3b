#include "place/sample/sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "place/command.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place::sample {
namespace {

constexpr double kCost_s = 0.008;           // CPU time that an observation aims at
constexpr double kPageCost_s = 0.004;       // CPU time after which no further process's pages are sampled
constexpr int kPasses = 10;                 // most passes over the threads, after the first one
constexpr std::size_t kProcesses = 150;     // most processes that are read
constexpr std::size_t kThreads = 300;       // most threads that are read
constexpr std::size_t kPageProcesses = 16;  // most processes whose pages are sampled
constexpr std::size_t kPages = 3000;        // pages that are sampled, of all processes

double cost_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// Returns at most `most` elements, at equal distances.
template <class T>
std::vector<T> thinned(const std::vector<T>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

/// A thread between two passes.
class SampledThread {
 public:
  SampledThread(pid_t process, pid_t id)
      : id_(id), stat_(task_folder(process, id) + "stat"), schedstat_(task_folder(process, id) + "schedstat") {}

  /// Reads the thread, and adds the time since the last pass to the node of the CPU on which it runs. A thread that has
  /// not run since then costs one read.
  void pass(const std::map<int, int>& node_by_cpu, ProcessSample& process) {
    const std::string_view times = schedstat_.text();
    if (times.empty()) return;
    const std::uint64_t ran = leading_number(times);
    const std::uint64_t waited = leading_number(times.substr(std::min(times.size(), times.find(' ') + 1)));
    if (passes_++ > 0 && ran != ran_ns_) {
      const double ran_s = 1e-9 * static_cast<double>(ran - ran_ns_);
      process.ran_s += ran_s;
      ran_s_ += ran_s;
      if (const auto stat = parse_stat(stat_.text()))
        if (const auto node = node_by_cpu.find(stat->cpu); node != node_by_cpu.end())
          process.ran_by_node[node->second] += ran_s;
    }
    if (passes_ > 1 && waited > waited_ns_) {
      process.waited_s += 1e-9 * static_cast<double>(waited - waited_ns_);
      waited_s_ += 1e-9 * static_cast<double>(waited - waited_ns_);
    }
    ran_ns_ = ran;
    waited_ns_ = waited;
  }

  void add_mask(ProcessSample& process) const {
    const std::vector<int> cpus = cpus_of_mask(affinity_bytes(id_));
    if (cpus.empty()) return;
    MaskUse& use = process.masks[cpu_list(cpus)];
    ++use.threads;
    use.ran_s += ran_s_;
    use.waited_s += waited_s_;
  }

 private:
  pid_t id_;
  PolledFile stat_, schedstat_;
  std::uint64_t ran_ns_ = 0, waited_ns_ = 0;
  double ran_s_ = 0, waited_s_ = 0;
  int passes_ = 0;
};

struct Observed {
  ProcessSample sample;
  std::uint64_t started = 0;
  std::vector<SampledThread> threads;
};

/// Returns the processes that exist, each with its threads.
std::vector<Observed> begin(const std::vector<pid_t>& processes, Sample& sample) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<Observed> observed;
  std::size_t threads = 0;
  for (const pid_t id : thinned(processes, kProcesses)) {
    const auto stat = process_stat(id);
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    Observed one;
    one.started = stat->started;
    one.sample.process = id;
    one.sample.command = stat->command;
    one.sample.threads = stat->threads;
    const std::string statm = first_line("/proc/" + std::to_string(id) + "/statm");
    one.sample.resident_bytes = leading_number(statm.substr(std::min(statm.size(), statm.find(' ') + 1))) * page;
    threads += stat->threads;
    observed.push_back(std::move(one));
  }
  sample.processes = observed.size() + (processes.size() > kProcesses ? processes.size() - kProcesses : 0);
  const double share = threads > kThreads ? static_cast<double>(kThreads) / static_cast<double>(threads) : 1;
  for (Observed& one : observed) {
    const auto most = static_cast<std::size_t>(static_cast<double>(one.sample.threads) * share) + 1;
    for (const pid_t id : thinned(numbers_in("/proc/" + std::to_string(one.sample.process) + "/task"), most))
      one.threads.emplace_back(one.sample.process, id);
    one.sample.observed_threads = one.threads.size();
  }
  return observed;
}

void pass(std::vector<Observed>& observed, const std::map<int, int>& node_by_cpu, Sample& sample) {
  for (Observed& one : observed)
    for (SampledThread& thread : one.threads) thread.pass(node_by_cpu, one.sample);
  ++sample.passes;
}

/// Samples the pages of the processes that ran most, because idle processes access nothing.
void add_pages(std::vector<Observed>& observed) {
  const double begin_s = cost_s();
  std::vector<Observed*> busiest;
  for (Observed& one : observed) busiest.push_back(&one);
  std::ranges::sort(busiest, [](const Observed* a, const Observed* b) {
    return std::pair(a->sample.ran_s, a->sample.resident_bytes) > std::pair(b->sample.ran_s, b->sample.resident_bytes);
  });
  std::uint64_t total = 1;
  for (const Observed* one : busiest) total += one->sample.resident_bytes;
  for (std::size_t i = 0; i < busiest.size(); ++i) {
    ProcessSample& sample = busiest[i]->sample;
    if (i >= kPageProcesses || (i > 0 && cost_s() - begin_s > kPageCost_s)) {
      sample.pages_absent = i == 1 ? "only the pages of the busiest process were sampled"
                                   : "only the pages of the " + std::to_string(i) + " busiest processes were sampled";
      for (std::size_t next = i; next < busiest.size(); ++next)
        busiest[next]->sample.pages_absent = sample.pages_absent;
      return;
    }
    const double share = static_cast<double>(sample.resident_bytes) / static_cast<double>(total);
    const auto most = std::max<std::size_t>(100, static_cast<std::size_t>(share * static_cast<double>(kPages)));
    const std::string status = read_text("/proc/" + std::to_string(sample.process) + "/status");
    sample.swapped_bytes = leading_number(value_of(status, "VmSwap:")) << 10;
    sample.allowed_nodes = value_of(status, "Mems_allowed_list:");
    try {
      sample.pages = sample_pages(sample.process, most, sample.resident_bytes);
    } catch (const Absent& error) {
      sample.pages_absent = std::string(error.what()) + " (" + error.enable + ")";
    }
  }
}

json by_node_s(const std::map<int, double>& seconds) {
  json object = json::object();
  for (const auto& [node, s] : seconds) object[std::to_string(node)] = s;
  return object;
}

json pages_json(const PageSample& pages) {
  return {{"own", by_node(pages.process_bytes)},
          {"files", by_node(pages.file_bytes)},
          {"policies", pages.policies},
          {"huge_bytes", pages.huge_bytes},
          {"pages", pages.pages},
          {"addresses", pages.addresses},
          {"mappings", pages.mappings},
          {"exact", pages.exact},
          {"truncated", pages.truncated}};
}

std::vector<pid_t> read_processes(const std::string& text) {
  std::vector<pid_t> processes;
  for (const std::string& word : split(text, ',')) processes.push_back(read_pid(word));
  return processes;
}

}  // namespace

Sample observe(const Machine& machine, const std::vector<pid_t>& processes, double duration_s) {
  std::map<int, int> node_by_cpu;
  for (const Cpu& cpu : machine.cpus) node_by_cpu[cpu.id] = cpu.node;
  Sample sample;
  const double begin_s = wall_s(), begin_cost_s = cost_s();
  std::vector<Observed> observed = begin(processes, sample);
  const double pass_begin_s = cost_s();
  pass(observed, node_by_cpu, sample);
  const double pass_s = std::max(cost_s() - pass_begin_s, 1e-6);
  const double left_s = kCost_s - kPageCost_s - (cost_s() - begin_cost_s);
  const int passes = std::clamp(static_cast<int>(left_s / pass_s), 1, kPasses);
  for (int number = 1; number <= passes; ++number) {
    const double rest_s = begin_s + duration_s * number / passes - wall_s();
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(rest_s, 0.0)));
    pass(observed, node_by_cpu, sample);
  }
  add_pages(observed);
  for (Observed& one : observed) {
    const auto stat = process_stat(one.sample.process);
    if (!stat || stat->started != one.started) continue;
    for (const SampledThread& thread : one.threads) thread.add_mask(one.sample);
    sample.observed.push_back(std::move(one.sample));
  }
  sample.seconds = wall_s() - begin_s;
  sample.cost_s = cost_s() - begin_cost_s;
  return sample;
}

json to_json(const Sample& sample) {
  json processes = json::array();
  for (const ProcessSample& one : sample.observed) {
    json masks = json::array();
    for (const auto& [cpus, use] : one.masks)
      masks.push_back({{"cpus", cpus}, {"threads", use.threads}, {"ran_s", use.ran_s}, {"waited_s", use.waited_s}});
    processes.push_back({{"process", one.process},
                         {"command", one.command},
                         {"threads", one.threads},
                         {"observed_threads", one.observed_threads},
                         {"ran_s", one.ran_s},
                         {"waited_s", one.waited_s},
                         {"ran_by_node", by_node_s(one.ran_by_node)},
                         {"masks", masks},
                         {"resident_bytes", one.resident_bytes},
                         {"swapped_bytes", one.swapped_bytes},
                         {"allowed_nodes", one.allowed_nodes},
                         {"pages", one.pages_absent.empty() ? pages_json(one.pages) : json(nullptr)},
                         {"pages_absent", one.pages_absent}});
  }
  return {{"seconds", sample.seconds},
          {"cost_s", sample.cost_s},
          {"passes", sample.passes},
          {"processes", sample.processes},
          {"observed", processes}};
}

int sample_verb(int argc, char** argv) {
  Arguments app{
      "Observe running processes at a bounded cost: the nodes of their threads and pages, as one JSON object.\n\n"
      "example: meshmark-place sample 4711,4712 --duration 1s",
      "meshmark-place sample"};
  std::string processes;
  double duration_s = 1;
  app.add("PID", processes, "numbers of processes, comma-separated").required();
  app.time("--duration", duration_s, "observe for this time [1s]", 0, 1e4);
  if (!app.read(argc, argv, "sample")) return 0;
  const Sample sample = observe(machine_of("host"), read_processes(processes), duration_s);
  std::cout << to_line(to_json(sample)) << "\n";
  return 0;
}

}  // namespace mm::place::sample

#include "base/harness/conditions.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/clock.hpp"
#include "base/harness/stats.hpp"
#include "base/options/options.hpp"
#include "base/topology/parts.hpp"
#include "base/topology/topology.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"

namespace mm {
namespace {

/// Reads back where the pages are and how large they are. Each query reads all mappings, so only a few evenly spaced
/// arenas are checked.
void observe_arenas(const std::vector<std::shared_ptr<Arena>>& arenas, json& conditions,
                    std::vector<std::string>& flags) {
  constexpr std::size_t kMaxChecked = 8;
  const std::size_t step = (arenas.size() + kMaxChecked - 1) / kMaxChecked;
  double huge = 1, min_share = 1;
  std::vector<int> nodes;
  for (std::size_t i = 0; i < arenas.size(); i += step) {
    const Arena& arena = *arenas[i];
    const MemoryRequest& request = arena.request();
    const double huge_share = arena.huge_share();
    huge = std::min(huge, huge_share);
    if (request.pages == Pages::thp ? huge_share < 0.95 && request.bytes >= page_bytes(Pages::thp)
                                    : request.pages == Pages::base && huge_share > 0)
      flags.emplace_back("page_size");
    const auto shares = arena.node_shares();
    const auto main_node =
        std::max_element(shares.begin(), shares.end(), [](auto& a, auto& b) { return a.second < b.second; });
    nodes.push_back(main_node->first);
    min_share = std::min(min_share, main_node->second);
    if (request.policy == Policy::node && (main_node->first != request.node || main_node->second < 0.99))
      flags.emplace_back("misplaced");
  }
  nodes = distinct(std::move(nodes));
  conditions["huge_share"] = huge;
  conditions["observed_node"] = nodes.size() == 1 ? json(nodes.front()) : json(cpu_list(nodes));
  conditions["observed_node_share"] = min_share;
}

constexpr double kOthers = 0.05;     // share of the CPUs' time that other processes may use
constexpr double kAccounted = 0.03;  // s; a shorter time may be an error of the accounting in ticks

/// Returns the exponent of the power law value = a * ratio^exponent: the median over all pairs of samples whose ratios
/// differ by more than 1 % (Theil and Sen). Returns 0 unless at least three quarters of the pairs agree on the sign of
/// the exponent, because values scatter for other reasons, too. Returns 1 if there are too few samples or pairs: the
/// value is then assumed to be proportional to the ratio, as if it took a fixed number of clock cycles.
double exponent_of(const std::vector<double>& ratios, std::span<const double> values) {
  constexpr std::size_t kMin = 4;
  if (values.size() < kMin) return 1;
  std::vector<double> exponents;
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (const double log_ratio = std::log(ratios[i] / ratios[j]);
          std::fabs(log_ratio) > 0.01 && values[i] > 0 && values[j] > 0)
        exponents.push_back(std::log(values[i] / values[j]) / log_ratio);
  if (exponents.empty()) return 1;
  const auto agree = [&](auto sign) {
    return std::count_if(exponents.begin(), exponents.end(), sign) * 4 >= std::ssize(exponents) * 3;
  };
  return agree([](double e) { return e > 0; }) || agree([](double e) { return e < 0; }) ? median(exponents) : 0;
}

/// Returns whether the clock varied between samples and the value follows it by more than the permitted width of the
/// interval. A clock that is the same during all samples is a condition of the value, because processors choose it by
/// the kind of work.
bool clock_varied(const PointProgress& p, double percent) {
  constexpr double kSpread = 1.05;
  // Samples of an earlier output have no ratios.
  const std::size_t n = p.clock_ratios.size();
  if (n < 2 || n > p.samples[0].size()) return false;
  std::vector<double> sorted = p.clock_ratios;
  std::sort(sorted.begin(), sorted.end());
  // The ratio of the quartiles, because outliers that are fewer than a quarter of the samples hardly change the median.
  const double spread = sorted[n - 1 - n / 4] / sorted[n / 4];
  if (spread < kSpread) return false;
  const double exponent = exponent_of(p.clock_ratios, std::span(p.samples[0]).last(n));
  return 100 * std::fabs(std::expm1(exponent * std::log(spread))) / 2 > percent;
}

std::vector<std::string> flags_of(const PointProgress& p, double percent, const OtherUse::Shares& other,
                                  double elapsed_s) {
  std::vector<std::string> flags;
  // A share counts only if it exceeds one tick.
  if (other.stolen > 0.02 && other.stolen * elapsed_s > 0.015) flags.emplace_back("stolen");
  if (p.share_marked(kMoved) > 0) flags.emplace_back("migrated");
  if (p.share_marked(kFaulted) > 0.25) flags.emplace_back("faulted");
  if (clock_varied(p, percent)) flags.emplace_back("clock_varied");
  if (p.share_marked(kSwitched | kDisturbed) > 0.25 ||
      (other.others > kOthers && other.others * elapsed_s > kAccounted))
    flags.emplace_back("disturbed");
  const std::vector<int>& cpus = p.point.team->cpus();
  if (distinct(cpus).size() < cpus.size()) flags.emplace_back("oversubscribed");
  return flags;
}

/// Adds the parts of the machine in which the CPUs and the memory are, and the level of the memory hierarchy. The
/// values have the same meaning on every machine, so they show which results of different machines are comparable.
void add_parts(const Point& point, const std::vector<int>& cpus, json& conditions) {
  const Machine& machine = topology();
  const auto add = [&](const char* name, const std::string& word) {
    if (!word.empty()) conditions[name] = word;
  };
  add("cpus_within", smallest_part(machine, cpus));
  add("cpus_fill", filled_part(machine, cpus));
  const auto node = conditions.find("observed_node");
  if (node != conditions.end() && node->is_number_integer())
    add("memory_place", memory_place(machine, cpus, node->get<int>()));
  add("memory_level", level_of(machine, cpus, point.bytes_each));
}

}  // namespace

double PointProgress::share_marked(int mark) const {
  if (marks.empty()) return 0;
  const auto n = std::count_if(marks.begin(), marks.end(), [&](int m) { return (m & mark) != 0; });
  return static_cast<double>(n) / static_cast<double>(marks.size());
}

namespace {

/// Returns the CPU time of a process in s, and its parent; both are 0 if the process has ended.
std::pair<double, pid_t> cpu_time_s(pid_t process) {
  const auto stat = process_stat(process);
  if (!stat) return {0, 0};
  return {static_cast<double>(stat->user + stat->system) / ticks_per_second(), stat->parent};
}

/// Returns the CPU time of this process, its ancestors and its descendants in s. Descendants that have ended count,
/// too.
double own_time_s() {
  auto [sum_s, process] = cpu_time_s(getpid());
  rusage ended_children{};
  getrusage(RUSAGE_CHILDREN, &ended_children);
  for (const timeval& t : {ended_children.ru_utime, ended_children.ru_stime})
    sum_s += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  for (const pid_t child : descendants(getpid())) sum_s += cpu_time_s(child).first;
  while (process > 1) {
    const auto [used_s, parent] = cpu_time_s(process);
    sum_s += used_s;
    process = parent;
  }
  return sum_s;
}

}  // namespace

void OtherUse::start() {
  begun_s_ = wall_s();
  own_s_ = own_time_s();
  before_ = read_cpu_times();
}

double OtherUse::elapsed_s() const { return wall_s() - begun_s_; }

OtherUse::Shares OtherUse::shares(const std::vector<int>& cpus) const {
  const CpuTimes now = read_cpu_times();
  const double excluded_s = own_time_s() - own_s_, elapsed = std::max(elapsed_s(), 0.01);
  const auto increase_s = [&](std::vector<long long> CpuTimes::* kind, std::size_t cpu) {
    const auto &before = before_.*kind, &after = now.*kind;
    return cpu < std::min(before.size(), after.size())
               ? static_cast<double>(after[cpu] - before[cpu]) / ticks_per_second()
               : 0.0;
  };
  double total_busy_s = 0, point_busy_s = 0, stolen_s = 0;
  for (std::size_t cpu = 0; cpu < now.busy.size(); ++cpu) total_busy_s += increase_s(&CpuTimes::busy, cpu);
  const std::vector<int> unique_cpus = distinct(cpus);
  for (const int cpu : unique_cpus) {
    point_busy_s += increase_s(&CpuTimes::busy, static_cast<std::size_t>(cpu));
    stolen_s = std::max(stolen_s, increase_s(&CpuTimes::steal, static_cast<std::size_t>(cpu)));
  }
  const auto share_of_others = [&](double busy_s, std::size_t count) {
    return std::clamp((busy_s - excluded_s) / (elapsed * static_cast<double>(std::max<std::size_t>(count, 1))), 0.0,
                      1.0);
  };
  return {stolen_s / elapsed,
          std::max(share_of_others(total_busy_s, now.busy.size()), share_of_others(point_busy_s, unique_cpus.size()))};
}

std::pair<json, std::vector<std::string>> observed(const PointProgress& p, const std::string& shield, double percent,
                                                   const OtherUse& other) {
  const Point& point = p.point;
  json conditions = point.conditions;
  std::vector<std::string> flags;
  if (point.observe) {
    // A variable, because a range-for does not extend the lifetime of nested temporaries.
    const json observations = point.observe();
    for (const auto& [key, value] : observations.items()) conditions[key] = value;
  }
  if (point.check) flags = point.check();
  if (!point.arenas.empty()) observe_arenas(point.arenas, conditions, flags);
  const bool has_cpus = conditions.contains("observed_cpus");  // set by instruments whose work other processes do
  if (!has_cpus) conditions["observed_cpus"] = cpu_list(point.team->cpus());
  if (const std::string kinds = kind_names(topology(), point.team->cpus()); !kinds.empty())
    conditions["core_kinds"] = kinds;
  add_parts(point, has_cpus ? parse_cpu_list("observed_cpus", conditions["observed_cpus"]) : point.team->cpus(),
            conditions);
  const OtherUse::Shares shares = other.shares(point.team->cpus());
  conditions["steal_share"] = shares.stolen;
  conditions["others_share"] = shares.others;
  if (!point.once) conditions["interval_asked"] = percent / 100;
  conditions["canary_ratio"] = p.clock_ratios.empty() ? json(nullptr) : json(median(p.clock_ratios));
  conditions["disturbed_share"] = p.share_marked(kSwitched | kDisturbed);
  conditions["load_1min"] = load_1min();
  conditions["shield"] = p.shielded ? (shield == "hold" ? "fifo+hold" : "fifo") : "none";
  for (std::string& flag : flags_of(p, percent, shares, other.elapsed_s())) flags.push_back(std::move(flag));
  return {conditions, distinct(std::move(flags))};
}

}  // namespace mm

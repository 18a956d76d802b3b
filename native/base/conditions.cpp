#include "conditions.hpp"

#include <algorithm>

#include "clock.hpp"
#include "options.hpp"
#include "stats.hpp"
#include "topology.hpp"

namespace mm {
namespace {

/// Asks the kernel where the pages are and how large. Of many arenas a few, evenly spaced: each answer reads all
/// mappings.
void observe_arenas(const std::vector<std::shared_ptr<Arena>>& arenas, json& conditions,
                    std::vector<std::string>& flags) {
  constexpr std::size_t kMaxAsked = 8;
  const std::size_t step = (arenas.size() + kMaxAsked - 1) / kMaxAsked;
  double huge = 1, min_share = 1;
  std::vector<int> nodes;
  for (std::size_t i = 0; i < arenas.size(); i += step) {
    const Arena& arena = *arenas[i];
    const MemoryRequest& asked = arena.request();
    const double here = arena.huge_share();
    huge = std::min(huge, here);
    if (asked.pages == Pages::thp ? here < 0.95 && asked.bytes >= page_bytes(Pages::thp)
                                  : asked.pages == Pages::base && here > 0)
      flags.emplace_back("page_size");
    const auto shares = arena.node_shares();
    const auto most =
        std::max_element(shares.begin(), shares.end(), [](auto& a, auto& b) { return a.second < b.second; });
    nodes.push_back(most->first);
    min_share = std::min(min_share, most->second);
    if (asked.policy == Policy::node && (most->first != asked.node || most->second < 0.99))
      flags.emplace_back("misplaced");
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  conditions["huge_share"] = huge;
  conditions["observed_node"] = nodes.size() == 1 ? json(nodes.front()) : json(cpu_list(nodes));
  conditions["observed_node_share"] = min_share;
}

std::vector<std::string> flags_of(const Progress& p, double stolen, double elapsed_s) {
  std::vector<std::string> flags;
  // The accounting of stolen time has a grain of 10 ms: a share counts only once it is more than one grain.
  if (stolen > 0.02 && stolen * elapsed_s > 0.015) flags.emplace_back("stolen");
  if (p.share_marked(kMoved) > 0) flags.emplace_back("migrated");
  if (p.share_marked(kFaulted) > 0.25) flags.emplace_back("faulted");
  if (p.share_marked(kSlowClock) > 0.5) flags.emplace_back("throttled");
  if (p.share_marked(kSwitched | kDisturbed) > 0.25 || relative_mad(p.samples[0]) > 0.1) flags.emplace_back("noisy");
  if (p.wide) flags.emplace_back("truncated");
  std::vector<int> distinct = p.point.team->cpus();
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) flags.emplace_back("oversubscribed");
  return flags;
}

}  // namespace

double Progress::share_marked(int mark) const {
  if (marks.empty()) return 0;
  const auto n = std::count_if(marks.begin(), marks.end(), [&](int m) { return (m & mark) != 0; });
  return static_cast<double>(n) / static_cast<double>(marks.size());
}

void StolenTime::start() {
  begun_s_ = wall_s();
  before_ = read_cpu_times();
}

double StolenTime::elapsed_s() const { return wall_s() - begun_s_; }

double StolenTime::share(const std::vector<int>& cpus) const {
  const CpuTimes now = read_cpu_times();
  double stolen = 0;
  for (const int cpu : cpus) {
    const auto c = static_cast<std::size_t>(cpu);
    if (c < now.steal.size() && c < before_.steal.size())
      stolen = std::max(stolen, static_cast<double>(now.steal[c] - before_.steal[c]) / ticks_per_second() /
                                    std::max(elapsed_s(), 0.01));
  }
  return stolen;
}

std::pair<json, std::vector<std::string>> observed(const Progress& p, const std::string& shield,
                                                   const StolenTime& stolen) {
  const Point& point = p.point;
  json conditions = point.conditions;
  std::vector<std::string> flags;
  if (point.observe) {
    const json seen = point.observe();  // named: a range-for does not keep a temporary's temporary alive
    for (const auto& [key, value] : seen.items()) conditions[key] = value;
  }
  if (point.check) flags = point.check();
  if (!point.arenas.empty()) observe_arenas(point.arenas, conditions, flags);
  if (!conditions.contains("observed_cpus")) conditions["observed_cpus"] = cpu_list(point.team->cpus());
  const double share = stolen.share(point.team->cpus());
  conditions["steal_share"] = share;
  conditions["canary_ratio"] = p.reference_ratios.empty() ? json(nullptr) : json(median(p.reference_ratios));
  conditions["disturbed_share"] = p.share_marked(kSwitched | kDisturbed);
  conditions["load_1min"] = load_1min();
  conditions["shield"] = p.shielded ? (shield == "hold" ? "fifo+hold" : "fifo") : "none";
  for (std::string& flag : flags_of(p, share, stolen.elapsed_s())) flags.push_back(std::move(flag));
  std::sort(flags.begin(), flags.end());
  flags.erase(std::unique(flags.begin(), flags.end()), flags.end());
  return {conditions, flags};
}

}  // namespace mm

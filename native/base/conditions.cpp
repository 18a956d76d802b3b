#include "conditions.hpp"

#include <algorithm>

#include "clock.hpp"
#include "options.hpp"
#include "stats.hpp"

namespace mm {
namespace {

/// Reads back where the pages are and how large they are. Each query reads all mappings, so that only a few evenly
/// spaced arenas are checked.
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
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  conditions["huge_share"] = huge;
  conditions["observed_node"] = nodes.size() == 1 ? json(nodes.front()) : json(cpu_list(nodes));
  conditions["observed_node_share"] = min_share;
}

std::vector<std::string> flags_of(const Progress& p, double stolen, double elapsed_s) {
  std::vector<std::string> flags;
  // Steal time is accounted in units of 10 ms: a share counts only if it exceeds one unit.
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
    const json added = point.observe();  // named: a range-for does not extend the lifetime of nested temporaries
    for (const auto& [key, value] : added.items()) conditions[key] = value;
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

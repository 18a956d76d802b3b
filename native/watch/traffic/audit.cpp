#include "watch/traffic/audit.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace mm::watch {
namespace {

constexpr int kRates = 4;
constexpr std::size_t kMaxLoads = 16;  // threads; more would only disturb the machine
constexpr double kProbe_s = 0.3;       // length of the trial that determines the highest rate

bool counts(const Board& board, const char* metric) { return board.find(metric) != kNone; }

/// Returns why nothing is counted, with a remedy if there is one.
Absent nothing_counted(const Board& board) {
  std::string reason, hint;
  for (const char* metric : {"memory.busy", "l3.total"})
    if (const json* absence = board.absence(metric)) {
      reason += (reason.empty() ? "" : "; ") + absence->at("why").get<std::string>();
      if (hint.empty()) hint = absence->value("hint", std::string());
    }
  return Absent("no counter of memory or link traffic" + (reason.empty() ? "" : ": " + reason), hint);
}

const char* name_of(PacedAccess access) { return access == PacedAccess::write_flushed ? "write" : "read"; }

}  // namespace

const std::vector<std::string>& audited_metrics() {
  static const std::vector<std::string> names{"memory.read", "memory.write", "memory.traffic", "link.out",
                                              "link.in",     "l3.total",     "l3.local"};
  return names;
}

std::vector<AuditLoad> audit_loads(const Board& board, const Host& host) {
  std::vector<AuditLoad> loads;
  const bool reads = counts(board, "memory.read") || counts(board, "memory.traffic") || counts(board, "l3.total") ||
                     counts(board, "l3.local");
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    const Node& node = host.machine.nodes[n];
    // The controllers of a node without CPUs (CXL, HBM) are not among the counters, or not assigned to it.
    if (node.cpus.empty()) continue;
    if (reads) loads.push_back({PacedAccess::read_flushed, n, n});
    if (counts(board, "memory.write")) loads.push_back({PacedAccess::write_flushed, n, n});
  }
  if (!counts(board, "link.out") && !counts(board, "link.in")) return loads;
  std::set<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t c = 0; c < board.components("link"); ++c) {
    const json& link = board.component("link", c);
    pairs.emplace(link.at("from").get<std::size_t>(), link.at("to").get<std::size_t>());
  }
  for (const auto& [from, to] : pairs) loads.push_back({PacedAccess::read_flushed, to, from});
  return loads;
}

void audit(Sampler& sampler, const AuditPlan& plan, const std::function<void(const std::string&)>& write) {
  const Host& host = sampler.host();
  const std::vector<AuditLoad> loads = audit_loads(sampler.board(), host);
  if (loads.empty()) throw nothing_counted(sampler.board());
  if (!can_flush()) throw Absent("cannot flush cache lines on this processor", "");
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  const double step_s = std::max(plan.load_s - kProbe_s, 0.0) / (plan.rounds * kRates);
  for (const AuditLoad& load : loads) {
    std::vector<int> cpus = usable_cpus(host, load.cpu_node, allowed);
    if (cpus.empty()) continue;  // the counters of this node remain without samples, which the report states
    if (cpus.size() > 1) cpus.erase(cpus.begin());  // left to the sampler
    if (cpus.size() > kMaxLoads) cpus.resize(kMaxLoads);
    PacedTeam team(cpus, host.nodes[load.memory_node], host.nodes.size() > 1, load.access);
    const auto read = [&] {
      const double moved = team.moved();
      plan.before_reading(load, moved);
      sampler.sample(wall_s());
      return moved;
    };
    team.pace(1e15);
    nap(kProbe_s / 3);
    const double trial_begin = wall_s(), moved_before_trial = team.moved();
    nap(kProbe_s * 2 / 3);
    const double highest = (team.moved() - moved_before_trial) / (wall_s() - trial_begin);
    for (int round = 0; round < plan.rounds; ++round)
      for (int i = 0; i < kRates; ++i) {
        const int rate = round % 2 == 0 ? i : kRates - 1 - i;
        team.pace(highest * rate / kRates);
        nap(0.2 * step_s);
        const double begin = wall_s(), moved_before = read();
        nap(0.8 * step_s);
        // Bytes and time are read together; reading the counters of many controllers takes milliseconds.
        const double end = wall_s();
        const double moved = (read() - moved_before) / (end - begin);
        char head[200];
        std::snprintf(head, sizeof head,
                      R"({"type":"audit","load":"%s","cpu_node":%zu,"memory_node":%zu,)"
                      R"("round":%d,"rate":%d,"moved":%.0f,)",
                      name_of(load.access), load.cpu_node, load.memory_node, round, rate, moved);
        std::string line = head;
        sampler.board().write_values(line);
        write(line + "}\n");
      }
  }
}

}  // namespace mm::watch

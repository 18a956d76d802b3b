#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"

namespace mm {

std::vector<int> Machine::ids() const {
  std::vector<int> numbers;
  numbers.reserve(cpus.size());
  for (const Cpu& c : cpus) numbers.push_back(c.id);
  return numbers;
}

const Cpu& Machine::cpu(int id) const {
  const auto at = std::lower_bound(cpus.begin(), cpus.end(), id, [](const Cpu& c, int i) { return c.id < i; });
  if (at != cpus.end() && at->id == id) return *at;
  throw UsageError("cpus", "found cpu " + std::to_string(id) + ", which is not online", cpu_list(ids()));
}

std::size_t Machine::node_at(int id) const {
  std::vector<int> known_ids;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].id == id) return i;
    known_ids.push_back(nodes[i].id);
  }
  throw UsageError("node", "found node " + std::to_string(id), cpu_list(known_ids));
}

std::vector<std::vector<int>> Machine::hops() const {
  if (!link_hops.empty()) return link_hops;
  std::vector<double> values;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (std::size_t j = 0; j < nodes.size(); ++j)
      if (i != j) values.push_back(distance[i][j]);
  std::sort(values.begin(), values.end());
  std::vector<double> smallest;  // of each rank; measured values are never quite equal, so 2 % more count as equal
  for (const double v : values)
    if (smallest.empty() || v > smallest.back() * 1.02) smallest.push_back(v);
  std::vector<std::vector<int>> ranks(nodes.size(), std::vector<int>(nodes.size()));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (std::size_t j = 0; j < nodes.size(); ++j)
      if (i != j)
        ranks[i][j] =
            static_cast<int>(std::upper_bound(smallest.begin(), smallest.end(), distance[i][j]) - smallest.begin());
  return ranks;
}

std::size_t Machine::cache_bytes(int level) const {
  for (const CacheLevel& c : caches)
    if (c.level == level) return c.bytes;
  return 0;
}

std::size_t Machine::last_level_bytes() const { return caches.empty() ? 0 : caches.back().bytes; }

std::vector<int> fill_order(const Machine& machine, const std::string& how, const std::vector<int>& among) {
  struct Place {
    Cpu cpu;
    int core, thread;  // ranks of the core in its package and of the CPU in its core, among the CPUs to fill
  };
  std::vector<Place> order;
  for (const int id : among) order.push_back({machine.cpu(id), 0, 0});
  std::map<int, std::map<int, std::map<int, int>>> ranks;  // package → core → place among its CPUs → rank
  for (const auto& [cpu, core, thread] : order) ranks[cpu.package][cpu.core][cpu.smt] = 0;
  for (auto& place : order) {
    const auto& cores = ranks[place.cpu.package];
    const auto core = cores.find(place.cpu.core);
    place.core = static_cast<int>(std::distance(cores.begin(), core));
    place.thread = static_cast<int>(std::distance(core->second.begin(), core->second.find(place.cpu.smt)));
  }
  const auto key = [&](const Place& p) {
    if (how == "compact") return std::tuple{p.cpu.package, p.core, p.thread, p.cpu.id};
    if (how == "cores") return std::tuple{p.thread, p.cpu.package, p.core, p.cpu.id};
    if (how == "spread") return std::tuple{p.thread, p.core, p.cpu.package, p.cpu.id};
    throw UsageError("fill", "found " + quote(how), "compact, cores, spread");
  };
  std::stable_sort(order.begin(), order.end(), [&](const Place& a, const Place& b) { return key(a) < key(b); });
  std::vector<int> ids;
  for (const Place& p : order) ids.push_back(p.cpu.id);
  return ids;
}

std::vector<int> share_of_cpus(const Machine& machine, const std::vector<int>& among, std::size_t sharers,
                               std::size_t place, std::size_t count) {
  const std::vector<int> order = fill_order(machine, "compact", among);
  std::vector<int> share;
  for (std::size_t i = order.size() * place / sharers; i < order.size() * (place + 1) / sharers; ++i)
    share.push_back(order[i]);
  if (share.empty()) share.push_back(order[place % order.size()]);  // more sharers than CPUs
  share = fill_order(machine, "cores", share);
  std::vector<int> cpus;
  for (std::size_t i = 0; i < count; ++i) cpus.push_back(share[i % share.size()]);
  return cpus;
}

}  // namespace mm

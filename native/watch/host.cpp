#include <algorithm>
#include <map>
#include <tuple>

#include "sys/files.hpp"
#include "sys/id_sets.hpp"
#include "sys/words.hpp"
#include "watch/source.hpp"

namespace mm::watch {

std::vector<Registered>& registry() {
  static std::vector<Registered> all;
  return all;
}

namespace {

std::vector<std::int64_t> whole(const std::vector<double>& distances) { return {distances.begin(), distances.end()}; }

/// Adds a memory for each node that has memory. If counters have added named channels, these belong to nodes with CPUs,
/// so only the memory of nodes without CPUs (CXL, HBM) is missing.
void add_memories(const Host& host, Board& board) {
  const bool channels = board.components("memory") > 0;
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    const Node& node = host.machine.nodes[n];
    if ((channels && !node.cpus.empty()) || node.bytes == 0) continue;
    board.add("memory", {{"name", "memory " + std::to_string(node.id)}, {"node", n}});
  }
}

/// Adds the links between nodes that, by the firmware's distances, have no other node between them.
void add_links(const Host& host, Board& board) {
  if (host.machine.distance_from.empty()) return;
  const std::size_t n = host.nodes.size();
  const auto& distance = host.machine.distance;
  const auto between = [&](std::size_t a, std::size_t b) {
    for (std::size_t c = 0; c < n; ++c)
      if (c != a && c != b && distance[a][c] < distance[a][b] && distance[c][b] < distance[a][b]) return true;
    return false;
  };
  for (std::size_t a = 0; a < distance.size(); ++a)
    for (std::size_t b = 0; b < n; ++b)
      if (a != b && !between(a, b))
        board.add("link", {{"name", std::to_string(host.nodes[a]) + " to " + std::to_string(host.nodes[b])},
                           {"from", a},
                           {"to", b},
                           {"kind", "by distance"}});
}

/// Adds the data and unified caches whose sizes the Linux kernel reports.
void add_caches(const Host& host, Board& board) {
  std::map<int, std::size_t> component;
  for (std::size_t i = 0; i < host.cpus.size(); ++i) component.emplace(host.cpus[i], i);
  std::vector<Cache> caches = caches_of_tree(host.root, host.machine);
  std::stable_sort(caches.begin(), caches.end(), [](const Cache& a, const Cache& b) {
    return std::tie(a.cpus.front(), a.level) < std::tie(b.cpus.front(), b.level);
  });
  for (const Cache& cache : caches) {
    if (cache.kind == "instruction" || cache.bytes == 0) continue;
    json cpus = json::array();
    for (const int sharer : cache.cpus) cpus.push_back(component.at(sharer));
    board.add("cache", {{"name", "L" + std::to_string(cache.level) + " of CPU " + id_list(cache.cpus)},
                        {"level", cache.level},
                        {"size_bytes", cache.bytes},
                        {"cpus", std::move(cpus)}});
  }
}

}  // namespace

void complete_host(const Host& host, Board& board) {
  add_memories(host, board);
  add_caches(host, board);
  if (board.components("link") == 0) add_links(host, board);
}

Host find_host(const std::string& root, Board& board) {
  Host host;
  host.root = root;
  host.live = root.empty();
  host.cpuinfo = read_text(root + "/proc/cpuinfo");
  host.machine = machine_of_tree(root);
  const Machine& machine = host.machine;
  host.cpus = all_ids(machine.ids(), machine.offline);
  std::map<int, int> node_of;
  for (std::size_t n = 0; n < machine.nodes.size(); ++n) {
    const Node& node = machine.nodes[n];
    host.nodes.push_back(node.id);
    for (const int cpu : node.cpus) node_of.emplace(cpu, static_cast<int>(n));
    json about{{"name", "node " + std::to_string(node.id)}, {"number", node.id}};
    if (!machine.distance_from.empty()) about["distance"] = whole(machine.distance[n]);
    board.add("node", about);
  }
  auto online = machine.cpus.begin();
  for (const int cpu : host.cpus) {
    const auto node = node_of.find(cpu);
    host.node_of.push_back(node == node_of.end() ? -1 : node->second);
    json about{{"name", "CPU " + std::to_string(cpu)}, {"number", cpu}};
    if (node != node_of.end()) about["node"] = node->second;
    if (online != machine.cpus.end() && online->id == cpu) {
      if (online->package_id >= 0) about["package"] = online->package_id;
      if (online->core_id >= 0) about["core"] = online->core_id;
      ++online;
    }
    board.add("cpu", about);
  }
  host.parts = 0;
  host.part_of.assign(host.nodes.size(), 0);
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    cpu_set_t part_cpus{};
    for (std::size_t i = 0; i < host.cpus.size(); ++i)
      if (host.node_of[i] == static_cast<int>(n) && host.cpus[i] < CPU_SETSIZE)
        CPU_SET(static_cast<std::size_t>(host.cpus[i]), &part_cpus);
    if (CPU_COUNT(&part_cpus) == 0) continue;
    host.part_of[n] = host.parts++;
    host.part_cpus.push_back(part_cpus);
  }
  if (host.parts == 0) {
    host.parts = 1;
    host.part_cpus.emplace_back();
  }
  return host;
}

}  // namespace mm::watch

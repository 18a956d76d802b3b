#include <algorithm>

#include "source.hpp"
#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm::watch {

std::vector<Registered>& registry() {
  static std::vector<Registered> all;
  return all;
}

namespace {

std::vector<std::int64_t> distances(const std::string& root, int node) {
  std::vector<std::int64_t> found;
  const std::string text = first_line(root + "/sys/devices/system/node/node" + std::to_string(node) + "/distance");
  for (std::string_view line = text; !line.empty();)
    if (const auto d = whole_number(next_word(line)); d >= 0) found.push_back(d);
  return found;
}

/// A memory a node that has any. Where counters have named channels, these are of the nodes with CPUs: only memory of
/// its own (CXL, HBM) is missing.
void add_memories(const Host& host, Board& board) {
  const bool channels = board.components("memory") > 0;
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    const bool has_cpus =
        std::find(host.node_of.begin(), host.node_of.end(), static_cast<int>(n)) != host.node_of.end();
    if (channels && has_cpus) continue;
    KernelFile meminfo(host.root + "/sys/devices/system/node/node" + std::to_string(host.nodes[n]) + "/meminfo");
    std::int64_t total = -1;
    for (std::string_view text = meminfo.text(); !text.empty() && total < 0;) {
      std::string_view line = next_line(text);
      while (!line.empty() && total < 0)
        if (next_word(line) == "MemTotal:") total = whole_number(next_word(line));
    }
    if (total != 0) board.add("memory", {{"name", "memory " + std::to_string(host.nodes[n])}, {"node", n}});
  }
}

/// Links between nodes that no other node lies between by the firmware's distances.
void add_links(const Host& host, Board& board) {
  const std::size_t n = host.nodes.size();
  std::vector<std::vector<std::int64_t>> distance;
  for (const int node : host.nodes) distance.push_back(distances(host.root, node));
  for (const auto& row : distance)
    if (row.size() != n) return;
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

}  // namespace

void complete_host(const Host& host, Board& board) {
  add_memories(host, board);
  if (board.components("link") == 0) add_links(host, board);
}

Host find_host(const std::string& root, Board& board) {
  Host host;
  host.root = root;
  host.live = root.empty();
  host.cpuinfo = read_text(root + "/proc/cpuinfo");
  const std::string cpu_folder = root + "/sys/devices/system/cpu/", node_folder = root + "/sys/devices/system/node/";
  host.cpus = ids_of(first_line(cpu_folder + "present"));
  if (host.cpus.empty()) host.cpus = ids_of(first_line(cpu_folder + "online"));
  if (host.cpus.empty()) {
    // A tree without sysfs: the lines of /proc/stat say which CPUs there are.
    KernelFile stat(root + "/proc/stat");
    for (std::string_view text = stat.text(); !text.empty();) {
      std::string_view line = next_line(text);
      const std::string_view word = next_word(line);
      if (word.size() > 3 && word.substr(0, 3) == "cpu")
        if (const auto n = whole_number(word.substr(3)); n >= 0 && n < (1 << 16))
          host.cpus.push_back(static_cast<int>(n));
    }
    std::sort(host.cpus.begin(), host.cpus.end());
    host.cpus.erase(std::unique(host.cpus.begin(), host.cpus.end()), host.cpus.end());
  }
  std::vector<std::vector<int>> cpus_of;
  for (const std::string& name : names_in(node_folder)) {
    if (name.substr(0, 4) != "node") continue;
    const auto n = whole_number(std::string_view(name).substr(4));
    if (n >= 0 && n < (1 << 16)) host.nodes.push_back(static_cast<int>(n));
  }
  std::sort(host.nodes.begin(), host.nodes.end());
  for (const int n : host.nodes) {
    cpus_of.push_back(ids_of(first_line(node_folder + "node" + std::to_string(n) + "/cpulist")));
    json about{{"name", "node " + std::to_string(n)}, {"number", n}};
    if (const auto distance = distances(root, n); !distance.empty()) about["distance"] = distance;
    board.add("node", about);
  }
  if (host.nodes.empty()) {  // a kernel without NUMA: one node that has everything
    host.nodes = {0};
    cpus_of = {host.cpus};
    board.add("node", {{"name", "node 0"}, {"number", 0}});
  }
  for (const int cpu : host.cpus) {
    int node = -1;
    for (std::size_t n = 0; n < cpus_of.size(); ++n)
      if (std::find(cpus_of[n].begin(), cpus_of[n].end(), cpu) != cpus_of[n].end()) node = static_cast<int>(n);
    host.node_of.push_back(node);
    const std::string topology = cpu_folder + "cpu" + std::to_string(cpu) + "/topology/";
    json about{{"name", "CPU " + std::to_string(cpu)}, {"number", cpu}};
    if (node >= 0) about["node"] = node;
    for (const auto& [key, file] : {std::pair{"package", "physical_package_id"}, std::pair{"core", "core_id"}})
      if (const auto value = number_in(topology + file, -1); value >= 0) about[key] = value;
    board.add("cpu", about);
  }
  host.parts = 0;
  host.part_of.assign(host.nodes.size(), 0);
  for (std::size_t n = 0; n < host.nodes.size(); ++n) {
    cpu_set_t mine{};
    for (std::size_t i = 0; i < host.cpus.size(); ++i)
      if (host.node_of[i] == static_cast<int>(n) && host.cpus[i] < CPU_SETSIZE)
        CPU_SET(static_cast<std::size_t>(host.cpus[i]), &mine);
    if (CPU_COUNT(&mine) == 0) continue;
    host.part_of[n] = host.parts++;
    host.part_cpus.push_back(mine);
  }
  if (host.parts == 0) {
    host.parts = 1;
    host.part_cpus.emplace_back();
  }
  return host;
}

}  // namespace mm::watch

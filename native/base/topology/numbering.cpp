#include "base/topology/numbering.hpp"

#include <algorithm>
#include <utility>

namespace mm {

Cpu Numbering::add(int id, const Parts& parts) {
  Cpu cpu{id, cores_.of(parts.core), packages_.of(parts.package), l3s_.of(parts.l3), 0, 0};
  cpu.smt = met_[cpu.core]++;
  return cpu;
}

void finish(Machine& machine, std::optional<std::vector<std::vector<double>>> firmware) {
  std::sort(machine.cpus.begin(), machine.cpus.end(), [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  std::map<int, int> owner;
  int default_value = machine.nodes.empty() ? 0 : machine.nodes.front().id;
  for (auto n = machine.nodes.rbegin(); n != machine.nodes.rend(); ++n) {
    if (!n->cpus.empty()) default_value = n->id;
    for (const int cpu : n->cpus) owner[cpu] = n->id;
  }
  for (Cpu& cpu : machine.cpus) {
    const auto at = owner.find(cpu.id);
    cpu.has_node = at != owner.end();  // XML leaves out a node without memory
    cpu.node = cpu.has_node ? at->second : default_value;
  }

  const std::size_t count = machine.nodes.size();
  machine.distance_from = firmware ? "firmware" : "";
  if (firmware) {
    machine.distance = std::move(*firmware);
    return;
  }
  machine.distance.assign(count, std::vector<double>(count, 20));
  for (std::size_t i = 0; i < count; ++i) machine.distance[i][i] = 10;
}

}  // namespace mm

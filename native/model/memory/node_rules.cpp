#include "model/memory/node_rules.hpp"

#include <cmath>

#include "model/network/table.hpp"

namespace mm::model {
namespace {

CoreRules core_rules(const Table& cpu) {
  CoreRules r;
  r.outstanding = cpu.integer("outstanding", 1, 4096);
  r.posted_writes = cpu.flag("write_buffers_apart", true);
  r.write_buffers = cpu.integer("write_buffers", 1, 4096, r.outstanding);
  r.request = ps(cpu.number("request_ns", 0, 1e6, 0));
  r.fill = ps(cpu.number("fill_ns", 0, 1e6, 0));
  r.issue = ps(cpu.number("issue_ns", 0, 1e6, 0));
  r.probe = ps(cpu.number("probe_ns", 0, 1e6, 0));
  r.critical_word = cpu.flag("critical_word_first", true);
  return r;
}

/// Returns a list with one number per node; empty if the key is missing.
template <class T>
std::vector<T> one_each(const Table& memory, const char* key, std::uint32_t nodes, double minimum, double maximum) {
  std::vector<T> list;
  if (!memory.has(key)) return list;
  const json& numbers = memory.at(key);
  const std::string allowed = "one number per node (" + std::to_string(nodes) + ")";
  if (!numbers.is_array() || numbers.size() != nodes) memory.refuse(key, brief(numbers), allowed);
  for (const json& v : numbers) {
    if (!v.is_number() || v.get<double>() < minimum || v.get<double>() > maximum) memory.refuse(key, brief(v), allowed);
    list.push_back(v.get<T>());
  }
  return list;
}

MemoryRules memory_rules(const Table& node, const Table& memory, std::uint32_t nodes) {
  MemoryRules r;
  r.controllers = node.integer("controllers", 1, kMaxLinks, 1);
  r.channels = memory.integer("channels", 1, 64, 1);
  r.line_bytes = memory.integer("line_bytes", 8, 4096, 64);
  const double rate = memory.number("channel_gb_per_s", 1e-6, 1e6);
  r.occupancy_fs = std::llround(r.line_bytes / rate * 1e6);
  r.access = ps(memory.number("access_ns", 0, 1e6));
  r.activate = ps(memory.number("activate_ns", 0, 1e6, 0));
  r.turnaround = ps(memory.number("turnaround_ns", 0, 1e6, 0));
  r.gap = ps(memory.number("gap_ns", 0, 1e6, 0));
  r.page_bytes = memory.integer("page_bytes", 0, 1 << 30, 0);
  r.banks = memory.integer("banks", 1, 65536, 8);
  r.queue = memory.integer("queue", 1, 65536, 32);
  r.write_batch = memory.integer("write_batch", 1, 1024, 1);
  if (r.page_bytes != 0 && r.page_bytes < r.line_bytes)
    memory.refuse("page_bytes", std::to_string(r.page_bytes), "0, or at least line_bytes");
  r.node_channels = one_each<int>(memory, "node_channels", nodes, 1, 64);
  r.node_share = one_each<double>(memory, "node_share", nodes, 1e-3, 1e3);
  return r;
}

PacketRules packet_rules(const Table& packets, const Table& router, int line_bytes) {
  PacketRules r;
  const int flit_bytes = router.integer("flit_bytes", 1, 1024, 8);
  r.request_flits = packets.integer("request_flits", 1, 1024, 1);
  r.ack_flits = packets.integer("ack_flits", 1, 1024, r.request_flits);
  r.data_flits = packets.integer("data_flits", 1, 8192, 1 + (line_bytes + flit_bytes - 1) / flit_bytes);
  const int buffer = router.integer("buffer_flits", 1, 8192, 64);
  if (r.data_flits > buffer)
    router.refuse("buffer_flits", std::to_string(buffer),
                  "at least packets.data_flits (" + std::to_string(r.data_flits) + "): a packet must fit");
  if (router.integer("message_classes", 1, 4, 3) < 3)
    router.refuse("message_classes", std::to_string(router.integer("message_classes", 1, 4)),
                  "3: requests, forwards and responses must not wait for each other");
  return r;
}

}  // namespace

NodeRules node_rules(const Graph& graph, const json& machine) {
  const Table all(machine, "");
  const Table cpu = all.table("cpu"), memory = all.table("memory"), coherence = all.table("coherence"),
              packets = all.table("packets"), node = all.table("node"), router = all.table("router");
  if (node.integer("cpus", 0, kMaxCpus, 1) == 0) node.refuse("cpus", "0", "at least 1 in a machine with [memory]");
  NodeRules r;
  r.core = core_rules(cpu);
  r.outstanding = node.integer("outstanding", 0, 65536, 0);
  r.memory = memory_rules(node, memory, graph.nodes());
  r.coherence = static_cast<Coherence>(coherence.choice("kind", {"directory", "broadcast", "snoop"}));
  r.directory = ps(coherence.number("directory_ns", 0, 1e6, 0));
  r.packets = packet_rules(packets, router, r.memory.line_bytes);
  r.bypass = node.flag("bypass", true) && !node.has("bus");
  const Table placement = all.table("placement");
  r.striping = static_cast<Striping>(placement.choice("striping", {"none", "pair", "all"}));
  r.pair_dimension = placement.integer("pair_dimension", 0, 5, 0);
  if (!graph.shape.empty() && r.pair_dimension >= static_cast<int>(graph.shape.size()))
    placement.refuse("pair_dimension", std::to_string(r.pair_dimension), "a dimension of the topology");
  return r;
}

std::uint32_t partner(const Graph& graph, const NodeRules& rules, std::uint32_t node) {
  std::uint32_t other = node ^ 1U;
  if (!graph.shape.empty()) {
    std::uint32_t stride = 1;
    for (int d = 0; d < rules.pair_dimension; ++d)
      stride *= static_cast<std::uint32_t>(graph.shape[static_cast<std::size_t>(d)]);
    const int position = graph.coordinate(graph.node_router[node], rules.pair_dimension);
    other = position % 2 == 0 ? node + stride : node - stride;
    if (position % 2 == 0 && position + 1 >= graph.shape[static_cast<std::size_t>(rules.pair_dimension)]) other = node;
  }
  return other < graph.nodes() ? other : node;
}

}  // namespace mm::model

#include "place/binding/spill.hpp"

#include "base/options/options.hpp"
#include "place/binding/pages.hpp"
#include "place/observe/text.hpp"
#include "sys/files.hpp"

namespace mm::place {
namespace {

constexpr std::uint64_t kLeastShare = 20;  // of the memory of the nodes

}  // namespace

NodeRoom node_room(int node, const std::string& root) {
  const std::string text = read_text(root + "/sys/devices/system/node/node" + std::to_string(node) + "/meminfo");
  const std::string begin = "Node " + std::to_string(node) + " ";
  NodeRoom room{kib(text, begin + "MemTotal:"), 0};
  for (const char* key : {"MemFree:", "Active(file):", "Inactive(file):", "SReclaimable:"})
    room.available += kib(text, begin + key);
  return room;
}

std::string spill_warning(const std::map<int, NodeRoom>& nodes, std::size_t nodes_of_machine,
                          const MemoryPolicy& memory, std::uint64_t needed) {
  NodeRoom sum;
  std::vector<int> numbers;
  for (const auto& [node, room] : nodes) {
    numbers.push_back(node);
    sum.bytes += room.bytes;
    sum.available += room.available;
  }
  if (sum.bytes == 0 || nodes.size() >= nodes_of_machine) return "";
  const std::uint64_t least = needed > 0 ? needed : sum.bytes / kLeastShare;
  if (sum.available >= least) return "";
  const std::string subject =
      nodes.size() == 1 ? "node " + cpu_list(numbers) + " has " : "nodes " + cpu_list(numbers) + " have ";
  return subject + observe::mib(sum.available) + " of " + observe::mib(sum.bytes) + " of memory available" +
         (needed > 0 ? ", and the command needs " + observe::mib(needed) : "") +
         (memory.policy == "bind" ? "; when it is used up, the Linux kernel ends the command"
                                  : "; further pages will be on other nodes");
}

}  // namespace mm::place

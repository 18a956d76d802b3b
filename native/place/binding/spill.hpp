#pragma once
/// Warns before a command starts whose memory would not fit on its nodes.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place {

/// Memory of a node, B.
struct NodeRoom {
  std::uint64_t bytes = 0;
  std::uint64_t available = 0;  ///< free, or a page of a file or a cache of the Linux kernel that can be dropped
};

/// Returns the memory of a node, of this machine or of a recorded tree; zeros if it is not stated.
NodeRoom node_room(int node, const std::string& root = "");

/// Returns the warning that the memory of a command will not remain on `nodes`; "" if there is no reason for one: other
/// nodes do not exist, or the nodes have `needed` bytes available (if it is 0: a twentieth of their memory).
std::string spill_warning(const std::map<int, NodeRoom>& nodes, std::size_t nodes_of_machine,
                          const MemoryPolicy& memory, std::uint64_t needed);

}  // namespace mm::place

#pragma once
/// Properties of a node in a machine file: its cores, memory controllers, coherence protocol and packets. Times in ps;
/// docs/reference/machine-files.md documents the keys.
#include <cstdint>
#include <vector>

#include "base/json.hpp"
#include "model/network/graph.hpp"

namespace mm::model {

struct CoreRules {
  int outstanding = 16, write_buffers = 16;
  bool posted_writes = true;  ///< writes have separate buffers; false: they occupy read buffers
  Time request = 0;           ///< from a load until its request leaves the core
  Time fill = 0;              ///< from the arrival of data until its use
  Time issue = 0;             ///< minimum time between two misses of a core
  Time probe = 0;             ///< from the arrival of a probe until its answer leaves
  bool critical_word = true;  ///< a load ends with the head of the data, not with its tail
};

struct MemoryRules {
  int controllers = 1;  ///< per node
  int channels = 1, banks = 8, line_bytes = 64, queue = 32, write_batch = 1;
  std::int64_t occupancy_fs = 0;  ///< time of one line on one channel
  Time access = 0, activate = 0, turnaround = 0, gap = 0;
  int page_bytes = 0;              ///< 0: every access finds its page open
  std::vector<double> node_share;  ///< share of a channel's rate, by node; empty: 1
  std::vector<int> node_channels;  ///< by node; empty: channels
};

enum class Coherence : std::uint8_t { directory, broadcast, snoop };
enum class Striping : std::uint8_t { none, pair, all };

struct PacketRules {
  int request_flits = 1, data_flits = 9, ack_flits = 1;
};

struct NodeRules {
  int outstanding = 0;  ///< limit of reads by all cores of a node; 0: none
  bool bypass = true;   ///< a core reaches its own node's memory without the router
  CoreRules core;
  MemoryRules memory;
  Coherence coherence = Coherence::directory;
  Time directory = 0;  ///< from a request's arrival at its home until the forward leaves
  PacketRules packets;
  Striping striping = Striping::none;
  int pair_dimension = 0;
};

NodeRules node_rules(const Graph& graph, const json& machine);

/// Returns the node whose memory is striped with the memory of `node`.
std::uint32_t partner(const Graph& graph, const NodeRules& rules, std::uint32_t node);

}  // namespace mm::model

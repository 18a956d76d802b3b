#pragma once
/// The whole machine: cores with a bounded number of outstanding misses, memory controllers with channels, banks and
/// open pages, coherence by directory, broadcast or snoop, I/O ports; on the network.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "graph.hpp"
#include "network.hpp"
#include "random.hpp"

namespace mm::model {

enum class Coherence : std::uint8_t { directory, broadcast, snoop };
enum class Striping : std::uint8_t { none, pair, all };

/// What a machine file says of the nodes, in ps and flits; see docs/reference/machine-files.md.
struct NodeRules {
  // core
  int outstanding = 16, write_buffers = 16, node_outstanding = 0;
  bool posts = true;           ///< writes have buffers of their own; false: they hold those of reads
  Time request = 0, fill = 0;  ///< from the load to the request's leaving the core; from the data's arrival to its use
  Time issue = 0;              ///< between two misses of one core
  Time probe = 0;              ///< from a probe's arrival to the answer's leaving
  bool critical_word = true;   ///< the load ends with the head of the data, not with its tail
  // memory
  int controllers = 1, channels = 1, banks = 8, line_bytes = 64, queue = 32, write_batch = 1;
  std::int64_t occupancy_fs = 0;  ///< of one line on one channel
  Time access = 0, activate = 0, turnaround = 0, gap = 0;
  int page_bytes = 0;              ///< 0: every access finds its page open
  std::vector<double> node_share;  ///< of a channel's rate, by node; empty: 1
  std::vector<int> node_channels;  ///< by node; empty: channels
  // coherence
  Coherence coherence = Coherence::directory;
  Time directory = 0;  ///< from a request's arrival at the home to the forward's leaving it
  // packets
  int request_flits = 1, data_flits = 9, ack_flits = 1;
  bool bypass = true;  ///< a core reaches its own node's memory without the router
  Striping striping = Striping::none;
  int pair_dimension = 0;
};

NodeRules node_rules(const Graph& graph, const json& machine);

/// The node whose memory shares stripes with that of `node`.
std::uint32_t partner(const Graph& graph, const NodeRules& rules, std::uint32_t node);

enum class Op : std::uint8_t { read, own, write };  ///< own: read for ownership
enum class State : std::uint8_t { clean, dirty, shared };
enum class Homes : std::uint8_t { local, fixed, uniform, others, list };

/// One array or set of lines that an actor walks through.
struct Stream {
  Op op = Op::read;
  State state = State::clean;
  Homes homes = Homes::local;
  std::vector<std::uint32_t> nodes;  ///< fixed: one; list: those among which lines go round
  std::int32_t owner = -1;           ///< node whose cache holds the dirty line; -1: the home's own
  int sharers = 0;
  bool random = false;
  std::uint64_t base = 0, span_lines = 1 << 20;
  std::uint64_t stride_bytes = 0;  ///< 0: one line
  Time work = 0;                   ///< of the core, from an access to the next
};

/// One access of a trace; `own` writes.
struct Traced {
  std::uint64_t line = 0;
  std::uint32_t home = 0;  ///< node
  Op op = Op::read;
};

/// A core's (or an I/O port's) program: it walks its streams in turn, one line each.
struct Actor {
  std::uint32_t endpoint = 0;
  int chains = 1;             ///< outstanding reads at most; the core's own bound holds too
  Time think = 0;             ///< from a read's end to the next; with one chain only
  bool random_think = false;  ///< exponential, of mean `think`
  Time pace = 0;              ///< between two accesses at least: prescribes a rate
  std::uint64_t burst = 0;    ///< accesses of a memory phase; 0: it never rests
  Time rest = 0;              ///< from the last read's end of a memory phase to the next phase
  bool random_rest = false;   ///< exponential, of mean `rest`
  std::vector<Stream> streams;
  std::vector<Traced> trace;   ///< instead of streams: these, once; caches are endless and lines are tracked
  std::uint64_t accesses = 0;  ///< ends after these; 0: goes on
  Time start = 0;
  int group = 0;  ///< results are summed by group
};

struct Trial {
  std::vector<Actor> actors;
  Time warm = 0, measure = 0;  ///< measure 0: until all actors have ended
  int batches = 11;
  Time window = 0;  ///< of frames; 0: none
  std::uint64_t seed = 1;
  bool check = false;  ///< of traces: at most one core may write a line, and then none reads it
};

/// What one trial says of one group of actors; a batch is an equal part of the measured time.
struct GroupResult {
  std::vector<double> latency_ps, reads, bytes;  ///< by batch: summed latency of reads, their number, bytes moved
  std::vector<double> phase_ps, phases;          ///< by batch: summed length of the memory phases that ended, number
  Time ended = 0;                                ///< when its last actor ended; 0 where they go on
};

struct TrialResult {
  std::vector<GroupResult> groups;
  Time measured = 0;
  std::vector<double> output_busy;  ///< share of the measured time, by output
  std::vector<double> memory_busy;  ///< by memory endpoint (index order)
  std::uint64_t packet_hops = 0, answered = 0, asked = 0, hits = 0;
  bool credits_back = true;
};

using FrameSink = std::function<void(const json&)>;

/// Simulates one trial. Failure when nothing moves any more though requests are open; the message says who waits.
TrialResult simulate(const Graph& graph, const Routing& routing, const RouterRules& routers, const NodeRules& rules,
                     const Trial& trial, const FrameSink& frames = {});

}  // namespace mm::model

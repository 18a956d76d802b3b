#pragma once
/// An access of a core, and the transaction that completes it.
#include <cstdint>

#include "model/network/graph.hpp"
#include "model/network/network.hpp"
#include "model/trial.hpp"

namespace mm::model {

/// Kinds of events, numbered after the network's own kinds.
enum : std::uint32_t {
  kIssue = kFirstOfOthers,  ///< an actor may issue its next access
  kSend,                    ///< a message leaves its endpoint
  kLocal,                   ///< a request reaches its own node's memory, without the router
  kMemory,                  ///< a controller has the data (or has accepted the write)
  kProbed,                  ///< a core has looked up a probed line
  kDone,                    ///< the data has arrived and is used
  kWindow,                  ///< a frame is due
};

/// An access that a core issues.
struct Access {
  std::uint32_t actor = 0;
  std::uint32_t requester = 0;   ///< endpoint of the actor
  std::uint32_t node = 0;        ///< node of the requester
  std::uint32_t home = 0;        ///< node
  std::int32_t owner = -1;       ///< for a dirty line: node whose cache holds it; -1: the home
  std::uint32_t controller = 0;  ///< controller of the home
  std::uint64_t line = 0;
  std::uint64_t stripe = 0;  ///< index of the line within its controller
  Op op = Op::read;
  State state = State::clean;
  std::uint8_t sharers = 0;
  bool traced = false;
};

struct Transaction {
  Time issued = 0;
  Time due = 0;  ///< earliest known time at which its data is usable
  std::uint32_t actor = 0;
  std::uint32_t requester = 0;  ///< endpoint of the actor
  std::uint32_t home = 0;       ///< endpoint
  std::uint32_t owner = kNone;  ///< endpoint
  std::uint32_t next = kNone;   ///< next transaction in the pool
  std::int32_t pending = 0;     ///< outstanding answers
  std::uint64_t line = 0, stripe = 0;
  std::uint32_t held = 0;  ///< flits that it occupies in the controller's queue
  Op op = Op::read;
  State state = State::clean;
  std::uint8_t sharers = 0;
  bool traced = false;
};

}  // namespace mm::model

#pragma once
/// A trial: the programs of cores and I/O ports, their duration, and the seed.
#include <cstdint>
#include <vector>

#include "model/network/calendar.hpp"

namespace mm::model {

enum class Op : std::uint8_t { read, own, write };  ///< own: read for ownership
enum class State : std::uint8_t { clean, dirty, shared };
enum class Homes : std::uint8_t { local, fixed, uniform, others, list };

/// One array or set of lines that an actor accesses in order, or at random.
struct AccessStream {
  Op op = Op::read;
  State state = State::clean;
  Homes homes = Homes::local;
  std::vector<std::uint32_t> nodes;  ///< fixed: one node; list: the nodes over which lines are distributed
  std::int32_t owner = -1;           ///< node whose cache holds the dirty line; -1: the home
  int sharers = 0;
  bool random = false;
  std::uint64_t base = 0, span_lines = 1 << 20;
  std::uint64_t stride_bytes = 0;  ///< 0: one line
  Time work = 0;                   ///< time that the core works between two accesses
};

/// One access of a trace. `Op::own` counts as a write.
struct Traced {
  std::uint64_t line = 0;
  std::uint32_t home = 0;  ///< node
  Op op = Op::read;
};

/// The program of a core or an I/O port: it accesses its streams in turn, one line at a time.
struct Actor {
  std::uint32_t endpoint = 0;
  int chains = 1;             ///< maximum number of its outstanding reads, within the core's limit
  Time think = 0;             ///< time between the end of a read and the next read; only with one chain
  bool random_think = false;  ///< exponentially distributed with mean `think`
  Time pace = 0;              ///< minimum time between two accesses, which sets a rate
  std::uint64_t burst = 0;    ///< accesses per memory phase; 0: no rest
  Time rest = 0;              ///< time between the last read of a memory phase and the next phase
  bool random_rest = false;   ///< exponentially distributed with mean `rest`
  std::vector<AccessStream> streams;
  /// If it is not empty, the actor performs these accesses once, in order, instead of the accesses of `streams`. Caches
  /// are then unlimited, and the directory tracks which cores hold which lines.
  std::vector<Traced> trace;
  std::uint64_t accesses = 0;  ///< number of accesses after which it ends; 0: never
  Time start = 0;
  int group = 0;  ///< results are summed by group
};

struct Trial {
  std::vector<Actor> actors;
  Time warm = 0, measure = 0;  ///< measure 0: until all actors have ended
  int batches = 11;
  Time window = 0;  ///< length of the window of a frame; 0: no frames
  std::uint64_t seed = 1;
  bool traffic = false;  ///< count the lines that the CPUs of each node move from and to the memory of each node
  bool check = false;    ///< verify for traces that a line has one writer and then no reader
};

}  // namespace mm::model

#pragma once
/// What is simulated: the programs of cores and I/O ports, for how long, and with which seed.
#include <cstdint>
#include <vector>

#include "calendar.hpp"

namespace mm::model {

enum class Op : std::uint8_t { read, own, write };  ///< own: read for ownership
enum class State : std::uint8_t { clean, dirty, shared };
enum class Homes : std::uint8_t { local, fixed, uniform, others, list };

/// One array or set of lines that an actor accesses in order, or at random.
struct Stream {
  Op op = Op::read;
  State state = State::clean;
  Homes homes = Homes::local;
  std::vector<std::uint32_t> nodes;  ///< fixed: one; list: those among which lines are distributed
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

/// The program of a core or an I/O port: it accesses its streams in turn, one line each.
struct Actor {
  std::uint32_t endpoint = 0;
  int chains = 1;             ///< maximum of its outstanding reads, within the core's own bound
  Time think = 0;             ///< from a read's end to the next; with one chain only
  bool random_think = false;  ///< exponential, of mean `think`
  Time pace = 0;              ///< minimum between two accesses: sets a rate
  std::uint64_t burst = 0;    ///< accesses of a memory phase; 0: it never rests
  Time rest = 0;              ///< from the last read's end of a memory phase to the next phase
  bool random_rest = false;   ///< exponential, of mean `rest`
  std::vector<Stream> streams;
  std::vector<Traced> trace;   ///< instead of streams: these, once; caches are endless and lines are tracked
  std::uint64_t accesses = 0;  ///< ends after these; 0: never
  Time start = 0;
  int group = 0;  ///< results are summed by group
};

struct Trial {
  std::vector<Actor> actors;
  Time warm = 0, measure = 0;  ///< measure 0: until all actors have ended
  int batches = 11;
  Time window = 0;  ///< of frames; 0: none
  std::uint64_t seed = 1;
  bool check = false;  ///< of traces: that a line has one writer, and no reader besides it
};

}  // namespace mm::model

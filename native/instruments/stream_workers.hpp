#pragma once
/// The workers of `bandwidth`: threads of this process, or processes; all run the same job, each on its own part of the
/// arrays.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/memory.hpp"
#include "base/process_team.hpp"
#include "base/team.hpp"
#include "kernels/stream.hpp"

namespace mm::stream {

/// The arrays of one thread, at the same place for every kernel and footprint: a third of the footprint for c, half of
/// it for b (two-array kernels), all of it for a. b and c never change, so they are filled once.
struct Part {
  double *a, *b, *c;
  std::size_t a_bytes, b_bytes, c_bytes;

  static std::size_t arena_bytes(std::size_t footprint);
  Part(std::byte* base, std::size_t footprint);
  void fill() const;
};

/// One thread's memory and its arrays in it.
struct Share {
  std::shared_ptr<Arena> arena;
  Part part;
};

/// One kernel over n elements of each array, of one thread or process.
struct Job {
  StreamKernel kernel;
  StreamFunction function;
  std::size_t n;
  double factor;

  double run(const Part& p, std::uint64_t passes) const;
  /// Whether the result depends on the previous content of a; the other kernels overwrite it.
  bool fills() const { return kernel == StreamKernel::read || kernel == StreamKernel::update; }
  /// Whether the arrays have the values after `passes`; `sum` is the return value of the last pass.
  bool correct(const Part& p, std::uint64_t passes, double sum) const;
};

struct Workers {
  std::function<double(const Job&, std::uint64_t)> work;  ///< runs passes; s from the first begin to the last end
  std::function<void(const Job&)> fill;
  std::function<bool(const Job&, std::uint64_t)> correct;
};

Workers threads_on(const std::shared_ptr<Team>& team, const std::vector<Share>& shares);
Workers processes_on(const std::shared_ptr<ProcessTeam>& processes);

enum class Op : std::uint64_t { work, fill, verify, huge_share, node };

ProcessTeam::Order order_of(Op op, const Job& job, std::uint64_t passes);
/// The work of one process of the team. Each process allocates and touches its own memory.
ProcessTeam::Work serve(const MemoryRequest& request, std::size_t footprint);

}  // namespace mm::stream

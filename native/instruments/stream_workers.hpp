#pragma once
/// Who runs the kernels of `bandwidth`: threads of this process, or processes; all on the same job, each on its own
/// part of the arrays.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/memory.hpp"
#include "base/process_team.hpp"
#include "base/team.hpp"
#include "kernels/stream.hpp"

namespace mm::stream {

/// What one thread works on. The arrays stand where they are for every kernel and footprint, a third of the footprint
/// for c, half for b (two-array kernels), all of it for a: b and c never change, so that they are filled once.
struct Part {
  double *a, *b, *c;
  std::size_t a_bytes, b_bytes, c_bytes;

  static std::size_t arena_bytes(std::size_t footprint);
  Part(std::byte* base, std::size_t footprint);
  void fill() const;
};

/// One thread's memory and its place in it.
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
  /// Only these two depend on what a holds; the others overwrite it.
  bool fills() const { return kernel == StreamKernel::read || kernel == StreamKernel::update; }
  /// Whether the arrays hold what so many passes leave; `sum` is what the last pass returned.
  bool right(const Part& p, std::uint64_t passes, double sum) const;
};

struct Workers {
  std::function<double(const Job&, std::uint64_t)> work;  ///< so many passes; s from the first begin to the last end
  std::function<void(const Job&)> fill;
  std::function<bool(const Job&, std::uint64_t)> right;
};

Workers threads_on(const std::shared_ptr<Team>& team, const std::vector<Share>& shares);
Workers processes_on(const std::shared_ptr<ProcessTeam>& processes);

enum class Op : std::uint64_t { work, fill, right, huge_share, node };

ProcessTeam::Order order_of(Op op, const Job& job, std::uint64_t passes);
/// What one process of the team does with an order. Its memory is its own, made and touched by itself.
ProcessTeam::Work serve(const MemoryRequest& request, std::size_t footprint);

}  // namespace mm::stream

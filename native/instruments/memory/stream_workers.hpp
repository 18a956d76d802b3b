#pragma once
/// The workers of `bandwidth`: threads of this process, or processes. All run the same job, each on its own part of the
/// arrays.
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/resources/memory.hpp"
#include "base/resources/process_team.hpp"
#include "base/resources/team.hpp"
#include "kernels/stream.hpp"

namespace mm::stream {

/// The arrays of one thread, at the same place for every kernel and footprint: c has a third of the footprint, b a half
/// (for two-array kernels), and a all of it. b and c never change, so they are filled once.
struct StreamArrays {
  double *a, *b, *c;
  std::size_t a_bytes, b_bytes, c_bytes;

  static std::size_t arena_bytes(std::size_t footprint);
  StreamArrays(std::byte* base, std::size_t footprint);
  void fill() const;
};

/// One thread's memory and its arrays in it.
struct ThreadMemory {
  std::shared_ptr<Arena> arena;
  StreamArrays part;
};

/// One kernel over n elements of each array from element `first` on, for one thread or process.
struct StreamTask {
  StreamKernel kernel;
  StreamFunction function;
  std::size_t n;
  double factor;
  std::size_t first = 0;  ///< a multiple of 8, since the arrays are read and written by whole cache lines

  double run(const StreamArrays& p, std::uint64_t passes) const;
  /// Returns whether the result depends on the previous content of a; the other kernels overwrite it.
  bool reads_a() const { return kernel == StreamKernel::read || kernel == StreamKernel::update; }
  /// Returns whether the arrays have the expected values after `passes`; `sum` is the return value of the last pass.
  bool correct(const StreamArrays& p, std::uint64_t passes, double sum) const;
};

struct Workers {
  std::function<double(const StreamTask&, std::uint64_t)> work;  ///< runs passes; returns s, first begin to last end
  std::function<void(const StreamTask&)> fill;
  std::function<bool(const StreamTask&, std::uint64_t)> correct;
};

Workers threads_on(const std::shared_ptr<Team>& team, const std::vector<ThreadMemory>& shares);
Workers processes_on(const std::shared_ptr<ProcessTeam>& processes);

enum class WorkerCommand : std::uint64_t { work, fill, verify, huge_share, node };

ProcessTeam::Order order_of(WorkerCommand op, const StreamTask& job, std::uint64_t passes);

/// A compiled form of a kernel.
struct KernelForm {
  std::string_view isa;
  StreamFunction function;
  bool ahead;  ///< with a software prefetch
};

/// Returns the forms of a kernel with these instruction sets, in order: the wider set first, and plain before `ahead`.
/// Only streaming stores have forms with a software prefetch.
std::vector<KernelForm> forms_of(StreamKernel kernel, bool streaming, const std::vector<std::string_view>& isas);

/// Returns the fastest form whose results are correct. Short trials of the forms alternate, each on another part of the
/// arrays so that caches treat all forms alike. Forms within 3 % of the fastest tie, and the first of them wins, so
/// that noise does not decide. Returns `forms.front()` if no form is correct, since the samples are verified, too.
KernelForm fastest(const std::vector<KernelForm>& forms, const StreamTask& job, const Workers& workers);

/// Returns the work of one process of the team. Each process allocates and touches its own memory.
ProcessTeam::Work serve(const MemoryRequest& request, std::size_t footprint);

}  // namespace mm::stream

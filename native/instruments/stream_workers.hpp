#pragma once
/// The workers of `bandwidth`: threads of this process, or processes; all run the same job, each on its own part of the
/// arrays.
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
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

/// One kernel over n elements of each array from element `first` on, of one thread or process.
struct Job {
  StreamKernel kernel;
  StreamFunction function;
  std::size_t n;
  double factor;
  std::size_t first = 0;  ///< a multiple of 8, since the arrays are read and written by whole cache lines

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

/// A compiled form of a kernel.
struct Form {
  std::string_view isa;
  StreamFunction function;
  bool ahead;  ///< with a software prefetch
};

/// The forms of a kernel with these instruction sets, in order: the wider set first, and plain before `ahead`. Only
/// streaming stores have forms with a software prefetch.
std::vector<Form> forms_of(StreamKernel kernel, bool streaming, const std::vector<std::string_view>& isas);

/// The fastest form whose results are correct, by short trials in alternation, each on another part of the arrays so
/// that caches treat all forms alike. Forms within 3 % of the fastest tie, and the first of them wins, so that noise
/// does not decide. Returns `forms.front()` if none is correct: the samples are verified, too.
Form fastest(const std::vector<Form>& forms, const Job& job, const Workers& workers);

/// The work of one process of the team. Each process allocates and touches its own memory.
ProcessTeam::Work serve(const MemoryRequest& request, std::size_t footprint);

}  // namespace mm::stream

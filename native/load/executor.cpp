#include "load/executor.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mm::load {

using workloads::CountColumn, workloads::Kernel, workloads::Memory;

Executor::Executor(const SyntheticProgram& program) : program_(program) {
  for (std::size_t t = 0; t <= program.shares.size(); ++t)
    cumulative_shares_.push_back(
        t == program.shares.size()
            ? 1.0
            : std::accumulate(program.shares.begin(), program.shares.begin() + static_cast<std::ptrdiff_t>(t), 0.0));
  const auto on_all_threads = [this](const std::function<void(int)>& work) {
#pragma omp parallel num_threads(program_.threads)
    work(omp_get_thread_num());
  };
  for (const KernelVariant& part : program.parts) {
    Running r;
    r.memory = std::make_unique<Memory>(program.threads, on_all_threads);
    try {
      r.kernel = workloads::make(*part.entry, part.shape, *r.memory);
    } catch (const Absent& error) {
      throw Absent(part.name + ": " + error.what(), error.enable);
    }
    r.unit = r.kernel->counts();
    for (const CountColumn& c : workloads::kCountColumns) {
      const double actual = r.unit.*c.value * static_cast<double>(part.window), planned = part.planned.*c.value;
      if (std::fabs(actual - planned) > 1e-9 * std::max(actual, planned))
        throw Failure(part.name + ": a call counts " + json(actual).dump() + " " + c.name + ", but the file assumes " +
                      json(planned).dump() + "; make it again with this version");
    }
    memory_bytes_ += r.memory->bytes();
    running_.push_back(std::move(r));
  }
}

void Executor::call(std::size_t k) {
  Running& r = running_[k];
  const KernelVariant& part = program_.parts[k];
  if (program_.threads == 1) {
    work(r, part, 0);
  } else {
#pragma omp parallel num_threads(program_.threads)
    work(r, part, omp_get_thread_num());
  }
  r.cursor = (r.cursor + part.window) % r.kernel->units();
}

void Executor::spin(Ticks until) const {
#pragma omp parallel num_threads(program_.threads)
  while (ticks() < until) {}
}

/// Does a thread's share of a call. Units are independent, but when a walk restarts with another division, a unit may
/// move to a second thread while the first still works on it. The threads therefore synchronise.
void Executor::work(const Running& r, const KernelVariant& part, int rank) const {
  Kernel* const kernel = r.kernel.get();
  const std::size_t all = kernel->units();
  std::size_t first = r.cursor;
  for (std::size_t left = part.window; left > 0; first = 0) {
    const std::size_t n = std::min(left, all - first);
    const auto boundary = [&](int t) {
      return first + static_cast<std::size_t>(
                         std::llround(cumulative_shares_[static_cast<std::size_t>(t)] * static_cast<double>(n)));
    };
    if (part.entry->info.team)
      kernel->run(first, first + n, rank);
    else if (boundary(rank) < boundary(rank + 1))
      kernel->run(boundary(rank), boundary(rank + 1), rank);
    left -= n;
    const bool is_whole = first == 0 && n == all;
    if (left > 0 && !(is_whole && left >= all)) {
#pragma omp barrier
    }
  }
}

}  // namespace mm::load

#include "mpi/npb/threads.hpp"

#include <omp.h>

#include <string>

#include "base/error.hpp"
#include "base/team.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi::npb {
namespace {

std::size_t started = 1;

}  // namespace

std::size_t threads() { return started; }

std::size_t this_thread() { return static_cast<std::size_t>(omp_get_thread_num()); }

void expect_all_threads() {
  if (const auto found = static_cast<std::size_t>(omp_get_num_threads()); found != started)
    abort_job("OpenMP started " + std::to_string(found) + " of " + std::to_string(started) + " threads");
}

void start_threads(const std::vector<int>& cpus) {
  omp_set_dynamic(0);
  std::size_t found = 0;
  std::string why;
#pragma omp parallel num_threads(static_cast<int>(cpus.size()))
  {
    try {
      pin(cpus[this_thread()]);
    } catch (const Failure& failure) {
#pragma omp critical
      why = failure.what();
    }
#pragma omp single
    found = static_cast<std::size_t>(omp_get_num_threads());
  }
  if (!why.empty()) throw Failure(why);
  if (found < cpus.size())
    throw Absent("OpenMP started " + std::to_string(found) + " of " + std::to_string(cpus.size()) + " threads",
                 "unset OMP_THREAD_LIMIT");
  started = found;
}

}  // namespace mm::mpi::npb

#include "apps/npb/threads.hpp"

#include <omp.h>

#include <string>

#include "base/error.hpp"
#include "base/resources/team.hpp"
#include "mpi/harness/world.hpp"

namespace mm::mpi::npb {
namespace {

std::size_t started = 1;

}  // namespace

std::size_t threads() { return started; }

std::size_t this_thread() { return static_cast<std::size_t>(omp_get_thread_num()); }

void expect_all_threads() {
  if (const auto team_size = static_cast<std::size_t>(omp_get_num_threads()); team_size != started)
    abort_job("OpenMP started " + std::to_string(team_size) + " of " + std::to_string(started) + " threads");
}

void start_threads(const std::vector<int>& cpus) {
  omp_set_dynamic(0);
  std::size_t team_size = 0;
  std::string error;
#pragma omp parallel num_threads(static_cast<int>(cpus.size()))
  {
    try {
      pin(cpus[this_thread()]);
    } catch (const Failure& failure) {
#pragma omp critical
      error = failure.what();
    }
#pragma omp single
    team_size = static_cast<std::size_t>(omp_get_num_threads());
  }
  if (!error.empty()) throw Failure(error);
  if (team_size < cpus.size())
    throw Absent("OpenMP started " + std::to_string(team_size) + " of " + std::to_string(cpus.size()) + " threads",
                 "unset OMP_THREAD_LIMIT");
  started = team_size;
}

}  // namespace mm::mpi::npb

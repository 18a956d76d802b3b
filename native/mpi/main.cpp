/// meshmark-comm: runs an MPI instrument on the ranks of a job; rank 0 writes the results as JSON Lines.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/harness/instrument.hpp"
#include "base/harness/output.hpp"
#include "mpi/harness/world.hpp"
#include "program/instruments.hpp"

namespace {

/// Returns whether this is rank 0 according to the launcher's environment, before MPI_Init. Usage errors are then
/// reported once and not by all ranks.
bool is_first() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_RANKID", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
  return true;
}

/// Prints the kind of the MPI library, and its name and version, for `meshmark mpi build`.
int print_library() {
  const auto [kind, library] = mm::mpi::library_of();
  std::puts(mm::json{{"mpi", kind}, {"library", library}}.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--library") == 0) return print_library();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank whose launcher was killed would wait for the others forever
  mm::mute(!is_first());
  return mm::answer(
      argc, argv,
      {.name = "meshmark-comm",
       .summary = "Runs an MPI instrument on the ranks of this job; rank 0 writes JSON Lines.\n"
                  "example: mpirun -n 2 meshmark-comm halo --words 1..1000",
       .begin =
           [](const mm::Run& run) { mm::mpi::World::get().start(run.has("threads") && run.text("threads") != "1"); },
       .end = [](int status) { return mm::mpi::World::get().end(status); },
       .fail =
           [](const std::string& message) {
             if (mm::mpi::World::get().started()) mm::mpi::abort_job(message);
           }});
}

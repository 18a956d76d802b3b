/// A rank of meshmark-comm: asks one question of the ranks that run with it; rank 0 answers in JSON Lines.
#include <sys/prctl.h>

#include <csignal>
#include <cstdlib>

#include "base/output.hpp"
#include "mpi/harness/world.hpp"
#include "program/instruments.hpp"

namespace {

/// Before MPI_Init the launcher's environment alone tells which rank this is: a wrong word is said once, not by all.
bool is_first() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_RANKID", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank) == 0;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank whose launcher was killed waits for the others for ever
  mm::mute(!is_first());
  return mm::answer(argc, argv,
                    {.name = "meshmark-comm",
                     .summary = "Asks one question of the ranks that run with it; rank 0 answers in JSON Lines.\n"
                                "example: mpirun -n 2 meshmark-comm halo --words 1..1000",
                     .begin = [] { mm::mpi::World::get().start(); },
                     .end = [](int status) { return mm::mpi::World::get().end(status); },
                     .fail =
                         [](const std::string& why) {
                           if (mm::mpi::World::get().started()) mm::mpi::give_up(why);
                         }});
}

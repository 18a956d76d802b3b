#include "mpi/protocols/caf.hpp"

#include "mpi/harness/world.hpp"

extern "C" {
void _gfortran_caf_init(int* argc, char*** argv);  // NOLINT: reserved names of the runtime library
void _gfortran_caf_finalize();                     // NOLINT
}

namespace mm::mpi {

void start_coarrays() {
  static const bool started = [] {
    _gfortran_caf_init(nullptr, nullptr);
    World::get().at_end(_gfortran_caf_finalize);
    return true;
  }();
  (void)started;
}

}  // namespace mm::mpi

/// meshmark-comm: executes the program for the MPI library whose launcher started it, so that `mpirun -n 4
/// meshmark-comm halo` works with each. MESHMARK_MPI overrides the choice; without a launcher the first installed
/// program is used. Variables by which OpenMP would bind the process as it starts are removed: ranks would get the same
/// CPU, and those with threads bind them by themselves.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// The MPI library by the environment of its launcher: Open MPI first, then the process managers of MPICH derivatives.
std::string launcher() {
  if (const char* named = std::getenv("MESHMARK_MPI"); named != nullptr && *named != 0) return named;
  if (is_set("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (is_set("PMI_RANK") || is_set("PMI_SIZE") || is_set("HYDI_CONTROL_FD")) return "mpich";
  if (is_set("PMIX_RANK")) return "openmpi";
  return "";
}

}  // namespace

int main(int, char** argv) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> there;
  for (const char* kind : {"openmpi", "mpich", "mpi"})
    if (fs::exists(folder / (std::string("meshmark-comm-") + kind), ignored)) there.emplace_back(kind);
  const std::string wanted = launcher();
  std::string chosen;
  for (const std::string& kind : there)
    if (kind == wanted || (chosen.empty() && (wanted.empty() || kind == "mpi"))) chosen = kind;
  if (chosen.empty()) {
    std::string all;
    for (const std::string& kind : there) all += (all.empty() ? "" : ", ") + kind;
    std::fprintf(stderr, "meshmark-comm: absent: no program for %s; installed: %s\n",
                 wanted.empty() ? "any MPI library" : wanted.c_str(), all.empty() ? "none" : all.c_str());
    return 77;
  }
  for (const char* binding : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) unsetenv(binding);
  const std::string path = folder / ("meshmark-comm-" + chosen);
  execv(path.c_str(), argv);
  std::fprintf(stderr, "meshmark-comm: error: %s: %s\n", path.c_str(), std::strerror(errno));
  return 1;
}

/// meshmark-comm: executes the program for the MPI library whose launcher started it, so that `mpirun -n 4
/// meshmark-comm halo` works with each library. MESHMARK_MPI overrides the choice; without a launcher the first
/// installed program is used. Variables by which OpenMP would bind the process at its start are removed: all ranks
/// would get the same CPU, and ranks with threads bind these by themselves.
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

/// Returns the MPI library according to the environment of its launcher: Open MPI first, then the process managers of
/// MPICH derivatives.
std::string launcher() {
  if (const char* named = std::getenv("MESHMARK_MPI"); named != nullptr && *named != 0) return named;
  if (is_set("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (is_set("PMI_RANK") || is_set("PMI_SIZE") || is_set("HYDI_CONTROL_FD")) return "mpich";
  if (is_set("PMIX_RANK")) return "openmpi";
  return "";
}

}  // namespace

int main(int, char** argv) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> installed;
  for (const char* kind : {"openmpi", "mpich", "mpi"})
    if (fs::exists(folder / (std::string("meshmark-comm-") + kind), error)) installed.emplace_back(kind);
  const std::string requested = launcher();
  std::string selection;
  for (const std::string& kind : installed)
    if (kind == requested || (selection.empty() && (requested.empty() || kind == "mpi"))) selection = kind;
  if (selection.empty()) {
    std::string names;
    for (const std::string& kind : installed) names += (names.empty() ? "" : ", ") + kind;
    std::fprintf(stderr, "meshmark-comm: absent: no program for %s; installed: %s\n",
                 requested.empty() ? "any MPI library" : requested.c_str(), names.empty() ? "none" : names.c_str());
    return 77;
  }
  for (const char* binding : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) unsetenv(binding);
  const std::string path = folder / ("meshmark-comm-" + selection);
  execv(path.c_str(), argv);
  std::fprintf(stderr, "meshmark-comm: error: %s: %s\n", path.c_str(), std::strerror(errno));
  return 1;
}

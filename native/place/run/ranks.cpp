#include "place/run/ranks.hpp"

#include <unistd.h>

#include <cstdio>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/command.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place::job {

namespace {

int whole(const char* name) {
  const long long n = parse_integer(name, variable(name));
  if (n < 0 || n > 1 << 16) throw UsageError(name, "found " + std::to_string(n), "0 to 65536");
  return static_cast<int>(n);
}

/// Parses `4(x2),3`, the numbers of ranks on the nodes of a Slurm step, and returns the number on this node; 0 if
/// unknown.
int slurm_size() {
  const std::string name =
      variable("SLURM_STEP_TASKS_PER_NODE").empty() ? "SLURM_TASKS_PER_NODE" : "SLURM_STEP_TASKS_PER_NODE";
  if (variable(name.c_str()).empty()) return 0;
  int node = variable("SLURM_NODEID").empty() ? 0 : whole("SLURM_NODEID");
  for (const std::string& item : split(variable(name.c_str()), ',')) {
    int ranks = 0, times = 1;
    if (std::sscanf(item.c_str(), "%d(x%d)", &ranks, &times) < 1 || ranks < 1 || times < 1)
      throw UsageError(name, "found " + quote(variable(name.c_str())), "such as 4(x2),3");
    if (node < times) return ranks;
    node -= times;
  }
  return 0;
}

/// Identifies the parent process, which is the same for all ranks of a launch, and different for each launch.
std::string parent() {
  const std::string pid = std::to_string(getppid());
  const auto stat = parse_stat(read_text("/proc/" + pid + "/stat"));
  return "parent " + pid + " of " + (stat ? std::to_string(stat->started) : "");
}

}  // namespace

Rank rank_of_environment() {
  const auto is_set = [](const char* name) { return !variable(name).empty(); };
  const auto key = [](const std::string& launcher, const std::string& name) {
    return launcher + " " + (name.empty() ? parent() : name);
  };
  if (is_set("MESHMARK_RANK"))
    return {whole("MESHMARK_RANK"), is_set("MESHMARK_RANKS") ? whole("MESHMARK_RANKS") : 0,
            key("meshmark", variable("MESHMARK_JOB"))};
  if (is_set("OMPI_COMM_WORLD_LOCAL_RANK") && is_set("OMPI_COMM_WORLD_LOCAL_SIZE"))
    return {whole("OMPI_COMM_WORLD_LOCAL_RANK"), whole("OMPI_COMM_WORLD_LOCAL_SIZE"),
            key("openmpi", variable("PMIX_NAMESPACE"))};
  if (is_set("MPI_LOCALRANKID") && is_set("MPI_LOCALNRANKS"))
    return {whole("MPI_LOCALRANKID"), whole("MPI_LOCALNRANKS"), key("hydra", "")};
  if (is_set("FLUX_TASK_LOCAL_ID") && is_set("FLUX_JOB_ID"))
    return {whole("FLUX_TASK_LOCAL_ID"),
            variable("FLUX_JOB_NNODES") == "1" && is_set("FLUX_JOB_SIZE") ? whole("FLUX_JOB_SIZE") : 0,
            key("flux", variable("FLUX_JOB_ID"))};
  if (is_set("SLURM_LOCALID") && is_set("SLURM_STEP_ID"))
    return {whole("SLURM_LOCALID"), slurm_size(),
            key("slurm", variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID"))};
  // Counts are over all nodes: with several nodes the local ranks are unknown, and too many parts are refused later.
  if (is_set("PMI_RANK") && is_set("PMI_SIZE")) return {whole("PMI_RANK"), whole("PMI_SIZE"), key("pmi", "")};
  return {};
}

}  // namespace mm::place::job

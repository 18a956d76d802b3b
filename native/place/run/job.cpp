#include "place/run/job.hpp"
#include "place/sample/in_use.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/command.hpp"
#include "place/sample/in_use.hpp"

namespace mm::place::job {

namespace {

CommandPlacement requested_placement(const Options& o) {
  CommandPlacement job;
  Request& request = job.request;
  if (o.each) job.rank = rank_of_environment();
  const int slots = o.n > 0 ? o.n : job.rank.size;  // 0: unspecified
  PlacementSettings settings = read_settings(o.profile, o.bind, o.slots);
  if (settings.bind == "user") settings.bind = settings_of_environment(environment()).bind.value_or("none");
  if (settings.bind && is_affinity(*settings.bind)) {
    job.affinity = parse_affinity(*settings.bind, std::max(slots, 1));
    request = job.affinity->request;
    job.memory = job.affinity->memory;
  } else {
    parse_bind(settings.bind.value_or(o.n > 0 || o.each || !o.launcher.empty() ? "balance" : "none"), request);
    if (settings.kind) request.kind = *settings.kind;
    request.slots = slots > 0 ? slots : request.policy == "list" ? static_cast<int>(request.list.size()) : 1;
  }
  if (!o.sharing.empty()) request.sharing = read_sharing(o.sharing);
  if (o.memory || settings.memory) job.memory = parse_memory(o.memory ? *o.memory : *settings.memory);
  job.memory.pages = o.pages ? *o.pages : settings.pages.value_or("default");
  if (!o.bind) job.from = settings.from;
  request.prove = false;  // skip the proof, which does not affect the choice; `plan` computes it
  return job;
}

}  // namespace

CommandPlacement decide(const Options& o) {
  CommandPlacement job = requested_placement(o);
  job.machine = machine_of("host");
  if (!o.within.empty()) job.request.within = parse_cpu_list("within", o.within, job.machine.allowed);
  if (!o.matrix.empty()) use_matrix(job.machine, o.matrix);
  const Request& request = job.request;
  // A launcher that binds its ranks leaves each a part of the machine, which cannot contain the parts of the others.
  if (job.rank.index >= 0 && request.policy != "none")
    if (const auto max_slots = slots_of(job.machine, request.kind, job.machine.allowed).size();
        max_slots < static_cast<std::size_t>(request.slots))
      throw UsageError("bind",
                       "this rank may use CPUs " + cpu_list(job.machine.allowed) + ", which are too few for " +
                           std::to_string(request.slots) + " " + name(request.kind),
                       "a launcher that does not bind: mpirun --bind-to none, srun --cpu-bind=none");
  // Ranks start at once, so that they would avoid each other's CPUs.
  const bool chooses = request.policy != "none" && request.policy != "list" && job.rank.index < 0;
  std::set<int> in_use;
  if (chooses &&
      static_cast<std::size_t>(request.slots) < slots_of(job.machine, request.kind, job.machine.allowed).size())
    in_use = cpus_in_use();
  const auto by_policy = [&](Occupancy taken) {
    taken.in_use = in_use;
    return job.affinity ? place(job.machine, *job.affinity, taken) : place(job.machine, request, taken);
  };
  if (o.no_claim || request.policy == "none") {
    job.placement = by_policy({});
  } else {
    Reservation reservation;
    for (const std::string& word : o.recorded) reservation.command += (reservation.command.empty() ? "" : " ") + word;
    reservation.policy = request.policy;
    reservation.exclusive = request.exclude;
    if (job.rank.index >= 0) reservation.job = job.rank.job;
    job.held = Ledger().reserve(reservation, by_policy, o.wait_s);
    job.placement = job.held->placement;
  }
  const Layout& layout = job.placement.layout;
  job.cpus = layout.cpus();
  if (job.rank.index >= 0 && !layout.parts.empty()) {
    if (job.rank.index >= static_cast<int>(layout.parts.size()))
      throw UsageError("n",
                       "found local rank " + std::to_string(job.rank.index) + " and " +
                           std::to_string(layout.parts.size()) + " parts",
                       "-n with the ranks on this node, the same for all of them");
    job.cpus = layout.parts[static_cast<std::size_t>(job.rank.index)];
  }
  if (job.cpus.empty() && o.hard)
    throw UsageError("hard", "found with policy " + request.policy + ", which binds nothing", "a policy that binds");
  return job;
}

std::string summary(const Options& o, const CommandPlacement& job) {
  const Machine& m = job.machine;
  std::string text = job.request.policy + ": ";
  if (job.cpus.empty()) return text + "not bound";
  std::set<int> nodes;
  for (const int cpu : job.cpus) nodes.insert(m.cpu(cpu).node);
  const std::size_t all = slots_of(m, job.request.kind, m.allowed).size();
  if (job.rank.index >= 0) text += "rank " + std::to_string(job.rank.index) + " of ";
  text += std::to_string(job.placement.layout.parts.size()) + " of " + std::to_string(all) + " " +
          name(job.request.kind) + ": CPUs " + cpu_list(job.cpus) + " (relative " +
          cpu_list(relative(job.cpus, m.allowed)) + "), nodes " + cpu_list({nodes.begin(), nodes.end()}) +
          (o.hard ? ", hard" : ", soft");
  if (job.memory.policy != "default") {
    text += ", memory " + job.memory.policy;
    if (job.memory.policy != "local") text += " on nodes " + cpu_list(requested_nodes(m, job.memory, job.cpus));
  }
  if (job.memory.pages != "default") text += ", pages " + job.memory.pages;
  if (job.placement.oversubscribed) text += ", shared with other jobs";
  if (!job.from.empty()) text += " (" + job.from + ")";
  return text;
}

void bind_here(const Options& o, CommandPlacement& job) {
  if (job.held) setenv("MESHMARK_CLAIM", job.held->reservation.path.c_str(), 1);
  if (!job.cpus.empty()) {
    if (o.hard && job.held) {
      // One cpuset for all ranks of a reservation, journalled before its creation, so that both are removed together.
      const std::string& path = job.held->reservation.path;
      const std::string name = "meshmark-" + path.substr(path.rfind('-') + 1);
      Ledger().set_cgroup(*job.held, cpuset_folder(name));
      const auto nodes = job.memory.policy == "bind"
                             ? requested_nodes(job.machine, job.memory, job.placement.layout.cpus())
                             : std::vector<int>{};
      set_cpuset(name, job.placement.layout.cpus(), nodes);
    }
    set_affinity(job.cpus);
  }
  set_memory(job.machine, job.memory, job.cpus);
  set_pages(job.memory.pages);
}

void place_threads(const Options& o, const CommandPlacement& job) {
  Layout places = job.placement.layout;
  if (job.rank.index >= 0) places.parts = slots_of(job.machine, SlotKind::cores, job.cpus);
  if (places.parts.empty()) return;
  for (const auto& [name, value] : emit("omp-places", job.machine, places, {}).environment)
    if (o.openmp || name != "OMP_NUM_THREADS") setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace mm::place::job

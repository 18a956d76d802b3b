#include "place/mix/rates.hpp"

#include <algorithm>
#include <set>

#include "place/policy/policy.hpp"
#include "place/policy/view.hpp"

namespace mm::place::mix {

Rates::Rates(const Machine& machine, const Settings& settings) : machine_(machine), settings_(settings) {
  const std::vector<int> allowed = policy::allowed_to(machine, settings.request);
  cpus_ = allowed.size();
  for (const int id : allowed) siblings_[machine.cpu(id).core].push_back(id);
  cores_ = siblings_.size();
}

std::vector<double> Rates::node_share(const Placement& placement) const {
  std::vector<double> share(machine_.nodes.size(), 0.0);
  const std::vector<std::vector<int>>& parts = placement.layout.parts;
  if (parts.empty()) {
    for (double& s : share) s = 1.0 / static_cast<double>(share.size());
    return share;
  }
  for (const std::vector<int>& part : parts)
    for (const int id : part)
      share[machine_.node_at(machine_.cpu(id).node)] += 1.0 / static_cast<double>(part.size() * parts.size());
  return share;
}

/// Returns the rate of the one thread that a job runs in a slot, which contains whole cores or one CPU of a core.
double Rates::slot_rate(const std::vector<int>& part, const Occupancy& taken) const {
  std::set<int> cores;
  int claims = 0;
  for (const int id : part) {
    cores.insert(machine_.cpu(id).core);
    const auto at = taken.jobs.find(id);
    if (at != taken.jobs.end()) claims = std::max(claims, at->second);
  }
  double capacity = static_cast<double>(cores.size());
  if (settings_.request.kind == SlotKind::threads) {
    // A busy CPU has an equal share of what its core does.
    int busy = 0;
    for (const int id : siblings_.at(*cores.begin())) busy += taken.jobs.contains(id) && taken.jobs.at(id) > 0 ? 1 : 0;
    capacity = busy > 1 ? settings_.core_yield / busy : 1.0;
  } else if (claims > static_cast<int>(cores.size()) && part.size() > cores.size()) {
    capacity *= settings_.core_yield;
  }
  return std::min(1.0, capacity / std::max(1, claims));
}

void Rates::set(std::vector<RunningJob>& running, const std::vector<MixJob>& jobs, const Occupancy& taken) const {
  double unbound = 0;
  for (const RunningJob& r : running)
    if (r.placement.layout.parts.empty()) unbound += jobs[r.job].slots;
  const auto cores = static_cast<double>(cores_);
  // Threads in excess of the cores are second threads of cores, until all CPUs are busy.
  const double doubled = cpus_ > cores_ ? std::clamp((unbound - cores) / cores, 0.0, 1.0) : 0.0;
  const double unbound_rate =
      std::min(1.0, cores * (1 + (settings_.core_yield - 1) * doubled) / std::max(1.0, unbound));
  for (RunningJob& r : running) {
    const auto& parts = r.placement.layout.parts;
    if (parts.empty()) {
      r.rate = unbound_rate;
      continue;
    }
    double sum = 0;
    for (const std::vector<int>& part : parts) sum += slot_rate(part, taken);
    r.rate = sum / static_cast<double>(parts.size());
  }
  if (settings_.node_bytes_per_s > 0) share_bandwidth(running, jobs);
}

/// Raises the traffic of all jobs together until a node is saturated, holds the jobs that use this node, and continues
/// with the others.
void Rates::share_bandwidth(std::vector<RunningJob>& running, const std::vector<MixJob>& jobs) const {
  const std::size_t nodes = machine_.nodes.size();
  std::vector<double> used(nodes, 0.0);
  std::vector<RunningJob*> active;
  for (RunningJob& r : running)
    if (jobs[r.job].bytes_per_s > 0) active.push_back(&r);
  const auto demand = [&](const RunningJob& r, std::size_t node) {
    return r.rate * jobs[r.job].bytes_per_s * r.node_share[node];
  };
  while (!active.empty()) {
    double factor = 1;
    std::size_t full = nodes;
    for (std::size_t n = 0; n < nodes; ++n) {
      double total = 0;
      for (const RunningJob* r : active) total += demand(*r, n);
      const double possible = total > 0 ? std::max(0.0, settings_.node_bytes_per_s - used[n]) / total : 1.0;
      if (possible < factor) {
        factor = possible;
        full = n;
      }
    }
    if (full == nodes) return;
    std::vector<RunningJob*> rest;
    for (RunningJob* r : active) {
      if (r->node_share[full] == 0) {
        rest.push_back(r);
        continue;
      }
      r->rate *= factor;
      for (std::size_t n = 0; n < nodes; ++n) used[n] += demand(*r, n);
    }
    active = std::move(rest);
  }
}

}  // namespace mm::place::mix

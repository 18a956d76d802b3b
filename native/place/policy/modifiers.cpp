#include "place/policy/choose.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/options/options.hpp"

namespace mm::place::policy {

namespace {

std::vector<Index> near_nodes(const Machine& machine, const std::string& near) {
  std::set<Index> nodes;
  if (near.rfind("node:", 0) == 0) {
    nodes.insert(machine.node_at(static_cast<int>(parse_integer("near", near.substr(5)))));
    return {nodes.begin(), nodes.end()};
  }
  const std::vector<Device> devices =
      machine.origin == "host" && machine.devices.empty() ? host_devices() : machine.devices;
  std::string names = "node:N";
  for (const Device& d : devices) {
    names += ", " + d.name;
    if (d.name != near) continue;
    for (const Cpu& c : machine.cpus)
      if (std::find(d.cpus.begin(), d.cpus.end(), c.id) != d.cpus.end()) nodes.insert(machine.node_at(c.node));
  }
  if (nodes.empty()) throw UsageError("near", "found " + quote(near), names);
  return {nodes.begin(), nodes.end()};
}

}  // namespace

std::vector<std::vector<Index>> rings(const View& view) {
  std::vector<Index> all(view.slots.size());
  std::iota(all.begin(), all.end(), Index{0});
  if (view.request.near.empty()) return {all};
  const std::vector<Index> targets = near_nodes(view.machine, view.request.near);
  std::map<double, std::vector<Index>> slots_by_distance;
  for (const Index i : all) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const Index t : targets)
      for (const auto& [n, share] : view.slots[i].nodes) nearest = std::min(nearest, n == t ? 0 : view.apart(n, t));
    if (!std::isfinite(nearest))
      throw UsageError("near", "the matrix has no distance for " + view.request.near, "nodes in the matrix");
    slots_by_distance[nearest].push_back(i);
  }
  std::vector<std::vector<Index>> sets;
  std::vector<Index> so_far;
  for (const auto& [distance, slots] : slots_by_distance) {
    so_far.insert(so_far.end(), slots.begin(), slots.end());
    std::sort(so_far.begin(), so_far.end());
    sets.push_back(so_far);
  }
  return sets;
}

std::vector<std::vector<Index>> within_hops(const View& view) {
  std::vector<Index> all(view.slots.size());
  std::iota(all.begin(), all.end(), Index{0});
  if (!view.request.max_hops) return {all};
  std::vector<std::vector<Index>> sets;
  for (const std::vector<int>& hops : view.machine.hops()) {  // from each node as the home of the job
    std::vector<Index> slots;
    std::copy_if(all.begin(), all.end(), std::back_inserter(slots), [&](Index i) {
      const auto& nodes = view.slots[i].nodes;
      return std::all_of(nodes.begin(), nodes.end(),
                         [&](const auto& share) { return hops[share.first] <= *view.request.max_hops; });
    });
    const bool is_new = std::find(sets.begin(), sets.end(), slots) == sets.end();
    if (is_new && slots.size() >= view.slots_needed()) sets.push_back(std::move(slots));
  }
  return sets;
}

namespace {

Picked pick_among(const View& view, const std::string& policy, const std::vector<Index>& among, bool oversubscribe,
                  double effort) {
  if (policy == "balance") return balance(view, among, oversubscribe);
  if (policy == "pack") return pack(view, among);
  if (policy == "compact") return compact(view, among, effort);
  if (policy == "scatter") return scatter(view, among);
  if (policy == "sharing") return sharing(view, among);
  if (policy == "any") return any(view, among);
  throw Failure("unexpected policy " + policy);
}

}  // namespace

Picked pick(const View& view, const std::string& policy) {
  const auto near_sets = rings(view), hop_sets = within_hops(view);
  for (const bool oversubscribe : {false, true}) {
    for (const auto& ring : near_sets) {
      Picked best;
      for (const auto& hops : hop_sets) {
        std::vector<Index> slots;
        std::set_intersection(ring.begin(), ring.end(), hops.begin(), hops.end(), std::back_inserter(slots));
        Picked candidate = pick_among(view, policy, slots, oversubscribe, 1 / static_cast<double>(hop_sets.size()));
        if (!candidate) continue;
        if (policy != "compact") return candidate;
        // A bound is valid for its set of nodes; for the job, the minimum over all sets.
        const bool better = !best || candidate->cost < best->cost;
        const std::int64_t floor = best ? std::min(candidate->floor, best->floor) : candidate->floor;
        const double bound =
            std::min(candidate->bound.value_or(0), best ? best->bound.value_or(0) : candidate->bound.value_or(0));
        if (better) best = candidate;
        best->floor = floor;
        if (hop_sets.size() > 1) best->bound = bound, best->optimal = floor == best->cost;
        if (view.slots_needed() > 1)
          best->why = best->optimal ? "minimum mean distance, proven" : "smallest mean distance found";
      }
      if (best) return best;
    }
    if (policy != "balance") break;
  }
  return {};
}

}  // namespace mm::place::policy

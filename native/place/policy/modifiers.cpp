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

/// Computes all maximal sets of nodes that are pairwise near (Bron and Kerbosch, 1973, with a pivot), at most kMax of
/// them.
class Cliques {
 public:
  static constexpr Index kMax = 4096;

  explicit Cliques(std::vector<std::vector<bool>> near) : near_(std::move(near)) {
    std::vector<Index> all(near_.size());
    std::iota(all.begin(), all.end(), Index{0});
    grow({}, all, {});
    std::sort(found.begin(), found.end());
  }
  std::vector<std::vector<Index>> found;

 private:
  void grow(std::vector<Index> chosen, std::vector<Index> open, std::vector<Index> done) {
    if (found.size() >= kMax) return;
    if (open.empty()) {
      if (!done.empty()) return;
      std::sort(chosen.begin(), chosen.end());
      found.push_back(std::move(chosen));
      return;
    }
    const auto near_to = [&](const std::vector<Index>& nodes, Index to) {
      std::vector<Index> near;
      std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(near), [&](Index i) { return near_[i][to]; });
      return near;
    };
    Index pivot = open.front(), max_near = 0;
    for (const auto* nodes : {&open, &done})
      for (const Index i : *nodes)
        if (const Index n = near_to(open, i).size(); n > max_near) max_near = n, pivot = i;
    for (const Index i : std::vector<Index>(open)) {
      if (i != pivot && near_[i][pivot]) continue;
      std::vector<Index> next = chosen;
      next.push_back(i);
      std::vector<Index> near_open = near_to(open, i), near_done = near_to(done, i);
      near_open.erase(std::remove(near_open.begin(), near_open.end(), i), near_open.end());
      grow(std::move(next), std::move(near_open), std::move(near_done));
      open.erase(std::find(open.begin(), open.end(), i));
      done.push_back(i);
    }
  }
  std::vector<std::vector<bool>> near_;
};

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

std::vector<std::vector<Index>> within_hops(const View& view, bool& complete) {
  complete = true;
  std::vector<Index> all(view.slots.size());
  std::iota(all.begin(), all.end(), Index{0});
  if (!view.request.max_hops) return {all};
  const Machine& m = view.machine;
  const Index nodes = m.nodes.size();
  std::map<double, std::pair<int, int>> values;  // each distance, with a pair of nodes that has it
  for (Index a = 0; a < nodes; ++a)
    for (Index b = 0; b < nodes; ++b)
      if (a != b) values.emplace(m.distance[a][b], std::pair{m.nodes[a].id, m.nodes[b].id});
  const std::vector<std::pair<double, std::pair<int, int>>> sorted(values.begin(), values.end());
  const auto end = std::partition_point(sorted.begin(), sorted.end(), [&](const auto& v) {
    return m.hops(v.second.first, v.second.second) <= *view.request.max_hops;
  });
  const double limit = end == sorted.begin() ? -1 : std::prev(end)->first;
  std::vector<std::vector<bool>> near(nodes, std::vector<bool>(nodes));
  for (Index a = 0; a < nodes; ++a)
    for (Index b = 0; b < nodes; ++b) near[a][b] = a == b || (m.distance[a][b] <= limit && m.distance[b][a] <= limit);
  const Cliques cliques(std::move(near));
  complete = cliques.found.size() < Cliques::kMax;
  std::vector<std::vector<Index>> sets;
  for (const auto& clique : cliques.found) {
    std::vector<Index> slots;
    for (const Index i : all)
      if (std::all_of(view.slots[i].nodes.begin(), view.slots[i].nodes.end(),
                      [&](const auto& share) { return std::binary_search(clique.begin(), clique.end(), share.first); }))
        slots.push_back(i);
    if (slots.size() >= view.slots_needed()) sets.push_back(std::move(slots));
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
  bool complete = true;
  const auto near_sets = rings(view), hop_sets = within_hops(view, complete);
  for (const bool oversubscribe : {false, true}) {
    for (const auto& ring : near_sets) {
      Picked best;
      for (const auto& hops : hop_sets) {
        std::vector<Index> slots;
        std::set_intersection(ring.begin(), ring.end(), hops.begin(), hops.end(), std::back_inserter(slots));
        Picked candidate = pick_among(view, policy, slots, oversubscribe, 1 / static_cast<double>(hop_sets.size()));
        if (!candidate) continue;
        if (policy != "compact") return candidate;
        // A bound is valid for its set of nodes; for the job, the minimum over all sets, if all were tried.
        const bool better = !best || candidate->cost < best->cost;
        const std::int64_t floor = best ? std::min(candidate->floor, best->floor) : candidate->floor;
        const double bound =
            std::min(candidate->bound.value_or(0), best ? best->bound.value_or(0) : candidate->bound.value_or(0));
        if (better) best = candidate;
        best->floor = floor;
        if (hop_sets.size() > 1) best->bound = complete ? bound : 0, best->optimal = complete && floor == best->cost;
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

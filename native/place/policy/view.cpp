#include "place/policy/view.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "place/policy/policy.hpp"

namespace mm::place::policy {

namespace {

std::vector<int> of_kind(const Machine& machine, const std::string& kind, const std::vector<int>& cpus) {
  for (const CoreKind& part : kinds_of(machine, cpus))
    if (part.name == kind) return part.cpus;
  std::vector<std::string> names;
  for (const CoreKind& core_kind : machine.kinds) names.push_back(core_kind.name);
  if (std::find(names.begin(), names.end(), kind) != names.end())
    throw UsageError("kind", "found " + quote(kind) + ", whose CPUs may not be used here", cpu_list(cpus));
  if (names.empty())
    throw UsageError("kind", "found " + quote(kind) + ", but the cores of this machine are alike", "no kind=");
  throw UsageError("kind", "found " + quote(kind), joined(names));
}

}  // namespace

std::vector<int> allowed_to(const Machine& machine, const Request& request) {
  const auto of_requested_kind = [&](const std::vector<int>& cpus) {
    return request.core_kind.empty() ? cpus : of_kind(machine, request.core_kind, cpus);
  };
  if (request.within.empty()) return of_requested_kind(machine.allowed);
  std::vector<int> within = request.within;
  std::sort(within.begin(), within.end());
  for (const int cpu : within)
    if (!std::binary_search(machine.allowed.begin(), machine.allowed.end(), cpu))
      throw UsageError("within", "found CPU " + std::to_string(cpu) + ", which this process may not use",
                       cpu_list(machine.allowed));
  return of_requested_kind(within);
}

View view_of(const Machine& machine, const Request& request, const Occupancy& taken) {
  View view{machine, request, {}, {}};
  for (Index i = 0; i < machine.nodes.size(); ++i) view.node_index[machine.nodes[i].id] = i;
  const Holdings held(machine, taken);
  for (auto& cpus : slots_of(machine, request.kind, allowed_to(machine, request))) {
    const Cpu& first = machine.cpu(cpus.front());
    Slot slot{std::move(cpus), first.core, first.l3, first.package, first.kind, {}, 0, false};
    std::map<Index, double> share;
    for (const int id : slot.cpus) {
      const Cpu& cpu = machine.cpu(id);
      share[view.node_index.at(cpu.node)] += 1.0 / static_cast<double>(slot.cpus.size());
      slot.load = std::max(slot.load, held.on(id));
      slot.closed =
          slot.closed || held.alone.count(cpu.core) != 0 || (request.exclude && held.used.count(cpu.core) != 0);
    }
    slot.nodes.assign(share.begin(), share.end());
    view.slots.push_back(std::move(slot));
  }
  return view;
}

std::vector<Index> free_of(const View& view, const std::vector<Index>& among) {
  std::vector<Index> free;
  std::copy_if(among.begin(), among.end(), std::back_inserter(free), [&](Index s) { return view.is_free(s); });
  return free;
}

std::map<int, Index> socket_sizes(const View& view) {
  std::map<int, Index> size;
  for (const Slot& s : view.slots) ++size[s.package];
  return size;
}

Classes::Classes(const View& view, const std::vector<Index>& among) {
  std::map<std::tuple<std::vector<std::pair<Index, double>>, int, int, int>, Index> class_by_key;
  std::vector<Index> class_by_slot;  // class of each slot
  for (Index i = 0; i < view.slots.size(); ++i) {
    const Slot& s = view.slots[i];
    const int core = view.request.kind == SlotKind::cores ? -1 : s.core;
    const auto [at, fresh] = class_by_key.emplace(std::tuple{s.nodes, s.l3, s.package, core}, first.size());
    if (fresh) {
      first.push_back(i);
      free.emplace_back();
    }
    class_by_slot.push_back(at->second);
  }
  for (const Index i : free_of(view, among)) free[class_by_slot[i]].push_back(i);
}

void Classes::drop_taken() {
  for (Index c = first.size(); c-- > 0;) {
    if (!free[c].empty()) continue;
    first.erase(first.begin() + static_cast<long>(c));
    free.erase(free.begin() + static_cast<long>(c));
  }
}

}  // namespace mm::place::policy

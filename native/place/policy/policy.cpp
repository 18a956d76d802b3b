#include "place/policy/policy.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "base/text.hpp"
#include "place/command.hpp"
#include "place/policy/choose.hpp"

namespace mm::place {
namespace {

using policy::allowed_to;
using policy::Holdings;
using policy::Index;
using policy::Picked;
using policy::View;

std::string units(SlotKind kind, Index count) {
  const char* word = kind == SlotKind::procs ? "socket" : kind == SlotKind::cores ? "core" : "thread";
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

Placement place_list(const Machine& machine, const Request& request, const Occupancy& taken) {
  const std::vector<int> allowed = allowed_to(machine, request);
  if (request.list.empty()) throw UsageError("bind", "the policy 'list' found no CPUs", "list=0-3,8");
  const Holdings held(machine, taken);
  std::set<int> distinct;
  Placement placement;
  for (const int cpu : request.list) {
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu))
      throw UsageError("bind", "found CPU " + std::to_string(cpu) + " in the list, which this process may not use",
                       cpu_list(allowed));
    if (!distinct.insert(cpu).second)
      throw UsageError("bind", "found CPU " + std::to_string(cpu) + " twice", "each CPU once");
    const int core = machine.cpu(cpu).core;
    if (held.alone.count(core) != 0 || (request.exclude && held.used.count(core) != 0))
      throw Busy("CPU " + std::to_string(cpu) + " of the list is held by another job");
    placement.oversubscribed = placement.oversubscribed || held.on(cpu) > 0;
  }
  const Index parts = static_cast<Index>(request.slots), cpus = request.list.size();
  if (parts > cpus)
    throw UsageError("slots",
                     "found " + std::to_string(parts) + " parts for a list of " + std::to_string(cpus) + " CPUs",
                     "at most one part per CPU");
  for (Index i = 0; i < parts; ++i) {
    std::vector<int> part(request.list.begin() + static_cast<long>(i * cpus / parts),
                          request.list.begin() + static_cast<long>((i + 1) * cpus / parts));
    std::sort(part.begin(), part.end());
    placement.layout.parts.push_back(std::move(part));
  }
  placement.why = placement.oversubscribed ? "as listed; other jobs hold some of these CPUs" : "as listed";
  return placement;
}

void check(const Request& request) {
  bool is_known = false;
  std::string names;
  for (const auto& [policy, help] : policies()) {
    if (policy == "user") continue;
    is_known = is_known || policy == request.policy;
    names += (names.empty() ? "" : ", ") + policy;
  }
  if (!is_known) throw UsageError("bind", "found policy " + quote(request.policy), names);
  if (request.slots < 1) throw UsageError("slots", "found " + std::to_string(request.slots), "1 or more");
  if (!request.list.empty() && request.policy != "list")
    throw UsageError("bind", "found policy " + quote(request.policy) + " and the list " + cpu_list(request.list),
                     "one of the two");
  if ((request.policy == "list" || request.policy == "none") && (!request.near.empty() || request.max_hops))
    throw UsageError("bind", quote(request.policy) + " does not choose slots, so near= and distance<= do not apply",
                     "other policies with these modifiers");
  if (request.policy == "none" && !request.core_kind.empty())
    throw UsageError("bind", "'none' uses no CPUs, so kind= does not apply", "other policies with kind=");
  if (request.policy == "none" && request.exclude)
    throw UsageError("bind", "'none' uses no CPUs, so exclude does not apply", "other policies with exclude");
  if (request.policy != "sharing") return;
  if (!request.sharing)
    throw UsageError("sharing", "the policy 'sharing' found neither traffic nor bandwidth demand",
                     "a file (--sharing)");
  const Index n = static_cast<Index>(request.slots);
  const PartDemands& s = *request.sharing;
  for (const Index parts : {s.traffic.size(), s.bandwidth_demand.size()})
    if (parts != 0 && parts != n)
      throw UsageError("sharing", "found " + std::to_string(parts) + " parts", std::to_string(n) + ", one per slot");
}

/// Chooses among slots that no program without a reservation uses, if there are enough of them, otherwise among all.
Picked pick_unused_first(const View& view, const std::set<int>& in_use) {
  View unused = view;
  std::vector<int> avoided;
  for (policy::Slot& slot : unused.slots)
    for (const int cpu : slot.cpus)
      if (slot.load == 0 && !slot.closed && in_use.contains(cpu)) slot.closed = true, avoided.push_back(cpu);
  if (!avoided.empty()) {
    std::sort(avoided.begin(), avoided.end());
    Picked picked = policy::pick(unused, view.request.policy);
    if (picked && !picked->oversubscribed) {
      picked->why += "; other programs use CPUs " + cpu_list(avoided);
      return picked;
    }
  }
  return policy::pick(view, view.request.policy);
}

std::string limits_of(const Request& request) {
  std::string text;
  if (!request.near.empty()) text += " near " + request.near;
  if (request.max_hops) text += " within " + std::to_string(*request.max_hops) + " hops";
  if (!request.core_kind.empty()) text += " on " + request.core_kind + " cores";
  if (request.exclude) text += " with exclusive CPUs";
  return text;
}

}  // namespace

std::vector<int> Layout::cpus() const {
  std::vector<int> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<std::vector<int>> slots_of(const Machine& machine, SlotKind kind, const std::vector<int>& within) {
  std::map<std::tuple<int, int, int>, std::vector<int>> slots;
  for (const int id : within) {
    const Cpu& c = machine.cpu(id);
    const bool core = kind != SlotKind::procs, thread = kind == SlotKind::threads;
    slots[{c.package, core ? c.core : 0, thread ? c.smt : 0}].push_back(id);
  }
  std::vector<std::vector<int>> result;
  for (auto& [where, cpus] : slots) {
    std::sort(cpus.begin(), cpus.end());
    result.push_back(std::move(cpus));
  }
  return result;
}

Placement place(const Machine& machine, const Request& request, const Occupancy& taken) {
  check(request);
  allowed_to(machine, request);  // also checks limits that the chosen policy would not use
  if (request.policy == "none") return {{}, "not bound", false, {}, {}, false};
  if (request.policy == "list") return place_list(machine, request, taken);
  const View view = policy::view_of(machine, request, taken);
  const std::string where = request.within.empty() ? " may be used here" : " are in " + cpu_list(request.within);
  if (view.slots_needed() > view.slots.size())
    throw UsageError(
        "slots",
        "found " + std::to_string(request.slots) + ", but only " + units(request.kind, view.slots.size()) + where,
        "1 to " + std::to_string(view.slots.size()));
  if (request.policy == "pack" && request.one_package) {
    Index largest = 0;
    for (const auto& [package, size] : policy::socket_sizes(view)) largest = std::max(largest, size);
    if (view.slots_needed() > largest)
      throw UsageError("slots",
                       "found " + std::to_string(request.slots) + " for pack(socket=1), but no socket has more than " +
                           units(request.kind, largest),
                       "1 to " + std::to_string(largest));
  }
  const Picked picked = pick_unused_first(view, taken.in_use);
  if (!picked) {
    const View empty = policy::view_of(machine, request, {});
    if (!policy::pick(empty, request.policy == "pack" ? "pack" : "any"))
      throw UsageError(
          "slots",
          "found " + std::to_string(request.slots) + ": this machine has no suitable slots" + limits_of(request),
          "fewer slots, or a wider limit");
    Index free = 0;
    for (Index i = 0; i < view.slots.size(); ++i) free += view.is_free(i) ? 1 : 0;
    throw Busy(request.policy + ": no slots for " + units(request.kind, view.slots_needed()) + limits_of(request) +
               ": " + std::to_string(free) + " of " + units(request.kind, view.slots.size()) + " are free");
  }

  Placement placement;
  for (const Index i : picked->slots) placement.layout.parts.push_back(view.slots[i].cpus);
  placement.oversubscribed = picked->oversubscribed;
  placement.why = picked->why;
  placement.optimal = picked->optimal;
  if (picked->slots.size() > 1 && !machine.distance_from.empty()) {
    double sum = 0;
    for (Index i = 0; i < picked->slots.size(); ++i)
      for (Index j = 0; j < i; ++j) sum += view.distance(picked->slots[i], picked->slots[j]);
    placement.mean_distance = sum / (static_cast<double>(picked->slots.size() * (picked->slots.size() - 1)) / 2);
    if (request.policy == "compact") placement.bound = placement.optimal ? placement.mean_distance : picked->bound;
    const double mean = placement.mean_distance.value_or(0), bound = placement.bound.value_or(0);
    if (request.policy == "compact" && !placement.optimal && bound > 0)
      placement.why += ", at most " + four_digits(100 * (mean / bound - 1)) + " % above the minimum";
  }
  return placement;
}

void occupy(Occupancy& taken, const Placement& placement, bool exclusive) {
  for (const int cpu : placement.layout.cpus()) {
    ++taken.jobs[cpu];
    if (exclusive) taken.exclusive[cpu] = true;
  }
}

}  // namespace mm::place

#include "place/policy/choose.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace mm::place::policy {

Picked balance(const View& view, const std::vector<Index>& among, bool oversubscribe) {
  std::map<int, std::pair<int, int>> sockets;  // package → occupied slots, their jobs
  for (const Slot& s : view.slots) {
    sockets[s.package].first += s.load > 0 || s.closed ? 1 : 0;
    sockets[s.package].second += s.load;
  }
  Pick pick;
  std::set<Index> candidates(among.begin(), among.end());
  while (pick.slots.size() < view.slots_needed()) {
    const auto key = [&](Index i) {
      const Slot& s = view.slots[i];
      const auto& [occupied, jobs] = sockets[s.package];
      return std::tuple{s.load, s.kind, s.load == 0 ? occupied : jobs, s.package, i};
    };
    Index best = kNone;
    for (const Index i : candidates)
      if (!view.slots[i].closed && (best == kNone || key(i) < key(best))) best = i;
    if (best == kNone) return {};
    const Slot& s = view.slots[best];
    if (s.load > 0 && (!oversubscribe || view.request.exclude)) return {};
    pick.oversubscribed = pick.oversubscribed || s.load > 0;
    sockets[s.package].first += s.load == 0 ? 1 : 0;
    ++sockets[s.package].second;
    candidates.erase(best);
    pick.slots.push_back(best);
  }
  pick.why = pick.oversubscribed ? "all slots are occupied: those with the fewest jobs, emptiest socket first"
                                 : "each on the socket with the fewest occupied slots";
  return pick;
}

Picked pack(const View& view, const std::vector<Index>& among) {
  std::map<int, std::vector<Index>> sockets;
  for (const Index i : free_of(view, among)) sockets[view.slots[i].package].push_back(i);
  Index largest = 0;
  for (const auto& [package, size] : socket_sizes(view)) largest = std::max(largest, size);
  Pick pick;
  const bool fits_one = view.slots_needed() <= largest;
  std::string socket_names;
  while (pick.slots.size() < view.slots_needed()) {
    // Use the fullest socket that has room for the rest. Otherwise, use the emptiest socket, but only for a job
    // that is too large for any socket.
    const Index needed = view.slots_needed() - pick.slots.size();
    int fitting = -1, emptiest = -1;
    for (const auto& [package, free] : sockets) {
      if (free.size() >= needed && (fitting < 0 || free.size() < sockets[fitting].size())) fitting = package;
      if (emptiest < 0 || free.size() > sockets[emptiest].size()) emptiest = package;
    }
    const int from_package = fitting >= 0 ? fitting : emptiest;
    if (from_package < 0 || (fitting < 0 && fits_one)) return {};
    auto& free = sockets[from_package];
    std::stable_sort(free.begin(), free.end(),
                     [&](Index a, Index b) { return view.slots[a].kind < view.slots[b].kind; });
    pick.slots.insert(pick.slots.end(), free.begin(), free.begin() + static_cast<long>(std::min(needed, free.size())));
    sockets.erase(from_package);
    socket_names += (socket_names.empty() ? "" : ", ") + std::to_string(from_package);
  }
  std::sort(pick.slots.begin(), pick.slots.end());
  pick.why = fits_one ? "all on socket " + socket_names : "too large for one socket: the fewest, " + socket_names;
  return pick;
}

Picked any(const View& view, const std::vector<Index>& among) {
  std::vector<Index> free = free_of(view, among);
  if (free.size() < view.slots_needed()) return {};
  free.resize(view.slots_needed());
  return Pick{std::move(free), "the first free slots"};
}

Picked scatter(const View& view, const std::vector<Index>& among) {
  std::vector<Index> free = free_of(view, among);
  if (free.size() < view.slots_needed()) return {};
  std::map<Index, int> busy;  // slots of each node that other jobs hold
  for (Index i = 0; i < view.slots.size(); ++i) busy[view.node(i)] += view.slots[i].load > 0 ? 1 : 0;
  std::map<Index, int> on_node;
  std::map<int, int> on_package, on_l3, on_core;
  std::vector<double> distance_sum(view.slots.size(), 0);  // total distance to the chosen slots
  Pick pick{{}, "one per node, farthest apart first, then one per L3"};
  while (pick.slots.size() < view.slots_needed()) {
    const auto key = [&](Index i) {
      const Slot& s = view.slots[i];
      return std::tuple{on_node[view.node(i)],
                        busy[view.node(i)],
                        on_package[s.package],
                        -distance_sum[i],
                        on_l3[s.l3],
                        on_core[s.core],
                        i};
    };
    const auto best = std::min_element(free.begin(), free.end(), [&](Index a, Index b) { return key(a) < key(b); });
    const Index i = *best;
    free.erase(best);
    pick.slots.push_back(i);
    ++on_node[view.node(i)], ++on_package[view.slots[i].package];
    ++on_l3[view.slots[i].l3], ++on_core[view.slots[i].core];
    for (const Index j : free) distance_sum[j] += view.distance(i, j);
  }
  return pick;
}

}  // namespace mm::place::policy

#include "policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "command.hpp"
#include "error.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "options.hpp"
#include "search.hpp"

namespace mm::place {
namespace {

using Index = std::size_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string units(SlotKind kind, Index count) {
  const char* word = kind == SlotKind::procs ? "socket" : kind == SlotKind::cores ? "core" : "thread";
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

struct Slot {
  std::vector<int> cpus;
  int core, l3, package;                        // of its first CPU
  std::vector<std::pair<Index, double>> nodes;  // index of a node → share of the slot's CPUs there
  int load = 0;                                 // most jobs on one of its CPUs
  bool closed = false;                          // not to be had at all
};

/// The slots that a request may take, and how far they are apart.
struct View {
  const Machine& machine;
  const Request& request;
  std::vector<Slot> slots;
  std::map<int, Index> node_index;

  Index node(Index slot) const { return slots[slot].nodes.front().first; }
  bool is_free(Index slot) const { return slots[slot].load == 0 && !slots[slot].closed; }
  Index wanted() const { return static_cast<Index>(request.slots); }

  /// Of two nodes, both ways; then of two slots, the mean over their CPUs.
  double apart(Index from, Index to) const { return (machine.distance[from][to] + machine.distance[to][from]) / 2; }
  double distance(Index a, Index b) const {
    double sum = 0;
    for (const auto& [na, wa] : slots[a].nodes)
      for (const auto& [nb, wb] : slots[b].nodes) sum += wa * wb * apart(na, nb);
    return sum;
  }
  /// What two slots share, after the nodes: 0 a core, 1 an L3, 2 a package, 3 nothing.
  int level(Index a, Index b) const {
    const Slot &x = slots[a], &y = slots[b];
    if (x.core == y.core) return 0;
    if (x.l3 == y.l3) return 1;
    return x.package == y.package ? 2 : 3;
  }
};

struct Pick {
  std::vector<Index> slots = {};  // in the order of the parts
  std::string why = {};
  bool oversubscribed = false;
  std::int64_t cost = 0, floor = 0;  // compact: to compare; nothing costs less than `floor`
  std::optional<double> bound = {};
  bool optimal = false;
};
using Picked = std::optional<Pick>;

std::vector<int> allowed_to(const Machine& machine, const Request& request) {
  if (request.within.empty()) return machine.allowed;
  std::vector<int> within = request.within;
  std::sort(within.begin(), within.end());
  for (const int cpu : within)
    if (!std::binary_search(machine.allowed.begin(), machine.allowed.end(), cpu))
      throw UsageError("within", "found CPU " + std::to_string(cpu) + ", which this process may not use",
                       cpu_list(machine.allowed));
  return within;
}

/// Jobs on a CPU, and on which cores somebody wants to be alone.
struct Holdings {
  Holdings(const Machine& machine, const Occupancy& taken) : jobs(taken.jobs) {
    for (const Cpu& c : machine.cpus) {
      const auto exclusive = taken.exclusive.find(c.id);
      if (exclusive != taken.exclusive.end() && exclusive->second) alone.insert(c.core);
      if (on(c.id) > 0) used.insert(c.core);
    }
  }
  int on(int cpu) const {
    const auto at = jobs.find(cpu);
    return at != jobs.end() ? at->second : 0;
  }
  const std::map<int, int>& jobs;
  std::set<int> alone, used;  // cores
};

View view_of(const Machine& machine, const Request& request, const Occupancy& taken) {
  View view{machine, request, {}, {}};
  for (Index i = 0; i < machine.nodes.size(); ++i) view.node_index[machine.nodes[i].id] = i;
  const Holdings held(machine, taken);
  for (auto& cpus : slots_of(machine, request.kind, allowed_to(machine, request))) {
    const Cpu& first = machine.cpu(cpus.front());
    Slot slot{std::move(cpus), first.core, first.l3, first.package, {}, 0, false};
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

// ------------------------------------------------------------------ policies

Picked balance(const View& view, const std::vector<Index>& among, bool oversubscribe) {
  std::map<int, std::pair<int, int>> sockets;  // package → slots taken, jobs on them
  for (const Slot& s : view.slots) {
    sockets[s.package].first += s.load > 0 ? 1 : 0;
    sockets[s.package].second += s.load;
  }
  Pick pick;
  std::set<Index> left(among.begin(), among.end());
  while (pick.slots.size() < view.wanted()) {
    const auto key = [&](Index i) {
      const Slot& s = view.slots[i];
      const auto& [taken, jobs] = sockets[s.package];
      return std::tuple{s.load, s.load == 0 ? taken : jobs, s.package, i};
    };
    Index best = kNone;
    for (const Index i : left)
      if (!view.slots[i].closed && (best == kNone || key(i) < key(best))) best = i;
    if (best == kNone) return {};
    const Slot& s = view.slots[best];
    if (s.load > 0 && (!oversubscribe || view.request.exclude)) return {};
    pick.oversubscribed = pick.oversubscribed || s.load > 0;
    sockets[s.package].first += s.load == 0 ? 1 : 0;
    ++sockets[s.package].second;
    left.erase(best);
    pick.slots.push_back(best);
  }
  pick.why = pick.oversubscribed ? "every slot is taken: those with the fewest jobs, emptiest socket first"
                                 : "each on the socket with the fewest taken";
  return pick;
}

std::map<int, Index> socket_sizes(const View& view) {
  std::map<int, Index> size;
  for (const Slot& s : view.slots) ++size[s.package];
  return size;
}

Picked pack(const View& view, const std::vector<Index>& among) {
  std::map<int, std::vector<Index>> sockets;
  for (const Index i : free_of(view, among)) sockets[view.slots[i].package].push_back(i);
  Index largest = 0;
  for (const auto& [package, size] : socket_sizes(view)) largest = std::max(largest, size);
  Pick pick;
  const bool fits_one = view.wanted() <= largest;
  std::string from;
  while (pick.slots.size() < view.wanted()) {
    // The fullest socket that holds the rest; where none does, a job that no socket could hold takes the emptiest one.
    const Index left = view.wanted() - pick.slots.size();
    int fitting = -1, most = -1;
    for (const auto& [package, free] : sockets) {
      if (free.size() >= left && (fitting < 0 || free.size() < sockets[fitting].size())) fitting = package;
      if (most < 0 || free.size() > sockets[most].size()) most = package;
    }
    const int from_package = fitting >= 0 ? fitting : most;
    if (from_package < 0 || (fitting < 0 && fits_one)) return {};
    const auto& free = sockets[from_package];
    pick.slots.insert(pick.slots.end(), free.begin(), free.begin() + static_cast<long>(std::min(left, free.size())));
    sockets.erase(from_package);
    from += (from.empty() ? "" : ", ") + std::to_string(from_package);
  }
  std::sort(pick.slots.begin(), pick.slots.end());
  pick.why = fits_one ? "all on socket " + from : "no socket holds it: the fewest, " + from;
  return pick;
}

Picked any(const View& view, const std::vector<Index>& among) {
  std::vector<Index> free = free_of(view, among);
  if (free.size() < view.wanted()) return {};
  free.resize(view.wanted());
  return Pick{std::move(free), "the first free ones"};
}

/// Slots that nothing tells apart, in order of their first one.
struct Classes {
  Classes(const View& view, const std::vector<Index>& among) {
    std::map<std::tuple<std::vector<std::pair<Index, double>>, int, int, int>, Index> known;
    std::vector<Index> of;  // class of each slot
    for (Index i = 0; i < view.slots.size(); ++i) {
      const Slot& s = view.slots[i];
      const int core = view.request.kind == SlotKind::cores ? -1 : s.core;
      const auto [at, fresh] = known.emplace(std::tuple{s.nodes, s.l3, s.package, core}, first.size());
      if (fresh) {
        first.push_back(i);
        free.emplace_back();
      }
      of.push_back(at->second);
    }
    for (const Index i : free_of(view, among)) free[of[i]].push_back(i);
  }
  void drop_taken() {
    for (Index c = first.size(); c-- > 0;) {
      if (!free[c].empty()) continue;
      first.erase(first.begin() + static_cast<long>(c));
      free.erase(free.begin() + static_cast<long>(c));
    }
  }
  std::vector<Index> first;              // a slot of each class, free or not
  std::vector<std::vector<Index>> free;  // of each class
};

/// `effort`: its share of the work, where it is one of several that are tried.
Picked compact(const View& view, const std::vector<Index>& among, double effort) {
  Classes classes(view, among);
  if (view.request.max_hops) classes.drop_taken();  // many small problems; only a whole grid needs its gaps
  const Index count = classes.first.size();
  const auto n = static_cast<std::int64_t>(view.wanted());
  if (static_cast<std::int64_t>(free_of(view, among).size()) < n) return {};
  if (n == 1) return any(view, among);

  // One whole number for both: the nodes' distance, and, too small ever to outweigh it, the level. Firmware's distances
  // are whole already; measured ones become parts of the largest, as fine as 63 bits allow.
  const std::int64_t pairs = n * (n - 1) / 2, levels = 3 * pairs + 1;
  const auto most = std::min<double>(0x1p40, 0x1p60 / static_cast<double>(pairs) / static_cast<double>(levels));
  const auto distance_of = [&](Index a, Index b) {  // of two classes; within one, of two of its slots
    return a != b || view.request.kind != SlotKind::procs ? view.distance(classes.first[a], classes.first[b]) : 0;
  };
  double largest = 0;
  bool whole = std::all_of(view.slots.begin(), view.slots.end(), [](const Slot& s) { return s.nodes.size() == 1; });
  for (const auto& [a, x] : view.node_index)
    for (const auto& [b, y] : view.node_index) {
      const double d = view.apart(x, y);
      if (!std::isfinite(d)) continue;  // only memory-only nodes
      largest = std::max(largest, d);
      whole = whole && std::floor(2 * d) == 2 * d;
    }
  const double scale = whole && 2 * largest <= most ? 2 : most / largest;  // 2: the mean of both ways may be a half
  ClusterProblem problem;
  problem.count = static_cast<int>(n);
  problem.effort = effort;
  problem.weight.assign(count, std::vector<std::int64_t>(count));
  std::map<Index, int> cells;
  for (Index a = 0; a < count; ++a) cells.emplace(view.node(classes.first[a]), 0);
  int cell = 0;
  for (auto& [node, at] : cells) at = cell++;
  for (Index a = 0; a < count; ++a) {
    problem.capacity.push_back(static_cast<int>(classes.free[a].size()));
    problem.cell.push_back(cells[view.node(classes.first[a])]);
    for (Index b = 0; b < count; ++b) {
      const int level = a != b                                   ? view.level(classes.first[a], classes.first[b])
                        : view.request.kind == SlotKind::threads ? 0
                                                                 : 1;
      problem.weight[a][b] = std::llround(distance_of(a, b) * scale) * levels + level;
    }
  }
  const Cluster found = least_cluster(problem);
  Pick pick;
  for (Index a = 0; a < count; ++a)
    pick.slots.insert(pick.slots.end(), classes.free[a].begin(), classes.free[a].begin() + found.counts[a]);
  std::sort(pick.slots.begin(), pick.slots.end());
  pick.cost = found.cost;
  pick.floor = found.bound;
  pick.optimal = found.optimal;
  const std::int64_t per_level = found.bound / levels;  // rounded down: still a bound
  auto least = static_cast<double>(per_level);
  if (scale != 2) least -= 0.5 * static_cast<double>(pairs);  // each distance was rounded
  pick.bound = least / scale / static_cast<double>(pairs);
  pick.why = found.optimal ? "least mean distance, proven" : "least mean distance found";
  return pick;
}

Picked scatter(const View& view, const std::vector<Index>& among) {
  std::vector<Index> free = free_of(view, among);
  if (free.size() < view.wanted()) return {};
  std::map<Index, int> busy;  // slots of each node that others hold
  for (Index i = 0; i < view.slots.size(); ++i) busy[view.node(i)] += view.slots[i].load > 0 ? 1 : 0;
  std::map<Index, int> on_node;
  std::map<int, int> on_package, on_l3, on_core;
  std::vector<double> away(view.slots.size(), 0);  // sum of the distances to those picked
  Pick pick{{}, "one a node, farthest apart first, then one an L3"};
  while (pick.slots.size() < view.wanted()) {
    const auto key = [&](Index i) {
      const Slot& s = view.slots[i];
      return std::tuple{
          on_node[view.node(i)], busy[view.node(i)], on_package[s.package], -away[i], on_l3[s.l3], on_core[s.core], i};
    };
    const auto best = std::min_element(free.begin(), free.end(), [&](Index a, Index b) { return key(a) < key(b); });
    const Index i = *best;
    free.erase(best);
    pick.slots.push_back(i);
    ++on_node[view.node(i)], ++on_package[view.slots[i].package];
    ++on_l3[view.slots[i].l3], ++on_core[view.slots[i].core];
    for (const Index j : free) away[j] += view.distance(i, j);
  }
  return pick;
}

// ------------------------------------------------------------------ sharing

/// Quadratic assignment of parts to classes of slots. The cost of a pair of parts: its share of all traffic times the
/// distance (1 = the longest), and 2/n of the product of their hungers where they share a memory node.
class Assignment {
 public:
  Assignment(const View& view, const Classes& classes, const Sharing& sharing)
      : parts_(view.wanted()),
        places_(classes.first.size()),
        room_(places_),
        traffic_(parts_),
        hunger_(sharing.hunger) {
    hunger_.resize(parts_, 0);
    double all = 0, longest = 0;
    for (Index i = 0; i < parts_; ++i) {
      traffic_[i].assign(parts_, 0);
      for (Index j = 0; j < parts_ && !sharing.traffic.empty(); ++j)
        if (i != j) traffic_[i][j] = sharing.traffic[i][j] + sharing.traffic[j][i];
      all += std::accumulate(traffic_[i].begin(), traffic_[i].end(), 0.0) / 2;
    }
    distance_.assign(places_, std::vector<double>(places_));
    for (Index a = 0; a < places_; ++a) {
      room_[a] = static_cast<int>(classes.free[a].size());
      for (Index b = 0; b < places_; ++b) {
        const Index x = classes.first[a], y = classes.first[b];
        const int level = a != b ? view.level(x, y) : view.request.kind == SlotKind::threads ? 0 : 1;
        // Finer than a node: up to a tenth of the local distance.
        distance_[a][b] = view.distance(x, y) + 0.1 * view.apart(view.node(x), view.node(x)) * level / 3;
        longest = std::max(longest, distance_[a][b]);
        together_.push_back(view.node(x) == view.node(y));
      }
    }
    for (auto& row : distance_)
      for (double& d : row) d /= longest;
    for (auto& row : traffic_)
      for (double& t : row) t /= std::max(all, std::numeric_limits<double>::min());
    // Those with the most at stake choose first.
    order_.resize(parts_);
    std::iota(order_.begin(), order_.end(), Index{0});
    std::stable_sort(order_.begin(), order_.end(), [&](Index a, Index b) { return stake(a) > stake(b); });
  }

  /// A class for each part. `proven` tells whether nothing is better.
  std::vector<Index> solve(bool& proven) {
    const double once = static_cast<double>(parts_ * parts_ * places_);
    const auto seeds = static_cast<Index>(std::max(4.0, kStartWork / 4 / once));
    for (Index seed = 0; seed < places_ && work_ < kStartWork; seed += (places_ + seeds - 1) / seeds) {
      start(seed);
      improve();
      if (const double c = cost(); c < best_cost_ - kLittle) best_cost_ = c, best_ = at_;
    }
    proven = false;
    if (parts_ <= 8) {
      at_.assign(parts_, kNone);
      left_ = room_;
      work_ = 0;
      descend(0, 0);
      proven = work_ <= kProofWork;
    }
    return best_;
  }

 private:
  static constexpr double kLittle = 1e-12;
  // Pairs of parts that are looked at, half a second each: a search must end, for other jobs wait for it.
  static constexpr double kStartWork = 1e8, kProofWork = 1e8;

  double stake(Index i) const {
    return std::accumulate(traffic_[i].begin(), traffic_[i].end(), 0.0) + hunger_[i] / static_cast<double>(parts_);
  }
  double pair(Index i, Index j, Index a, Index b) const {
    const double crowd = together_[a * places_ + b] ? 2 * hunger_[i] * hunger_[j] / static_cast<double>(parts_) : 0;
    return traffic_[i][j] * distance_[a][b] + crowd;
  }
  double cost_of(Index i, Index at) {  // with all parts that have a place
    double sum = 0;
    work_ += static_cast<double>(parts_);
    for (Index j = 0; j < parts_; ++j)
      if (j != i && at_[j] != kNone) sum += pair(i, j, at, at_[j]);
    return sum;
  }
  double cost() {
    double sum = 0;
    for (Index i = 0; i < parts_; ++i) sum += cost_of(i, at_[i]) / 2;
    return sum;
  }
  void start(Index seed) {
    at_.assign(parts_, kNone);
    left_ = room_;
    for (const Index i : order_) {
      Index best = kNone;
      double least = 0;
      for (Index a = 0; a < places_; ++a) {
        if (left_[a] == 0 || (i == order_.front() && a != seed)) continue;
        if (const double c = cost_of(i, a); best == kNone || c < least - kLittle) best = a, least = c;
      }
      at_[i] = best;
      --left_[best];
    }
  }
  void improve() {
    for (bool better = true; better;) {
      better = false;
      for (Index i = 0; i < parts_; ++i) {
        if (work_ > kStartWork) return;
        for (Index a = 0; a < places_; ++a)
          if (left_[a] > 0 && cost_of(i, a) < cost_of(i, at_[i]) - kLittle) {
            ++left_[at_[i]];
            --left_[at_[i] = a];
            better = true;
          }
        for (Index j = 0; j < i; ++j) {
          if (at_[i] == at_[j]) continue;
          const double before = cost_of(i, at_[i]) + cost_of(j, at_[j]) - pair(i, j, at_[i], at_[j]);
          std::swap(at_[i], at_[j]);
          const double after = cost_of(i, at_[i]) + cost_of(j, at_[j]) - pair(i, j, at_[i], at_[j]);
          if (after < before - kLittle)
            better = true;
          else
            std::swap(at_[i], at_[j]);
        }
      }
    }
  }
  void descend(Index depth, double so_far) {
    if (depth == parts_) {
      if (so_far < best_cost_ - kLittle) best_cost_ = so_far, best_ = at_;
      return;
    }
    double rest = 0;  // each part without a place pays at least its cheapest one
    for (Index k = depth; k < parts_; ++k) {
      double least = std::numeric_limits<double>::infinity();
      for (Index a = 0; a < places_; ++a)
        if (left_[a] > 0) least = std::min(least, cost_of(order_[k], a));
      rest += least;
    }
    if (so_far + rest >= best_cost_ - kLittle) return;
    for (Index a = 0; a < places_; ++a) {
      if (left_[a] == 0) continue;
      if (work_ > kProofWork) return;
      const double more = cost_of(order_[depth], a);
      at_[order_[depth]] = a;
      --left_[a];
      descend(depth + 1, so_far + more);
      ++left_[a];
      at_[order_[depth]] = kNone;
    }
  }

  Index parts_, places_;
  std::vector<int> room_, left_;
  std::vector<std::vector<double>> traffic_, distance_;
  std::vector<double> hunger_;
  std::vector<bool> together_;
  std::vector<Index> order_, at_, best_;
  double best_cost_ = std::numeric_limits<double>::infinity(), work_ = 0;
};

Picked sharing(const View& view, const std::vector<Index>& among) {
  if (free_of(view, among).size() < view.wanted()) return {};
  Classes classes(view, among);
  classes.drop_taken();
  bool proven = false;
  const std::vector<Index> at = Assignment(view, classes, view.request.sharing.value_or(Sharing{})).solve(proven);
  Pick pick{{}, proven ? "talkers together, hungry ones apart: proven" : "talkers together, hungry ones apart"};
  pick.optimal = proven;
  std::vector<Index> next(classes.first.size(), 0);
  for (const Index c : at) pick.slots.push_back(classes.free[c][next[c]++]);
  return pick;
}

// ------------------------------------------------------------------ modifiers

std::vector<Index> near_nodes(const Machine& machine, const std::string& near) {
  std::set<Index> nodes;
  if (near.rfind("node:", 0) == 0) {
    nodes.insert(machine.node_at(static_cast<int>(parse_integer("near", near.substr(5)))));
    return {nodes.begin(), nodes.end()};
  }
  const std::vector<Device> devices =
      machine.origin == "host" && machine.devices.empty() ? host_devices() : machine.devices;
  std::string known = "node:N";
  for (const Device& d : devices) {
    known += ", " + d.name;
    if (d.name != near) continue;
    for (const Cpu& c : machine.cpus)
      if (std::find(d.cpus.begin(), d.cpus.end(), c.id) != d.cpus.end()) nodes.insert(machine.node_at(c.node));
  }
  if (nodes.empty()) throw UsageError("near", "found " + quote(near), known);
  return {nodes.begin(), nodes.end()};
}

/// Sets of slots to try one after the other: the nearest, those and the next nearest, … ; without `near`, all at once.
std::vector<std::vector<Index>> rings(const View& view) {
  std::vector<Index> all(view.slots.size());
  std::iota(all.begin(), all.end(), Index{0});
  if (view.request.near.empty()) return {all};
  const std::vector<Index> targets = near_nodes(view.machine, view.request.near);
  std::map<double, std::vector<Index>> at;
  for (const Index i : all) {
    double least = std::numeric_limits<double>::infinity();
    for (const Index t : targets)
      for (const auto& [n, share] : view.slots[i].nodes) least = std::min(least, n == t ? 0 : view.apart(n, t));
    if (!std::isfinite(least))
      throw UsageError("near", "the matrix does not tell how far " + view.request.near + " is", "nodes in the matrix");
    at[least].push_back(i);
  }
  std::vector<std::vector<Index>> sets;
  std::vector<Index> so_far;
  for (const auto& [distance, slots] : at) {
    so_far.insert(so_far.end(), slots.begin(), slots.end());
    std::sort(so_far.begin(), so_far.end());
    sets.push_back(so_far);
  }
  return sets;
}

/// All maximal sets of nodes that are pairwise near (Bron and Kerbosch, 1973, with a pivot), at most kMost of them.
class Cliques {
 public:
  static constexpr Index kMost = 4096;

  explicit Cliques(std::vector<std::vector<bool>> near) : near_(std::move(near)) {
    std::vector<Index> all(near_.size());
    std::iota(all.begin(), all.end(), Index{0});
    grow({}, all, {});
    std::sort(found.begin(), found.end());
  }
  std::vector<std::vector<Index>> found;

 private:
  void grow(std::vector<Index> chosen, std::vector<Index> open, std::vector<Index> done) {
    if (found.size() >= kMost) return;
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
    Index pivot = open.front(), most = 0;
    for (const auto* nodes : {&open, &done})
      for (const Index i : *nodes)
        if (const Index n = near_to(open, i).size(); n > most) most = n, pivot = i;
    for (const Index i : std::vector<Index>(open)) {
      if (i != pivot && near_[i][pivot]) continue;
      std::vector<Index> next = chosen;
      next.push_back(i);
      std::vector<Index> rest = near_to(open, i), before = near_to(done, i);
      rest.erase(std::remove(rest.begin(), rest.end(), i), rest.end());
      grow(std::move(next), std::move(rest), std::move(before));
      open.erase(std::find(open.begin(), open.end(), i));
      done.push_back(i);
    }
  }
  std::vector<std::vector<bool>> near_;
};

/// Sets of slots whose nodes are no farther apart than the request's limit; `all` where it has none.
std::vector<std::vector<Index>> within_hops(const View& view, bool& complete) {
  complete = true;
  std::vector<Index> all(view.slots.size());
  std::iota(all.begin(), all.end(), Index{0});
  if (!view.request.max_hops) return {all};
  const Machine& m = view.machine;
  const Index nodes = m.nodes.size();
  std::map<double, std::pair<int, int>> values;  // each distance, and a pair of nodes that has it
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
  complete = cliques.found.size() < Cliques::kMost;
  std::vector<std::vector<Index>> sets;
  for (const auto& clique : cliques.found) {
    std::vector<Index> slots;
    for (const Index i : all)
      if (std::all_of(view.slots[i].nodes.begin(), view.slots[i].nodes.end(),
                      [&](const auto& share) { return std::binary_search(clique.begin(), clique.end(), share.first); }))
        slots.push_back(i);
    if (slots.size() >= view.wanted()) sets.push_back(std::move(slots));
  }
  return sets;
}

Picked pick_among(const View& view, const std::string& policy, const std::vector<Index>& among, bool oversubscribe,
                  double effort) {
  if (policy == "balance") return balance(view, among, oversubscribe);
  if (policy == "pack") return pack(view, among);
  if (policy == "compact") return compact(view, among, effort);
  if (policy == "scatter") return scatter(view, among);
  if (policy == "sharing") return sharing(view, among);
  return any(view, among);
}

/// The policy on the first set of slots where it finds a place; for compact, the best of all sets within the hop limit.
Picked pick(const View& view, const std::string& policy) {
  bool complete = true;
  const auto near_sets = rings(view), hop_sets = within_hops(view, complete);
  for (const bool oversubscribe : {false, true}) {
    for (const auto& ring : near_sets) {
      Picked best;
      for (const auto& hops : hop_sets) {
        std::vector<Index> both;
        std::set_intersection(ring.begin(), ring.end(), hops.begin(), hops.end(), std::back_inserter(both));
        Picked found = pick_among(view, policy, both, oversubscribe, 1 / static_cast<double>(hop_sets.size()));
        if (!found) continue;
        if (policy != "compact") return found;
        // A bound holds for its own set of nodes; for the job, the least of all, where all were tried.
        const bool better = !best || found->cost < best->cost;
        const std::int64_t floor = best ? std::min(found->floor, best->floor) : found->floor;
        const double bound =
            std::min(found->bound.value_or(0), best ? best->bound.value_or(0) : found->bound.value_or(0));
        if (better) best = found;
        best->floor = floor;
        if (hop_sets.size() > 1) best->bound = complete ? bound : 0, best->optimal = complete && floor == best->cost;
        if (view.wanted() > 1) best->why = best->optimal ? "least mean distance, proven" : "least mean distance found";
      }
      if (best) return best;
    }
    if (policy != "balance") break;
  }
  return {};
}

// ------------------------------------------------------------------ requests

Placement place_list(const Machine& machine, const Request& request, const Occupancy& taken) {
  const std::vector<int> allowed = allowed_to(machine, request);
  if (request.list.empty()) throw UsageError("bind", "the policy 'list' found no CPUs", "list=0-3,8");
  const Holdings held(machine, taken);
  std::set<int> seen;
  Placement placement;
  for (const int cpu : request.list) {
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu))
      throw UsageError("bind", "found CPU " + std::to_string(cpu) + " in the list, which this process may not use",
                       cpu_list(allowed));
    if (!seen.insert(cpu).second)
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
                     "at most one part a CPU");
  for (Index i = 0; i < parts; ++i) {
    std::vector<int> part(request.list.begin() + static_cast<long>(i * cpus / parts),
                          request.list.begin() + static_cast<long>((i + 1) * cpus / parts));
    std::sort(part.begin(), part.end());
    placement.layout.parts.push_back(std::move(part));
  }
  placement.why = placement.oversubscribed ? "as listed; others hold some of it too" : "as listed";
  return placement;
}

void check(const Request& request) {
  bool known = false;
  std::string names;
  for (const auto& [policy, help] : policies()) {
    if (policy == "user") continue;
    known = known || policy == request.policy;
    names += (names.empty() ? "" : ", ") + policy;
  }
  if (!known) throw UsageError("bind", "found policy " + quote(request.policy), names);
  if (request.slots < 1) throw UsageError("slots", "found " + std::to_string(request.slots), "1 or more");
  if (!request.list.empty() && request.policy != "list")
    throw UsageError("bind", "found policy " + quote(request.policy) + " and the list " + cpu_list(request.list),
                     "one of the two");
  if ((request.policy == "list" || request.policy == "none") && (!request.near.empty() || request.max_hops))
    throw UsageError("bind", quote(request.policy) + " leaves nothing to choose for near= or distance<=",
                     "other policies with them");
  if (request.policy == "none" && request.exclude)
    throw UsageError("bind", "'none' takes no CPUs that could be excluded", "other policies with exclude");
  if (request.policy != "sharing") return;
  if (!request.sharing)
    throw UsageError("sharing", "the policy 'sharing' found neither traffic nor hunger", "a file (--sharing)");
  const Index n = static_cast<Index>(request.slots);
  const Sharing& s = *request.sharing;
  for (const Index given : {s.traffic.size(), s.hunger.size()})
    if (given != 0 && given != n)
      throw UsageError("sharing", "found " + std::to_string(given) + " parts", std::to_string(n) + ", one a slot");
}

std::string wish(const Request& request) {
  std::string text;
  if (!request.near.empty()) text += " near " + request.near;
  if (request.max_hops) text += " within " + std::to_string(*request.max_hops) + " hops";
  if (request.exclude) text += " with nobody beside it";
  return text;
}

}  // namespace

// ------------------------------------------------------------------ public

const std::vector<std::pair<std::string, std::string>>& policies() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"balance", "each slot on the socket with the fewest taken (LSF BALANCE, Y)"},
      {"pack", "all in one socket where it fits, never oversubscribed (LSF PACK)"},
      {"any", "the first free slots (LSF ANY)"},
      {"none", "no binding (LSF NONE, N)"},
      {"user", "what the environment says: LSB_USER_BIND_JOB and the like"},
      {"list", "these CPUs: list=0-3,8"},
      {"compact", "least mean distance between the slots"},
      {"scatter", "most memory nodes, farthest apart"},
      {"sharing", "communicating ranks together, bandwidth-bound ones apart (--sharing FILE)"},
  };
  return all;
}

const std::vector<std::pair<std::string, std::string>>& modifiers() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"near=DEVICE", "near a network card, disk or accelerator, or near=node:N"},
      {"distance<=HOPS", "no two nodes of the job are farther apart"},
      {"exclude", "nobody else on its CPUs"},
  };
  return all;
}

void parse_bind(const std::string& text, Request& request) {
  const auto wrong = [&](const std::string& word) -> UsageError {
    std::string names;
    for (const auto& [policy, help] : policies()) names += policy + (policy == "list" ? "=CPUS" : "") + ", ";
    return {"bind", "found " + quote(word) + " in " + quote(text),
            names + "with near=DEVICE, near=node:N, distance<=HOPS, exclude"};
  };
  const auto is_list = [](const std::string& word) {
    return !word.empty() && word.find_first_not_of("0123456789-") == std::string::npos;
  };
  std::set<int> seen;
  const auto take = [&](const std::string& word) {
    for (const int cpu : parse_cpu_list("bind", word)) {
      if (!seen.insert(cpu).second)
        throw UsageError("bind", "found CPU " + std::to_string(cpu) + " twice in " + quote(text), "each CPU once");
      request.list.push_back(cpu);
    }
  };
  const std::vector<std::string> words = split(text, ',');
  std::string first = lower(words.front());
  bool listing = false;
  if (first.rfind("list=", 0) == 0 || is_list(first)) {
    request.policy = "list";
    request.list.clear();
    take(is_list(first) ? first : first.substr(5));
    listing = true;
  } else if (first == "pack(socket=1)") {
    request.policy = "pack";
    request.one_package = true;
  } else {
    if (first == "y") first = "balance";
    if (first == "n") first = "none";
    if (first == "user")
      throw UsageError("bind", "'user' stands for what the environment says, which is nothing here",
                       "LSB_USER_BIND_JOB or MESHMARK_BIND in the environment");
    const auto& all = policies();
    if (std::none_of(all.begin(), all.end(), [&](const auto& p) { return p.first == first; }))
      throw wrong(words.front());
    request.policy = first;
  }
  for (Index i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (listing && is_list(word)) {
      take(word);
      continue;
    }
    listing = false;
    if (word == "exclude") {
      request.exclude = true;
    } else if (word.rfind("near=", 0) == 0 && word.size() > 5) {
      request.near = word.substr(5);
    } else if (word.rfind("distance<=", 0) == 0) {
      const long long hops = parse_integer("bind: distance<=", word.substr(10));
      if (hops < 0 || hops > 1024) throw UsageError("bind", "found " + quote(word), "0 to 1024 hops");
      request.max_hops = static_cast<int>(hops);
    } else {
      throw wrong(word);
    }
  }
}

SlotKind parse_slot_kind(const std::string& field, const std::string& text) {
  const std::string word = lower(text);
  for (const SlotKind kind : {SlotKind::procs, SlotKind::cores, SlotKind::threads})
    if (word == name(kind)) return kind;
  throw UsageError(field, "found " + quote(text), "procs, cores, threads");
}

std::string name(SlotKind kind) {
  return kind == SlotKind::procs ? "procs" : kind == SlotKind::cores ? "cores" : "threads";
}

Sharing read_sharing(const std::string& file) {
  const auto wrong = [&](const std::string& what, const std::string& allowed) -> UsageError {
    return {"sharing", shown_path(file) + ": " + what, allowed};
  };
  const Input input = read_input(file);
  if (!input.wrong.empty()) throw wrong(input.wrong, input.allowed);
  const json given = parse_json(input.text);
  if (!given.is_object() || (!given.contains("traffic") && !given.contains("hunger")))
    throw wrong("found neither 'traffic' nor 'hunger'", R"({"traffic": [[…]], "hunger": […]})");
  const auto numbers = [&](const json& list, const std::string& where, double most) {
    std::vector<double> values;
    if (!list.is_array()) throw wrong(where + ": found " + shown_json(list), "a list of numbers");
    for (const json& v : list) {
      if (!v.is_number() || !(v.get<double>() >= 0) || v.get<double>() > most)
        throw wrong(where + ": found " + shown_json(v), most == 1 ? "0 to 1" : "finite numbers from 0");
      values.push_back(v.get<double>());
    }
    return values;
  };
  Sharing sharing;
  if (given.contains("hunger")) sharing.hunger = numbers(given["hunger"], "hunger", 1);
  if (given.contains("traffic")) {
    if (!given["traffic"].is_array()) throw wrong("traffic: found no rows", "a square matrix");
    for (const json& row : given["traffic"])
      sharing.traffic.push_back(numbers(row, "traffic", std::numeric_limits<double>::max()));
    for (const auto& row : sharing.traffic)
      if (row.size() != sharing.traffic.size())
        throw wrong("traffic: found a row of " + std::to_string(row.size()) + " in " +
                        std::to_string(sharing.traffic.size()) + " rows",
                    "a square matrix");
  }
  if (!sharing.hunger.empty() && !sharing.traffic.empty() && sharing.hunger.size() != sharing.traffic.size())
    throw wrong("found " + std::to_string(sharing.hunger.size()) + " hungers and " +
                    std::to_string(sharing.traffic.size()) + " rows of traffic",
                "as many of both");
  return sharing;
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
  allowed_to(machine, request);  // a wrong limit is one for those, too, whom it would not concern
  if (request.policy == "none") return {{}, "not bound", false, {}, {}, false};
  if (request.policy == "list") return place_list(machine, request, taken);
  const View view = view_of(machine, request, taken);
  const std::string where = request.within.empty() ? " may be used here" : " are in " + cpu_list(request.within);
  if (view.wanted() > view.slots.size())
    throw UsageError(
        "slots",
        "found " + std::to_string(request.slots) + ", but only " + units(request.kind, view.slots.size()) + where,
        "1 to " + std::to_string(view.slots.size()));
  if (request.policy == "pack" && request.one_package) {
    Index largest = 0;
    for (const auto& [package, size] : socket_sizes(view)) largest = std::max(largest, size);
    if (view.wanted() > largest)
      throw UsageError("slots",
                       "found " + std::to_string(request.slots) + " for pack(socket=1), but no socket has more than " +
                           units(request.kind, largest),
                       "1 to " + std::to_string(largest));
  }
  const Picked found = pick(view, request.policy);
  if (!found) {
    const View empty = view_of(machine, request, {});
    if (!pick(empty, request.policy == "pack" ? "pack" : "any"))
      throw UsageError("slots",
                       "found " + std::to_string(request.slots) + ": this machine has no such place" + wish(request),
                       "fewer slots, or a wider limit");
    Index free = 0;
    for (Index i = 0; i < view.slots.size(); ++i) free += view.is_free(i) ? 1 : 0;
    throw Busy(request.policy + ": no place for " + units(request.kind, view.wanted()) + wish(request) + ": " +
               std::to_string(free) + " of " + units(request.kind, view.slots.size()) + " are free");
  }

  Placement placement;
  for (const Index i : found->slots) placement.layout.parts.push_back(view.slots[i].cpus);
  placement.oversubscribed = found->oversubscribed;
  placement.why = found->why;
  placement.optimal = found->optimal;
  if (found->slots.size() > 1 && !machine.distance_from.empty()) {
    double sum = 0;
    for (Index i = 0; i < found->slots.size(); ++i)
      for (Index j = 0; j < i; ++j) sum += view.distance(found->slots[i], found->slots[j]);
    placement.mean_distance = sum / (static_cast<double>(found->slots.size() * (found->slots.size() - 1)) / 2);
    if (request.policy == "compact") placement.bound = placement.optimal ? placement.mean_distance : found->bound;
    const double mean = placement.mean_distance.value_or(0), bound = placement.bound.value_or(0);
    if (request.policy == "compact" && !placement.optimal && bound > 0)
      placement.why += ", at most " + brief(100 * (mean / bound - 1)) + " % above the least";
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

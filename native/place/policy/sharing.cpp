#include "place/policy/choose.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace mm::place::policy {

namespace {

/// Quadratic assignment of parts to classes of slots. The cost of a pair of parts is its share of all traffic times the
/// distance (1 = the longest), plus 2/n of the product of their bandwidth demands if they share a memory node.
class Assignment {
 public:
  Assignment(const View& view, const Classes& classes, const PartDemands& sharing)
      : parts_(view.slots_needed()),
        places_(classes.first.size()),
        room_(places_),
        traffic_(parts_),
        demand_(sharing.bandwidth_demand) {
    demand_.resize(parts_, 0);
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
        // Distances within a node: up to a tenth of the local distance.
        distance_[a][b] = view.distance(x, y) + 0.1 * view.apart(view.node(x), view.node(x)) * level / 3;
        longest = std::max(longest, distance_[a][b]);
        together_.push_back(view.node(x) == view.node(y));
      }
    }
    for (auto& row : distance_)
      for (double& d : row) d /= longest;
    for (auto& row : traffic_)
      for (double& t : row) t /= std::max(all, std::numeric_limits<double>::min());
    // Parts with the highest stakes choose first.
    order_.resize(parts_);
    std::iota(order_.begin(), order_.end(), Index{0});
    std::stable_sort(order_.begin(), order_.end(), [&](Index a, Index b) { return stake(a) > stake(b); });
  }

  /// Assigns a class to each part. `proven` receives whether the result is proven optimal.
  std::vector<Index> solve(bool& proven) {
    const double work_per_start = static_cast<double>(parts_ * parts_ * places_);
    const auto seeds = static_cast<Index>(std::max(4.0, kStartWork / 4 / work_per_start));
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
  // Limit of pairs evaluated, about half a second each: the search must end, since other jobs wait for it.
  static constexpr double kStartWork = 1e8, kProofWork = 1e8;

  double stake(Index i) const {
    return std::accumulate(traffic_[i].begin(), traffic_[i].end(), 0.0) + demand_[i] / static_cast<double>(parts_);
  }
  double pair(Index i, Index j, Index a, Index b) const {
    const double crowd = together_[a * places_ + b] ? 2 * demand_[i] * demand_[j] / static_cast<double>(parts_) : 0;
    return traffic_[i][j] * distance_[a][b] + crowd;
  }
  double cost_of(Index i, Index at) {  // cost of part i at `at` with all placed parts
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
      double min = 0;
      for (Index a = 0; a < places_; ++a) {
        if (left_[a] == 0 || (i == order_.front() && a != seed)) continue;
        if (const double c = cost_of(i, a); best == kNone || c < min - kLittle) best = a, min = c;
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
          const double old_cost = cost_of(i, at_[i]) + cost_of(j, at_[j]) - pair(i, j, at_[i], at_[j]);
          std::swap(at_[i], at_[j]);
          const double new_cost = cost_of(i, at_[i]) + cost_of(j, at_[j]) - pair(i, j, at_[i], at_[j]);
          if (new_cost < old_cost - kLittle)
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
    double rest_bound = 0;  // each unplaced part costs at least its cheapest slot
    for (Index k = depth; k < parts_; ++k) {
      double min = std::numeric_limits<double>::infinity();
      for (Index a = 0; a < places_; ++a)
        if (left_[a] > 0) min = std::min(min, cost_of(order_[k], a));
      rest_bound += min;
    }
    if (so_far + rest_bound >= best_cost_ - kLittle) return;
    for (Index a = 0; a < places_; ++a) {
      if (left_[a] == 0) continue;
      if (work_ > kProofWork) return;
      const double part_cost = cost_of(order_[depth], a);
      at_[order_[depth]] = a;
      --left_[a];
      descend(depth + 1, so_far + part_cost);
      ++left_[a];
      at_[order_[depth]] = kNone;
    }
  }

  Index parts_, places_;
  std::vector<int> room_, left_;
  std::vector<std::vector<double>> traffic_, distance_;
  std::vector<double> demand_;
  std::vector<bool> together_;
  std::vector<Index> order_, at_, best_;
  double best_cost_ = std::numeric_limits<double>::infinity(), work_ = 0;
};

}  // namespace

Picked sharing(const View& view, const std::vector<Index>& among) {
  if (free_of(view, among).size() < view.slots_needed()) return {};
  Classes classes(view, among);
  classes.drop_taken();
  bool proven = false;
  const std::vector<Index> class_by_part =
      Assignment(view, classes, view.request.sharing.value_or(PartDemands{})).solve(proven);
  Pick pick{{},
            proven ? "communicating parts co-located, bandwidth-bound ones spread, proven"
                   : "communicating parts co-located, bandwidth-bound ones spread"};
  pick.optimal = proven;
  std::vector<Index> next(classes.first.size(), 0);
  for (const Index c : class_by_part) pick.slots.push_back(classes.free[c][next[c]++]);
  return pick;
}

}  // namespace mm::place::policy

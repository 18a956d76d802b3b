#pragma once
#include <utility>
#include <vector>

#include "place/search/choice.hpp"

namespace mm::place::search {

/// Returns nearest[c][t]: the total distance from a unit of class c to its t nearest other units.
std::vector<std::vector<Value>> nearest_sums(const ClusterProblem& p);

/// Searches sets of full classes in ascending order, completed by at most one partly used class. Some optimum has this
/// form if two units of one class are never farther apart than the mean of units of two classes: moving units between
/// two partly used classes then changes the cost by a concave function of their number, which has its minimum at an
/// end.
class Exact {
 public:
  Exact(const ClusterProblem& p, Choice incumbent, double budget);
  bool run();  ///< returns whether the search was complete, so that the best choice is an optimum
  const Choice& best() const { return best_; }

 private:
  void descend(std::size_t depth, std::size_t start, int left);
  Value bound(const Choice& c, std::size_t start, int left);

  const ClusterProblem& p_;
  Choice best_;
  double budget_, work_ = 0;
  std::vector<std::vector<Value>> nearest_;
  std::vector<Choice> levels_;  // by depth, so that the search does not allocate
  std::vector<Value> values_;
  std::vector<std::pair<Value, int>> units_;
  bool single_;
};

/// Returns whether it is certain that some optimum has the form that Exact searches.
bool is_concave(const ClusterProblem& p);

}  // namespace mm::place::search

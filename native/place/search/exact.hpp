#pragma once
#include <utility>
#include <vector>

#include "choice.hpp"

namespace mm::place::search {

/// nearest[c][t]: distances from a unit of class c to the t nearest other units, summed.
std::vector<std::vector<Value>> nearest_sums(const ClusterProblem& p);

/// Sets of full classes in rising order, closed by at most one class that gives only a part: some optimum is like that
/// where two units of one class are nowhere farther apart than the mean of units of two (moving units between two
/// parted classes then changes the cost by a concave function of their number, which is least at an end).
class Exact {
 public:
  Exact(const ClusterProblem& p, Choice incumbent, double budget);
  bool run();  ///< whether the search was exhausted: then the best choice is an optimum
  const Choice& best() const { return best_; }

 private:
  void descend(std::size_t depth, std::size_t start, int left);
  Value bound(const Choice& c, std::size_t start, int left);

  const ClusterProblem& p_;
  Choice best_;
  double budget_, work_ = 0;
  std::vector<std::vector<Value>> nearest_;
  std::vector<Choice> levels_;  // by depth, so that the search allocates nothing
  std::vector<Value> values_;
  std::vector<std::pair<Value, int>> units_;
  bool single_;
};

/// Whether Exact's restriction loses nothing.
bool is_concave(const ClusterProblem& p);

}  // namespace mm::place::search

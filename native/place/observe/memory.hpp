#pragma once
#include <map>

#include "place/observe/state.hpp"

namespace mm::place::observe {

inline constexpr double kFirstPagesS = 0.03;  ///< age of a process at its first walk, after its exec

/// Returns the bytes on nodes other than the expected ones.
std::uint64_t elsewhere(const Expectation& expected, const std::map<int, std::uint64_t>& bytes);

/// Counts the pages of processes, within a limited share of the time.
class PageCensus {
 public:
  explicit PageCensus(Context& context);
  void update(ObservedProcess& process,
              double now);  ///< walks the pages of the process if a walk is due and within the budget
  double cost_s() const { return cost_s_; }

 private:
  bool misplaced(const PageCount& pages) const;
  void walk_pages(ObservedProcess& process, double now);

  Context& context_;
  std::map<int, NodeLevel> levels_;  // levels at the start
  double cost_s_ = 0;
};

}  // namespace mm::place::observe

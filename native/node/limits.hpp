#pragma once
/// Compares results with the limits of a node's class, on the node.
#include <string>
#include <vector>

#include "node/plan.hpp"

namespace mm::node {

class LimitCheck {
 public:
  explicit LimitCheck(const std::vector<Limit>& limits) : limits_(limits) {}
  /// Checks a line of an instrument; only results count.
  void see(std::string_view line);

  std::size_t compared() const { return compared_; }
  /// One text for each result outside of its limits, and for each kernel whose result was wrong.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const std::vector<Limit>& limits_;
  std::size_t compared_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace mm::node

#pragma once
/// Steps that all sources of a machine share: dense numbers, the node of each CPU, the matrix of distances.
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/topology/topology.hpp"

namespace mm {

/// Numbers cores, packages and L3 densely in the order in which their CPUs are added.
class Numbering {
 public:
  /// Parts that a CPU belongs to, each identified by any number that is unique among parts of that kind.
  struct Parts {
    std::uint64_t core, package, l3;
  };
  /// Returns the CPU with its numbers; `finish` sets its node.
  Cpu add(int id, const Parts& parts);

 private:
  class Dense {
   public:
    int of(std::uint64_t part) { return numbers_.emplace(part, static_cast<int>(numbers_.size())).first->second; }

   private:
    std::map<std::uint64_t, int> numbers_;
  };
  Dense cores_, packages_, l3s_;
  std::map<int, int> met_;  // number of CPUs of each core so far
};

/// Sorts the CPUs, sets the node of each CPU according to `nodes`, and sets the distances: the firmware's, in the order
/// of `nodes`, or equal distances if the firmware states none.
void finish(Machine& machine, std::optional<std::vector<std::vector<double>>> firmware);

}  // namespace mm

#pragma once
/// Maps instances of PMUs to components: memory channels, links between sockets, I/O stacks.
#include <map>
#include <set>
#include <string>

#include "watch/board.hpp"
#include "watch/counters/counters.hpp"
#include "watch/counters/definitions.hpp"
#include "watch/source.hpp"

namespace mm::watch {

class PmuComponents {
 public:
  /// Returns the component of a PMU on the CPU with index `place` in `host.cpus`, and adds it to the board if it is
  /// new. Returns kNone for a link with unknown ends.
  std::size_t find_or_add(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                          std::size_t place);

 private:
  std::map<std::string, std::size_t> known_;  ///< by group, PMU and CPU
  std::map<std::string, std::size_t> count_;  ///< by group: class, label and package
  std::set<std::string> names_;
};

}  // namespace mm::watch

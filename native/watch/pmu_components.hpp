#pragma once
/// Which component an instance of a PMU is: a memory channel, a link between sockets, an I/O stack.
#include <map>
#include <set>
#include <string>

#include "board.hpp"
#include "counters.hpp"
#include "definitions.hpp"
#include "source.hpp"

namespace mm::watch {

class PmuComponents {
 public:
  /// The component of a PMU on the CPU with this place in `host.cpus`, added to the board where it is new. kNone: a
  /// link whose ends are not known.
  std::size_t find_or_add(const Host& host, Board& board, const PmuDefinition& definition, const Pmu& pmu,
                          std::size_t place);

 private:
  std::map<std::string, std::size_t> known_;  ///< by group, PMU and CPU
  std::map<std::string, std::size_t> count_;  ///< by group: class, label and package
  std::set<std::string> names_;
};

}  // namespace mm::watch

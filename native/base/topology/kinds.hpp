#pragma once
/// Groups CPUs into kinds of cores, whatever the source of their traits.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/topology/topology.hpp"

namespace mm {

/// Traits of one CPU, as a source states them; see `CoreKind`.
struct Traits {
  int rank = 0;  ///< 0 is the fastest
  std::string pmu;
  std::int64_t capacity = -1, max_hz = -1;
  std::string model;
};

using TraitsByCpu = std::map<int, Traits>;

/// Returns the kinds, the fastest first; empty if all CPUs are alike. Clocks count only if the source states neither
/// capacities nor PMUs, and if they differ by more than 20 %. Capacities of cores of one model count if they differ by
/// more than 10 %.
std::vector<CoreKind> kinds_by_traits(const TraitsByCpu& traits);

}  // namespace mm

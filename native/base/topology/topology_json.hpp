#pragma once
/// Machines as JSON, for Python.
#include "base/json.hpp"
#include "base/topology/topology.hpp"

namespace mm {

/// Returns all that is known about a machine. Unknown values are null: the core number, package or node of a CPU, sizes
/// of nodes and caches, and distances that no source states. For the keys, see `machine/topology.py`.
json topology_json(const Machine& machine);

}  // namespace mm

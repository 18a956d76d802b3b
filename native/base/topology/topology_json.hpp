#pragma once
/// Machines as JSON, for Python.
#include "json.hpp"
#include "topology.hpp"

namespace mm {

/// All that is known of a machine. Unknown values are null: the core number, package or node of a CPU, sizes of nodes
/// and caches, distances that no source states. Keys: see `machine/topology.py`.
json topology_json(const Machine& machine);

}  // namespace mm

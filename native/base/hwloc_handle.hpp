#pragma once
#include <hwloc.h>

namespace mm {
/// The topology of this machine from hwloc, loaded once and restricted to what the process may use.
hwloc_topology_t hwloc_handle();
}  // namespace mm

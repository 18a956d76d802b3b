#pragma once
#include <hwloc.h>

namespace mm {
/// This machine as hwloc sees it, loaded once, restricted to what the process may use.
hwloc_topology_t hwloc_handle();
}  // namespace mm

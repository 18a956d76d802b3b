#pragma once
/// The topology of a machine as the Python part reads it.

namespace mm::place {

/// meshmark-place machine: prints CPUs, cores, packages, nodes, caches and distances of a description as one JSON
/// object.
int machine_verb(int argc, char** argv);

}  // namespace mm::place

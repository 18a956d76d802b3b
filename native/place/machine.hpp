#pragma once
/// The topology of a machine as the Python part reads it.

namespace mm::place {

/// meshmark-place machine: CPUs, cores, packages, nodes, caches and distances of a description, one JSON object.
int machine_verb(int argc, char** argv);

}  // namespace mm::place

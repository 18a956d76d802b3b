#pragma once
/// What the other half must know of the words of this program, and of the results of `run`.
#include "instrument.hpp"

namespace mm::place {

/// meshmark-place describe: policies, modifiers, memory policies, page sizes and metrics, one JSON object.
int describe_verb(int argc, char** argv);
/// Of `run --record`, in the order in which they are written.
const std::vector<Metric>& run_metrics();

}  // namespace mm::place

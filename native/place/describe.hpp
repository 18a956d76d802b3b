#pragma once
/// Descriptions of this program's options, and of the results of `run`, for the Python part.
#include "base/harness/instrument.hpp"

namespace mm::place {

/// meshmark-place describe: prints policies, modifiers, memory policies, page sizes and metrics as one JSON object.
int describe_verb(int argc, char** argv);
/// Metrics of `run --record`, in the order of the output.
const std::vector<Metric>& run_metrics();

}  // namespace mm::place

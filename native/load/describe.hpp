#pragma once
/// Descriptions of the load kernels and of their counts.

namespace mm::load {

/// meshmark-load kernels
int kernels_verb(int argc, char** argv);
/// meshmark-load describe: one object of schema/describe-load.json.
int describe_verb(int argc, char** argv);

}  // namespace mm::load

#pragma once
/// What programs can be synthesised from: load kernels, and the columns that are known of each.

namespace mm::load {

/// meshmark-load kernels
int kernels_verb(int argc, char** argv);
/// meshmark-load describe: one object of the form of schema/describe-load.json.
int describe_verb(int argc, char** argv);

}  // namespace mm::load

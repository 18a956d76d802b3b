#pragma once

namespace mm::place::mix {

/// meshmark-place mix: simulates a mix of jobs under a policy, in JSON.
int mix_verb(int argc, char** argv);

}  // namespace mm::place::mix

#pragma once

namespace mm::place::mix {

/// meshmark-place work: uses CPU time in several threads.
int work_verb(int argc, char** argv);

}  // namespace mm::place::mix

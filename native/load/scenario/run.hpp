#pragma once
/// meshmark-load run PLAN: many programs at once, with a look at every thread of theirs.

namespace mm::load {

int run_verb(int argc, char** argv);

}  // namespace mm::load

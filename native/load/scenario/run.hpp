#pragma once
/// meshmark-load run PLAN: runs many programs together and samples all their threads.

namespace mm::load {

int run_verb(int argc, char** argv);

}  // namespace mm::load

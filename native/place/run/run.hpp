#pragma once
namespace mm::place {
/// meshmark-place run [--bind POLICY] [--slots KIND] [-n N] [--each] [--memory M] [--pages P] [--verify] … -- COMMAND
int run_verb(int argc, char** argv);
}  // namespace mm::place

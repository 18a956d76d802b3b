#pragma once
/// meshmark-load program FILE: runs one synthetic program.

namespace mm::load {

int program_verb(int argc, char** argv);

}  // namespace mm::load

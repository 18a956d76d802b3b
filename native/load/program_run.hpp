#pragma once
/// meshmark-load program FILE: one synthesised program, from its set-up to its end.

namespace mm::load {

int program_verb(int argc, char** argv);

}  // namespace mm::load

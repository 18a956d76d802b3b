#pragma once
/// toml++, which asserts or assumes what input such as "[[[" breaks before it refuses just that: without either it
/// refuses it in every build. Header only: a packaged library would have to be on every node too.
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(expr) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG  // else Clang's build takes for granted what an assert would check
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#pragma once
/// toml++ asserts or assumes conditions that input such as "[[[" violates before it reports the error. With both
/// disabled, every build reports the error. It is used header-only, because a shared library would have to be installed
/// on every node.
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(expr) static_assert(true)
#pragma push_macro("NDEBUG")
#undef NDEBUG  // otherwise Clang's build assumes what an assert would check
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

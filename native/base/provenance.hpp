#pragma once
/// What built this program; every record says so.

namespace mm {

extern const char* const kBuild;     ///< version and commit: "0.1.0+g1a2b3c4d", ".dirty" behind it if not committed
extern const char* const kCompiler;  ///< with its flags: "g++ 12.2.0 -O2 -DNDEBUG"

}  // namespace mm

#pragma once
/// Build of this program, for every record.

namespace mm {

extern const char* const
    kBuild;  ///< version and commit: "0.1.0+g1a2b3c4d", with ".dirty" if there are uncommitted changes
extern const char* const kCompilerVersion;  ///< "g++ 12.2.0"; a condition of what the compiler may vectorise
extern const char* const kCompiler;         ///< the compiler with its flags: "g++ 12.2.0 -O2 -DNDEBUG"

}  // namespace mm

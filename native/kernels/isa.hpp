#pragma once
/// The vector instruction sets that the kernels are built for, and the sets that this processor has. The build targets
/// a baseline processor; kernels of a wider set are called through a table, and only if `has_isa` returns true.
#include <string_view>
#include <vector>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace mm {

struct Isa {
  std::string_view name;
  int bytes;  ///< width of a vector register (SVE: known at run time)
};

inline bool has_isa(std::string_view name) {
#if defined(__x86_64__)
  if (name == "sse2") return true;
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (name == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#elif defined(__aarch64__)
  if (name == "neon") return true;
  if (name == "sve") return (getauxval(AT_HWCAP) & (1UL << 22)) != 0;  // HWCAP_SVE
#endif
  return false;
}

/// Returns all sets that the kernels are built for on this architecture, from narrow to wide.
inline std::vector<std::string_view> built_isas() {
#if defined(__x86_64__)
  return {"sse2", "avx2", "avx512"};
#elif defined(__aarch64__)
  return {"neon", "sve"};
#else
  return {};
#endif
}

inline std::string_view best_isa() {
  std::string_view best;
  for (std::string_view name : built_isas())
    if (has_isa(name)) best = name;
  return best;
}

/// Returns the widest set whose vector width the compiler knows, for loops that are not built for SVE.
inline std::string_view best_fixed_isa() { return best_isa() == "sve" ? "neon" : best_isa(); }

}  // namespace mm

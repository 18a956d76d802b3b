#pragma once
/// Sets of CPUs or nodes in files of /sys. The Linux kernel has most of them twice, as a list (`0-3,8`) and as a
/// hexadecimal mask (`10f`); recorded trees often have the masks only.
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm {

/// Two files with the same set. An empty name stands for a form that does not exist.
struct SetFiles {
  std::string_view list, mask;
};

inline constexpr SetFiles kNodeCpus{"cpulist", "cpumap"};
inline constexpr SetFiles kCacheCpus{"shared_cpu_list", "shared_cpu_map"};

/// Parses "0000ff00,00000001" into sorted numbers {0, 40 … 47}: words of 32 bits, the highest first. Returns nothing if
/// the text is not a mask or contains a number of 65,536 or more.
std::optional<std::vector<int>> parse_id_mask(std::string_view text);

/// Returns the first acceptable set in these files; the mask of a pair precedes its list. An empty file is an empty
/// list.
///
/// @param folder Path that ends in a slash.
/// @param files Pairs in the order of preference, for example newer names before older ones.
/// @param accept Returns whether a set can be right; by default, every set is accepted.
/// @return The set; nothing if every file is missing, malformed or not acceptable.
std::optional<std::vector<int>> ids_in(const std::string& folder, std::initializer_list<SetFiles> files,
                                       const std::function<bool(const std::vector<int>&)>& accept = {});

/// Returns the numbers that both sorted sets contain.
std::vector<int> common_ids(const std::vector<int>& a, const std::vector<int>& b);
/// Returns the numbers of the sorted set `a` that `b` lacks.
std::vector<int> ids_without(const std::vector<int>& a, const std::vector<int>& b);
/// Returns all numbers of both sorted sets.
std::vector<int> all_ids(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace mm

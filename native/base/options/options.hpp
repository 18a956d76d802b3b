#pragma once
/// Parses values as users write them: `512KiB`, `64k`, `64MB`, `10s`, `0-3,8`, `4KiB..1GiB`. Every error names the
/// field.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace mm {

std::size_t parse_size(const std::string& field, const std::string& text);  ///< B
double parse_time(const std::string& field, const std::string& text);       ///< s; ns, us, ms, s, m, h
double parse_real(const std::string& field, const std::string& text);
long long parse_integer(const std::string& field, const std::string& text);
std::vector<std::string> split(const std::string& text, char by);
std::string joined(const std::vector<std::string>& words);  ///< comma-separated, for messages
/// Parses `A`, `A,B`, `A..B` (doubling, plus the end), `A..B/4` (4 points per octave), in any combination. Returns
/// sizes in bytes, ascending and without duplicates.
std::vector<std::size_t> parse_sizes(const std::string& field, const std::string& text);
/// Parses `1,2,4`, `1..16` (doubling, plus the end), `0-3`, `0-30:2`, `all`. Returns numbers ascending and without
/// duplicates.
std::vector<int> parse_integers(const std::string& field, const std::string& text, int all);
/// Parses numbers of CPUs or nodes and keeps their order: `0-3,8`, `0-30:2` (every second), `0-31:2/16` (two of each
/// 16, as the Linux kernel writes it), `4-12,^8` (without 8). If `all` is not empty, the text may contain `all`, and
/// `N` for its last number.
std::vector<int> parse_cpu_sequence(const std::string& field, const std::string& text,
                                    const std::vector<int>& all = {});
/// Like parse_cpu_sequence, but ascending and without duplicates.
std::vector<int> parse_cpu_list(const std::string& field, const std::string& text, const std::vector<int>& all = {});
/// Parses a hexadecimal mask into the numbers of its bits, ascending: 0x11, 11, 0x1,00000000 and 1,00000000 (groups of
/// 32 bits). Returns nothing if the text is not a mask, has no bit, or has a bit of 2^20 or more.
std::optional<std::vector<int>> parse_mask(const std::string& text);
std::string cpu_list(const std::vector<int>& cpus);  ///< {0,1,2,3,8} → "0-3,8"

}  // namespace mm

#pragma once
/// Parses values as users write them: `512KiB`, `64MB`, `10s`, `0-3,8`, `4KiB..1GiB`. Every error names the field.
#include <cstddef>
#include <string>
#include <vector>

namespace mm {

std::size_t parse_size(const std::string& field, const std::string& text);  ///< B
double parse_time(const std::string& field, const std::string& text);       ///< s; ns, us, ms, s, m, h
double parse_real(const std::string& field, const std::string& text);
long long parse_integer(const std::string& field, const std::string& text);
std::vector<std::string> split(const std::string& text, char by);
std::string joined(const std::vector<std::string>& words);  ///< comma-separated, for messages
/// `A`, `A,B`, `A..B` (doubling, plus the end), `A..B/4` (4 points per octave), in any combination; ascending, without
/// duplicates.
std::vector<std::size_t> parse_sizes(const std::string& field, const std::string& text);
/// `1,2,4`, `1..16` (doubling, plus the end), `0-3`, `all`; ascending, without duplicates.
std::vector<int> parse_integers(const std::string& field, const std::string& text, int all);
/// `0-3,8`: ascending, without duplicates.
std::vector<int> parse_cpu_list(const std::string& field, const std::string& text);
std::string cpu_list(const std::vector<int>& cpus);  ///< {0,1,2,3,8} → "0-3,8"

}  // namespace mm

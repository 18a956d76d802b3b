#pragma once
/// Words, numbers and lists in texts of the operating system.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm {

/// Cuts the next line, or the next word of a line, off the front of a text.
std::string_view next_line(std::string_view& text);
std::string_view next_word(std::string_view& line);
/// A word as a whole number; `missing` where it is none or too large.
std::int64_t whole_number(std::string_view word, std::int64_t missing = -1);
/// The number that a text begins with; 0 where it begins with none.
std::uint64_t leading_number(std::string_view text);
/// The number that a name ends with: 3 of uncore_upi_3; -1 where there is none.
std::int64_t number_at_end(std::string_view name);
/// What follows `key` in the lines of a text such as /proc/PID/status, without white space before it; "" where it is
/// not there.
std::string value_of(std::string_view text, std::string_view key);

/// "0-3,8" as numbers in ascending order, each once. None where it is no such list or has a number above 2^20.
std::optional<std::vector<int>> parse_id_list(std::string_view text);
/// The first line of a file's text as such a list; empty where it is none, or more than 65,536 numbers.
std::vector<int> ids_of(std::string_view text);
/// {0,1,2,3,8} as "0-3,8".
std::string id_list(const std::vector<int>& ids);

}  // namespace mm

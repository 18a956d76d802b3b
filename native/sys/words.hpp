#pragma once
/// Words, numbers and lists in texts of the operating system.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm {

/// Removes the next line, or the next word of a line, from the front of a text, and returns it.
std::string_view next_line(std::string_view& text);
std::string_view next_word(std::string_view& line);
/// A word as a whole number; `missing` if it is not one or too large.
std::int64_t whole_number(std::string_view word, std::int64_t missing = -1);
/// The leading number of a text; 0 if there is none.
std::uint64_t leading_number(std::string_view text);
/// The trailing number of a name: 3 for uncore_upi_3; -1 if there is none.
std::int64_t number_at_end(std::string_view name);
/// The value after `key` in texts such as /proc/PID/status, without leading white space; "" if the key is missing.
std::string value_of(std::string_view text, std::string_view key);

/// "0-3,8" as sorted numbers without duplicates. None if it is not such a list or contains a number above 2^20.
std::optional<std::vector<int>> parse_id_list(std::string_view text);
/// The first line of a text as such a list; empty if it is not one or has more than 65,536 numbers.
std::vector<int> ids_of(std::string_view text);
/// {0,1,2,3,8} as "0-3,8".
std::string id_list(const std::vector<int>& ids);

}  // namespace mm

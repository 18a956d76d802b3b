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
/// Returns a word as a whole number; `missing` if it is not a number or too large.
std::int64_t whole_number(std::string_view word, std::int64_t missing = -1);
/// Returns the leading number of a text; 0 if the text does not begin with a number.
std::uint64_t leading_number(std::string_view text);
/// Returns the trailing number of a name: 3 for uncore_upi_3; -1 if the name does not end in a number.
std::int64_t number_at_end(std::string_view name);
/// Returns the value after `key` in texts such as /proc/PID/status, without leading white space; "" if the key is
/// missing.
std::string value_of(std::string_view text, std::string_view key);

/// Parses "0-3,8" into sorted numbers without duplicates. Returns nothing if the text is not such a list or contains a
/// number above 2^20.
std::optional<std::vector<int>> parse_id_list(std::string_view text);
/// Parses the first line of a text as such a list. Returns an empty list if it is malformed or has more than 65,536
/// numbers.
std::vector<int> ids_of(std::string_view text);
/// Formats {0,1,2,3,8} as "0-3,8".
std::string id_list(const std::vector<int>& ids);

}  // namespace mm

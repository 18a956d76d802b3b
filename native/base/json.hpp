#pragma once
/// JSON that keeps the order of keys, so that lines read well.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mm {

using json = nlohmann::ordered_json;

/// Returns a discarded value if the text is not valid JSON or is nested deeper than 100 levels.
json parse_json(std::string_view text);

/// Returns the value on one line. Invalid UTF-8, which names and paths may contain, is replaced.
std::string to_line(const json& value);

/// Returns the value as a message quotes it: on one line and shortened.
std::string shown_json(const json& value);

}  // namespace mm

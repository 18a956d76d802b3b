#pragma once
/// JSON with the keys in the order they were written, so that lines read well.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mm {

using json = nlohmann::ordered_json;

/// Discarded (no type that one asks for) where the text is no JSON, or nested deeper than 100 levels.
json parse_json(std::string_view text);

/// On one line. Names and paths may hold bytes that are no UTF-8; they are replaced, never fatal.
std::string to_line(const json& value);

/// Of what was found, as much as a message quotes.
std::string shown_json(const json& value);

}  // namespace mm

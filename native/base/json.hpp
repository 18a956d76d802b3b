#pragma once
/// JSON with the keys in the order they were written, so that lines read well.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "text.hpp"

namespace mm {

using json = nlohmann::ordered_json;

inline constexpr int kMostNested = 100;  ///< levels; what we read has six, and printing takes stack for each

/// Discarded (no type that one asks for) where the text is no JSON, or nested deeper than `kMostNested`.
inline json parse_json(std::string_view text) {
  int depth = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\') ++i;
      if (c == '"') inside = false;
    } else if (c == '"') {
      inside = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostNested) return json(json::value_t::discarded);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return json::parse(text, nullptr, false);
}

/// On one line. Names and paths may hold bytes that are no UTF-8; they are replaced, never fatal.
inline std::string to_line(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// Of what was found, as much as a message quotes.
inline std::string shown_json(const json& value) { return shown(to_line(value)); }

}  // namespace mm

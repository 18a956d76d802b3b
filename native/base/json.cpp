#include "base/json.hpp"

#include "base/text.hpp"

namespace mm {

constexpr int kMaxNested = 100;  // levels; valid input has six, and printing needs stack space for each

json parse_json(std::string_view text) {
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
      if (++depth > kMaxNested) return json(json::value_t::discarded);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return json::parse(text, nullptr, false);
}

std::string to_line(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string shown_json(const json& value) { return shown(to_line(value)); }

}  // namespace mm

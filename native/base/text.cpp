#include "base/text.hpp"

#include <array>
#include <cstdio>
#include <utility>

namespace mm {
namespace {

/// Returns the length in bytes of the UTF-8 character at the start of `text`; 0 if it is invalid or a control
/// character.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);  // surrogates, U+110000
  const bool control = first == 0xc2 && second < 0xa0;
  return overlong || beyond || control ? 0 : length;
}

/// Returns the next character in printable form, and its length in bytes.
std::pair<std::string, std::size_t> shown_character(std::string_view text) {
  if (const std::size_t n = printable_length(text); n > 0) return {std::string(text.substr(0, n)), n};
  constexpr const char* digits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte == '\n') return {"\\n", 1};
  if (byte == '\t') return {"\\t", 1};
  return {std::string("\\x") + digits[byte >> 4] + digits[byte & 15], 1};
}

}  // namespace

std::string shown(std::string_view text, std::size_t max) {
  std::string line;
  for (std::size_t count = 0; !text.empty(); ++count) {
    if (count == max) return line + "…";
    const auto [character, bytes] = shown_character(text);
    line += character;
    text.remove_prefix(bytes);
  }
  return line;
}

std::string quote(std::string_view text) { return std::string("'").append(shown(text)).append("'"); }

std::string shown_path(std::string_view path) {
  if (path.size() <= kMaxQuoted) return shown(path);
  path.remove_prefix(path.size() - kMaxQuoted);
  while (!path.empty() && (static_cast<unsigned char>(path[0]) & 0xc0) == 0x80) path.remove_prefix(1);
  return std::string("…").append(shown(path));
}

std::string shown_message(std::string_view message) {
  std::string line;
  for (std::size_t word = 0, all = 0; !message.empty() && all < 5 * kMaxQuoted; ++all) {
    auto [character, bytes] = shown_character(message);
    if (message[0] == '\n') character.assign(1, ' ');  // GCC 12 warns that an assigned " " may overlap
    word = message[0] == ' ' || message[0] == '\n' ? 0 : word + 1;
    message.remove_prefix(bytes);
    if (word <= kMaxQuoted)
      line += character;
    else if (word == kMaxQuoted + 1)
      line += "…";
  }
  return message.empty() ? line : line + "…";
}

std::string four_digits(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string counted(std::size_t count, const std::string& name, const std::string& plural) {
  return std::to_string(count) + ' ' + (count == 1 ? name : plural.empty() ? name + 's' : plural);
}

}  // namespace mm

#include "sys/id_sets.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <utility>

#include "sys/files.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::size_t kMaxBits = 1 << 16;
constexpr std::size_t kDigitsOfWord = 8;

/// Appends the numbers of the bits in hexadecimal digits, the lowest digit last. Returns false if the digits are
/// invalid or exceed the limit.
bool append_bits(std::string_view digits, std::size_t lowest, std::vector<int>& ids) {
  if (lowest + 4 * digits.size() > kMaxBits) return false;
  for (std::size_t i = digits.size(); i-- > 0;) {
    unsigned value = 0;
    if (std::from_chars(&digits[i], &digits[i] + 1, value, 16).ec != std::errc()) return false;
    for (unsigned bit = 0; bit < 4; ++bit)
      if ((value >> bit & 1) != 0) ids.push_back(static_cast<int>(lowest + 4 * (digits.size() - 1 - i) + bit));
  }
  return true;
}

std::optional<std::vector<int>> read_set(const std::string& path, bool is_mask, bool& has_empty_file) {
  errno = 0;
  const std::string text = read_text(path);
  if (text.empty()) {
    has_empty_file |= errno == 0;
    return {};
  }
  std::string_view rest = text;
  std::string_view line = next_line(rest);
  while (!line.empty() && (line.back() == '\0' || line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  if (line.empty() || line == "(null)") {
    if (is_mask) return {};  // a mask has at least one digit
    return std::vector<int>{};
  }
  return is_mask ? parse_id_mask(line) : parse_id_list(line);
}

}  // namespace

std::optional<std::vector<int>> parse_id_mask(std::string_view text) {
  std::vector<int> ids;
  for (std::size_t lowest = 0;; lowest += 4 * kDigitsOfWord) {
    const std::size_t comma = text.rfind(',');
    std::string_view word = comma == std::string_view::npos ? text : text.substr(comma + 1);
    if (word.starts_with("0x")) word.remove_prefix(2);
    const bool is_highest = comma == std::string_view::npos;
    if (word.empty() || (!is_highest && word.size() != kDigitsOfWord) || !append_bits(word, lowest, ids)) return {};
    if (is_highest) return ids;
    text = text.substr(0, comma);
  }
}

std::optional<std::vector<int>> ids_in(const std::string& folder, std::initializer_list<SetFiles> files,
                                       const std::function<bool(const std::vector<int>&)>& accept) {
  bool has_empty_file = false;
  for (const SetFiles& names : files)
    for (const bool is_mask : {true, false}) {
      const std::string_view name = is_mask ? names.mask : names.list;
      if (name.empty()) continue;
      auto ids = read_set(folder + std::string(name), is_mask, has_empty_file);
      if (ids && (!accept || accept(*ids))) return ids;
    }
  return has_empty_file && (!accept || accept({})) ? std::optional<std::vector<int>>(std::in_place) : std::nullopt;
}

std::vector<int> common_ids(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> ids;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(ids));
  return ids;
}

std::vector<int> ids_without(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> ids;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(ids));
  return ids;
}

std::vector<int> all_ids(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> ids;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(ids));
  return ids;
}

}  // namespace mm

#include "sys/words.hpp"

#include <algorithm>
#include <charconv>

namespace mm {
namespace {

constexpr std::int64_t kMaxId = 1 << 20;
constexpr std::size_t kMaxIds = 1 << 16;  // more than any machine has; bounds the input of hostile trees

}  // namespace

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    line = {};
    return {};
  }
  line.remove_prefix(begin);
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

std::int64_t whole_number(std::string_view word, std::int64_t missing) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() ? value : missing;
}

std::int64_t number_at_end(std::string_view name) {
  const std::size_t other = name.find_last_not_of("0123456789");
  return whole_number(other == std::string_view::npos ? name : name.substr(other + 1));
}

std::string value_of(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, key.size(), key) == 0) {
      const std::size_t first = text.find_first_not_of(" \t", at + key.size());
      return first < end ? std::string(text.substr(first, end - first)) : "";
    }
    at = end + 1;
  }
  return "";
}

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

std::optional<std::vector<int>> parse_id_list(std::string_view text) {
  std::vector<int> ids;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const std::int64_t first = whole_number(part.substr(0, dash));
    const std::int64_t last = dash == std::string_view::npos ? first : whole_number(part.substr(dash + 1));
    if (first < 0 || last < first || last > kMaxId || std::ssize(ids) > kMaxId) return {};
    for (std::int64_t n = first; n <= last; ++n) ids.push_back(static_cast<int>(n));
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<int> ids_of(std::string_view text) {
  auto ids = parse_id_list(next_line(text));
  return ids && ids->size() <= kMaxIds ? *std::move(ids) : std::vector<int>{};
}

std::string id_list(const std::vector<int>& ids) {
  std::string text;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t j = i;
    while (j + 1 < ids.size() && ids[j + 1] == ids[j] + 1) ++j;
    if (!text.empty()) text += ',';
    text += std::to_string(ids[i]);
    if (j > i) text += '-' + std::to_string(ids[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace mm

#include "base/options/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <unordered_set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "sys/words.hpp"

namespace mm {
namespace {

[[noreturn]] void wrong(const std::string& field, const std::string& text, const char* allowed) {
  throw UsageError(field, "found " + quote(text), allowed);
}

constexpr const char* kSize =
    "a size such as 64, 64k, 512KiB, 1Gi or 64MB (k, Ki and KiB are 1024 B, kB is 1000 B; likewise M, G and T)";
constexpr int kMaxNumbers = 1 << 16;  // in a range of integers
constexpr long long kHighestCpu = 1 << 20;
constexpr const char* kTime = "a time such as 500ms, 10s or 5m";

/// Parses a number and returns whether the whole text is one. std::from_chars ignores the locale and accepts neither
/// white space nor hexadecimal.
template <class Number>
bool whole(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end;
}

/// Returns the product of a number and the unit that follows it, which must be one of `units`.
double with_unit(const std::string& field, const std::string& text, const std::map<std::string, double>& units,
                 const char* allowed) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) wrong(field, text, allowed);
  const auto unit = units.find(std::string(rest, text.data() + text.size()));
  if (unit == units.end()) wrong(field, text, allowed);
  return number * unit->second;
}

}  // namespace

std::size_t parse_size(const std::string& field, const std::string& text) {
  // k, m and g are binary as in numactl, fio and lmbench, and Ki as in Kubernetes; only a B without i makes a unit
  // decimal.
  static const std::map<std::string, double> units = [] {
    std::map<std::string, double> all = {{"", 1},     {"B", 1},    {"kB", 1e3}, {"KB", 1e3},
                                         {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    const std::pair<std::string, double> binary[] = {{"k", 0x1p10}, {"m", 0x1p20}, {"g", 0x1p30}, {"t", 0x1p40}};
    for (const auto& [letter, bytes] : binary)
      for (const std::string& prefix : {letter, std::string(1, static_cast<char>(letter[0] - 'a' + 'A'))})
        for (const char* rest : {"", "i", "iB", "ib", "I", "IB"}) all[prefix + rest] = bytes;
    return all;
  }();
  const double bytes = with_unit(field, text, units, kSize);
  if (bytes > 0x1p50) wrong(field, text, "at most 1024TiB");
  if (bytes > 0 && bytes < 1) wrong(field, text, "whole bytes");
  return static_cast<std::size_t>(bytes);
}

double parse_time(const std::string& field, const std::string& text) {
  static const std::map<std::string, double> units = {{"", 1},      {"s", 1},  {"ms", 1e-3}, {"us", 1e-6},
                                                      {"ns", 1e-9}, {"m", 60}, {"min", 60},  {"h", 3600}};
  return with_unit(field, text, units, kTime);
}

double parse_real(const std::string& field, const std::string& text) {
  double number = 0;
  if (!whole(text, number) || !std::isfinite(number)) wrong(field, text, "a number");
  return number;
}

long long parse_integer(const std::string& field, const std::string& text) {
  long long number = 0;
  if (!whole(text, number)) wrong(field, text, "a whole number");
  return number;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(by, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

std::vector<std::size_t> parse_sizes(const std::string& field, const std::string& text) {
  std::set<std::size_t> sizes;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find("..");
    if (dots == std::string::npos) {
      sizes.insert(parse_size(field, part));
      continue;
    }
    std::string end = part.substr(dots + 2);
    double per_octave = 1;
    if (const std::size_t slash = end.find('/'); slash != std::string::npos) {
      per_octave = static_cast<double>(parse_integer(field, end.substr(slash + 1)));
      end = end.substr(0, slash);
      if (per_octave < 1 || per_octave > 64) wrong(field, part, "1 to 64 points per octave");
    }
    const std::size_t low = parse_size(field, part.substr(0, dots)), high = parse_size(field, end);
    if (low == 0 || high < low) wrong(field, part, "a rising range such as 4KiB..1GiB");
    for (int i = 0;; ++i) {
      const double size = static_cast<double>(low) * std::exp2(i / per_octave);
      if (size > static_cast<double>(high) * 1.000001) break;
      const double unit = size < 64 ? 1 : 64;  // whole cache lines, except for smaller sizes such as short messages
      const auto rounded = static_cast<std::size_t>(std::llround(size / unit) * static_cast<long long>(unit));
      sizes.insert(std::clamp(rounded, low, high));
    }
    sizes.insert(high);
  }
  return {sizes.begin(), sizes.end()};
}

namespace {

/// `A-B`, `A-B:S` (every S-th) or `A-B:U/G` (the first U of every G, as the Linux kernel writes it).
struct StridedRange {
  long long low = 0, high = 0, used = 1, group = 1;

  long long count() const { return (high - low + group) / group * std::min(used, high - low + 1); }  // upper bound
};

/// Returns the range in a text, whose ends `number` parses; nothing if the text is not a range. `text` has no `^`.
std::optional<StridedRange> range_of(const std::string& text,
                                     const std::function<std::optional<long long>(const std::string&)>& number) {
  const std::size_t colon = text.find(':');
  const std::string ends = text.substr(0, colon);
  const std::size_t dash = ends.find('-', 1);
  const auto low = number(ends.substr(0, dash));
  const auto high = dash == std::string::npos ? low : number(ends.substr(dash + 1));
  if (!low || !high) return std::nullopt;
  StridedRange range{*low, *high};
  if (colon == std::string::npos) return range;
  if (dash == std::string::npos) return std::nullopt;
  const std::string pattern = text.substr(colon + 1);
  const std::size_t slash = pattern.find('/');
  const bool digits = pattern.find_first_not_of("0123456789/") == std::string::npos;
  if (!digits || !whole(pattern.substr(slash == std::string::npos ? 0 : slash + 1), range.group)) return std::nullopt;
  if (slash != std::string::npos && !whole(pattern.substr(0, slash), range.used)) return std::nullopt;
  if (range.used < 1 || range.group < range.used || range.group > kHighestCpu) return std::nullopt;
  return range;
}

void append(std::vector<int>& numbers, const StridedRange& range) {
  for (long long first = range.low; first <= range.high; first += range.group)
    for (long long n = first; n < first + range.used && n <= range.high; ++n) numbers.push_back(static_cast<int>(n));
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

}  // namespace

std::vector<int> parse_integers(const std::string& field, const std::string& text, int all) {
  const auto parse_word = [&](const std::string& word) {
    if (word == "all") return all;
    const long long n = parse_integer(field, word);
    if (n < 0 || n > 1 << 24) wrong(field, word, "0 to 16777216");
    return static_cast<int>(n);
  };
  std::set<int> numbers;
  for (const std::string& part : split(text, ',')) {
    if (const std::size_t dots = part.find(".."); dots != std::string::npos) {
      const int low = parse_word(part.substr(0, dots)), high = parse_word(part.substr(dots + 2));
      if (high < low || low < 1) wrong(field, part, "a rising range such as 1..16 or 0-3");
      for (long long n = low; n < high; n *= 2) numbers.insert(static_cast<int>(n));
      numbers.insert(high);
      continue;
    }
    const auto range = range_of(part, parse_word);
    if (!range || range->high < range->low) wrong(field, part, "a rising range such as 1..16, 0-3 or 0-30:2");
    if (range->count() > kMaxNumbers + 1) wrong(field, part, "a range of at most 65536 numbers");
    std::vector<int> range_numbers;
    append(range_numbers, *range);
    numbers.insert(range_numbers.begin(), range_numbers.end());
  }
  return {numbers.begin(), numbers.end()};
}

std::vector<int> parse_cpu_sequence(const std::string& field, const std::string& text, const std::vector<int>& all) {
  constexpr const char* kList = "a list such as 0-3,8, 0-30:2 (every second), 0-31:2/16 (two of each 16) or 4-12,^8";
  const auto number = [&](const std::string& word) -> std::optional<long long> {
    if (word == "N" && !all.empty()) return all.back();
    long long n = 0;
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || !whole(word, n)) {
      const bool digits = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
      if (digits) wrong(field, text, "numbers up to 1048576");
      return std::nullopt;
    }
    if (n > kHighestCpu) wrong(field, text, "numbers up to 1048576");
    return n;
  };
  std::vector<int> numbers;
  std::unordered_set<int> present_numbers, excluded_numbers;
  for (const std::string& part : split(text, ',')) {
    std::string item = trimmed(part);
    const bool exclude = item.starts_with('^');
    if (exclude) item = item.substr(1);
    std::vector<int> item_numbers;
    if (item == "all" && !all.empty()) {
      item_numbers = all;
    } else {
      const auto range = range_of(item, number);
      if (!range || range->high < range->low || (range->used > 1 && item.find('/') == std::string::npos))
        wrong(field, part, kList);
      if (range->count() + std::ssize(numbers) > kHighestCpu + 1) wrong(field, text, "at most 1048577 numbers");
      append(item_numbers, *range);
    }
    // libvirt excludes numbers from the list before the `^`, OpenStack from the whole list. Only lists that mean the
    // same to both are allowed.
    for (const int n : item_numbers) {
      if (exclude && !present_numbers.contains(n)) wrong(field, part, "^ and numbers that the list has before it");
      if (!exclude && excluded_numbers.contains(n)) wrong(field, text, "no number again that ^ excludes");
      (exclude ? excluded_numbers : present_numbers).insert(n);
      if (!exclude) numbers.push_back(n);
    }
  }
  std::erase_if(numbers, [&](int n) { return excluded_numbers.contains(n); });
  if (numbers.empty()) wrong(field, text, "a list that has a number");
  return numbers;
}

std::vector<int> parse_cpu_list(const std::string& field, const std::string& text, const std::vector<int>& all) {
  std::vector<int> numbers = parse_cpu_sequence(field, text, all);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::optional<std::vector<int>> parse_mask(const std::string& text) {
  std::string digits;
  for (std::string group : split(text, ',')) {
    if (group.starts_with("0x") || group.starts_with("0X")) group = group.substr(2);
    const bool first = digits.empty();
    if (group.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos || (first && group.empty()) ||
        (!first && group.size() > 8))
      return std::nullopt;
    digits += (first ? "" : std::string(8 - group.size(), '0')) + group;
    if (std::ssize(digits) > kHighestCpu / 4) return std::nullopt;
  }
  std::vector<int> bits;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const int digit = std::stoi(std::string(1, digits[digits.size() - 1 - i]), nullptr, 16);
    for (int b = 0; b < 4; ++b)
      if (digit >> b & 1) bits.push_back(static_cast<int>(4 * i) + b);
  }
  if (bits.empty()) return std::nullopt;
  return bits;
}

std::string cpu_list(const std::vector<int>& cpus) { return id_list(cpus); }

}  // namespace mm

#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "error.hpp"
#include "sys/words.hpp"
#include "text.hpp"

namespace mm {
namespace {

[[noreturn]] void wrong(const std::string& field, const std::string& text, const char* allowed) {
  throw UsageError(field, "found " + quote(text), allowed);
}

constexpr const char* kSize = "a size such as 64, 512KiB, 64MB or 1GiB";
constexpr int kMaxNumbers = 1 << 16;  // in a range
constexpr const char* kTime = "a time such as 500ms, 10s or 5m";

/// Whether the whole text is a number. std::from_chars ignores the locale and accepts neither white space nor
/// hexadecimal.
template <class Number>
bool whole(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end;
}

// A number followed by one of `units`.
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
  static const std::map<std::string, double> units = {
      {"", 1},     {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
      {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},     {"TB", 1e12},    {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30}};
  const double bytes = with_unit(field, text, units, kSize);
  if (bytes > 0x1p50) wrong(field, text, "at most 1024TiB");
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
      if (per_octave < 1 || per_octave > 64) wrong(field, part, "1 to 64 points an octave");
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

std::vector<int> parse_integers(const std::string& field, const std::string& text, int all) {
  const auto one = [&](const std::string& word) {
    if (word == "all") return all;
    const long long n = parse_integer(field, word);
    if (n < 0 || n > 1 << 24) wrong(field, word, "0 to 16777216");
    return static_cast<int>(n);
  };
  std::set<int> numbers;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find(".."), dash = part.find('-');
    const bool doubles = dots != std::string::npos;
    if (!doubles && (dash == 0 || dash == std::string::npos)) {
      numbers.insert(one(part));
      continue;
    }
    const int low = one(part.substr(0, doubles ? dots : dash)), high = one(part.substr(doubles ? dots + 2 : dash + 1));
    if (high < low || (doubles && low < 1)) wrong(field, part, "a rising range such as 1..16 or 0-3");
    if (high - low > kMaxNumbers && !doubles) wrong(field, part, "a range of at most 65536 numbers");
    for (long long n = low; n < high; n = doubles ? 2 * n : n + 1) numbers.insert(static_cast<int>(n));
    numbers.insert(high);
  }
  return {numbers.begin(), numbers.end()};
}

std::vector<int> parse_cpu_list(const std::string& field, const std::string& text) {
  auto cpus = parse_id_list(text);
  if (!cpus) wrong(field, text, "a list such as 0-3,8");
  return *std::move(cpus);
}

std::string cpu_list(const std::vector<int>& cpus) { return id_list(cpus); }

}  // namespace mm

/// Parsing of options for Python, through a C interface: see native/base/options.hpp.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "error.hpp"
#include "json.hpp"
#include "options.hpp"

namespace {

using mm::json;
using Parser = std::function<json(const std::string& field, const std::string& text, int all)>;

const std::map<std::string, Parser> kParsers = {
    {"size", [](auto& field, auto& text, int) { return mm::parse_size(field, text); }},
    {"sizes", [](auto& field, auto& text, int) { return mm::parse_sizes(field, text); }},
    {"time", [](auto& field, auto& text, int) { return mm::parse_time(field, text); }},
    {"real", [](auto& field, auto& text, int) { return mm::parse_real(field, text); }},
    {"integer", [](auto& field, auto& text, int) { return mm::parse_integer(field, text); }},
    {"integers", [](auto& field, auto& text, int all) { return mm::parse_integers(field, text, all); }},
    {"cpus", [](auto& field, auto& text, int) { return mm::parse_cpu_list(field, text); }},
};

json parsed(const std::string& kind, const std::string& text, int all) {
  try {
    if (text.find('\0') != std::string::npos) return json{{"found", "found " + mm::quote(text)}, {"allowed", ""}};
    return json{{"value", kParsers.at(kind)("", text, all)}};
  } catch (const mm::UsageError& e) {
    return json{{"found", e.what()}, {"allowed", e.allowed}};
  } catch (const std::exception& e) {  // such as a list that exceeds memory
    return json{{"found", e.what()}, {"allowed", ""}};
  }
}

}  // namespace

/// Writes {"value": …} or {"found": …, "allowed": …} and a terminating null byte to `out`, truncated to `capacity`.
/// `all` is the value of "all". Returns the full length, without the null byte.
extern "C" __attribute__((visibility("default"))) std::size_t meshmark_parse(const char* kind, const char* text,
                                                                             std::size_t length, int all, char* out,
                                                                             std::size_t capacity) {
  const std::string answer = mm::to_line(parsed(kind, std::string(text, length), all));
  if (capacity > 0) {
    const std::size_t fits = std::min(answer.size(), capacity - 1);
    std::memcpy(out, answer.data(), fits);
    out[fits] = '\0';
  }
  return answer.size();
}

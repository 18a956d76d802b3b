#pragma once
/// Untrusted text in a line for people: what was found on a command line, in a file or in an environment.
#include <cstddef>
#include <string>
#include <string_view>

namespace mm {

inline constexpr std::size_t kMaxQuoted = 100;  ///< characters of what was found: a line names it, and is no copy

/// On one line, at most `most` characters and then "…": control characters and what is no UTF-8 as \xNN.
std::string shown(std::string_view text, std::size_t most = kMaxQuoted);
std::string quote(std::string_view text);
/// The end of a path, where the name of the file is.
std::string shown_path(std::string_view path);
/// A message of a library that quotes without limit: on one line, and each of its words not longer than a quotation.
std::string shown_message(std::string_view message);

}  // namespace mm

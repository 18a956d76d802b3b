#pragma once
/// Prints untrusted text, from a command line, a file or the environment, safely on one line.
#include <cstddef>
#include <string>
#include <string_view>

namespace mm {

inline constexpr std::size_t kMaxQuoted = 100;  ///< characters; messages identify the text, and need no full copy

/// On one line, at most `max` characters and then "…"; control characters and invalid UTF-8 become \xNN.
std::string shown(std::string_view text, std::size_t max = kMaxQuoted);
std::string quote(std::string_view text);
/// The end of a path, with the name of the file.
std::string shown_path(std::string_view path);
/// A message of a library that quotes without limit: on one line, with long words cut.
std::string shown_message(std::string_view message);

}  // namespace mm

#pragma once
/// Prints untrusted text, from a command line, a file or the environment, safely on one line.
#include <cstddef>
#include <string>
#include <string_view>

namespace mm {

inline constexpr std::size_t kMaxQuoted = 100;  ///< characters; a message identifies the text and needs no full copy

/// Returns the text on one line, at most `max` characters and then "…". Control characters and invalid UTF-8 become
/// \xNN.
std::string shown(std::string_view text, std::size_t max = kMaxQuoted);
std::string quote(std::string_view text);
/// Returns the end of a path, which contains the name of the file.
std::string shown_path(std::string_view path);
/// Returns the message of a library that quotes without limit, on one line and with long words shortened.
std::string shown_message(std::string_view message);

/// Returns a number with four significant digits.
std::string four_digits(double value);
/// Returns a number and what is counted: "1 thread", "2 threads". The plural is "", if it has an s more.
std::string counted(std::size_t count, const std::string& name, const std::string& plural = "");

}  // namespace mm

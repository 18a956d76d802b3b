#pragma once
/// Reads files that a user named. The path may be a FIFO without a writer, an endless device, or a folder.
#include <cstddef>
#include <string>

namespace mm {

inline constexpr std::size_t kMaxInput = std::size_t{64} << 20;  ///< bytes

/// The content of a file, or the reason why it cannot be read.
struct FileContent {
  std::string text;
  std::string wrong;    ///< "" on success; otherwise what was found: "found a FIFO"
  std::string allowed;  ///< "a regular file of at most 64 MiB"
};

/// Reads a whole regular file of at most `max` bytes. Never blocks, and reads nothing from a file that it refuses. Not
/// suitable for /proc and /sys, whose files report no size.
FileContent read_input(const std::string& path, std::size_t max = kMaxInput);
/// Returns the text of an input file. Throws UsageError with `field` if the file cannot be read.
std::string read_input_of(const std::string& field, const std::string& path);

}  // namespace mm

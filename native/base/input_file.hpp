#pragma once
/// Files that a user named, which may be anything: a FIFO that nobody writes to, a device without end, a folder.
#include <cstddef>
#include <string>

namespace mm {

inline constexpr std::size_t kMaxInput = std::size_t{64} << 20;  ///< bytes

/// What a file holds, or why it cannot be had.
struct Input {
  std::string text;
  std::string wrong;    ///< "": nothing; else what was found, for people: "found a FIFO"
  std::string allowed;  ///< "a regular file of at most 64 MiB"
};

/// All of a regular file of at most `most` bytes. It waits for nobody and reads nothing of what it refuses. The
/// kernel's own files (/proc, /sys) are not for it: they tell no size.
Input read_input(const std::string& path, std::size_t most = kMaxInput);

}  // namespace mm

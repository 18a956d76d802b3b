#pragma once
/// Files of /proc and /sys, opened once and read again at every tick, and the words in them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mm::watch {

/// A file that is read again and again; its buffer grows at the first readings only.
class File {
 public:
  File() = default;
  explicit File(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  /// The whole text as it is now; empty when it cannot be read (any more). Valid until the next reading.
  std::string_view text();

 private:
  int descriptor_ = -1;
  std::string buffer_;
};

/// The whole text of a small file without white space at its end; empty when there is none.
std::string read_once(const std::string& path);
/// The number of a file that holds nothing else; `otherwise` when it does not.
std::int64_t number_of(const std::string& path, std::int64_t otherwise);
std::vector<std::string> names_in(const std::string& folder);  ///< of a folder, sorted; none where it is missing

/// Cuts the next line, or the next word of a line, off the front of a text.
std::string_view next_line(std::string_view& text);
std::string_view next_word(std::string_view& line);
/// A word as a whole number; `otherwise` when it is none or too large.
std::int64_t number(std::string_view word, std::int64_t otherwise = -1);
/// The number that a name ends with: 3 of uncore_upi_3; -1 where there is none.
std::int64_t number_at_end(std::string_view name);
/// `0-3,8` as numbers; none where it is no such list. At most 65,536 of them.
std::vector<int> list_of(std::string_view text);

}  // namespace mm::watch

#include "node/run/recorded.hpp"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "sys/files.hpp"

namespace mm::node {
namespace {

constexpr std::size_t kMaxRecorded = 20'000, kMaxBytes = std::size_t{256} << 10;

/// Returns bytes as characters U+0000 to U+00FF, in UTF-8.
std::string as_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) text += static_cast<char>(0xc0 | byte >> 6);
    text += static_cast<char>(byte < 0x80 ? byte : 0x80 | (byte & 0x3f));
  }
  return text;
}

/// Reads the first `kMaxBytes` of a file; returns false if it is not a regular file or cannot be read.
bool read_some(const std::string& path, std::string& content) {
  const int file = open_to_read(path);
  struct stat status{};
  if (file < 0) return false;
  bool readable = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  std::array<char, 16384> buffer;
  content.clear();
  while (readable && content.size() < kMaxBytes) {
    const ssize_t n = ::read(file, buffer.data(), buffer.size());
    if (n == 0) break;
    readable = n > 0;
    if (readable) content.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(file);
  return readable;
}

}  // namespace

void record_files(const std::vector<std::string>& patterns, const std::string& root, ResultFile& out) {
  std::size_t left = kMaxRecorded;
  std::string content;
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (::glob((root + "/" + pattern).c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc && left > 0; ++i, --left) {
        const std::string path = matches.gl_pathv[i];
        if (read_some(path, content))
          out.line({{"type", "file"}, {"path", path.substr(root.size() + 1)}, {"content", as_characters(content)}});
      }
    }
    ::globfree(&matches);
  }
}

}  // namespace mm::node

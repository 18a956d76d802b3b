#include "reading.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace mm::watch {

namespace {
constexpr std::size_t kMostText = 64u << 20;  // no file of /proc or /sys is larger; a bound for hostile trees
constexpr std::int64_t kMostListed = 1 << 16;
}  // namespace

File::File(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (descriptor_ < 0) return;
  // A recorded tree may hold anything: what is no file has no text, and nobody waits for it.
  struct stat status{};
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode))
    buffer_.resize(4096);
  else
    ::close(std::exchange(descriptor_, -1));
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::move(other.buffer_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

std::string_view File::text() {
  if (descriptor_ < 0) return {};
  std::size_t have = 0;
  while (true) {
    const ssize_t got = ::pread(descriptor_, buffer_.data() + have, buffer_.size() - have, static_cast<off_t>(have));
    if (got < 0) return {};
    have += static_cast<std::size_t>(got);
    if (got == 0 || have < buffer_.size()) {
      // A short read may be a page's end and not the file's: only an empty one is sure, where there is room for it.
      if (got == 0) return {buffer_.data(), have};
      continue;
    }
    if (buffer_.size() >= kMostText) return {};
    buffer_.resize(2 * buffer_.size());
  }
}

std::string read_once(const std::string& path) {
  File file(path);
  std::string_view text = file.text();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\0')) text.remove_suffix(1);
  return std::string(text);
}

std::int64_t number_of(const std::string& path, std::int64_t otherwise) { return number(read_once(path), otherwise); }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code wrong;
  for (std::filesystem::directory_iterator at(folder, wrong), end; !wrong && at != end; at.increment(wrong))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    line = {};
    return {};
  }
  line.remove_prefix(begin);
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

std::int64_t number(std::string_view word, std::int64_t otherwise) {
  std::int64_t value = 0;
  const auto [end, wrong] = std::from_chars(word.data(), word.data() + word.size(), value);
  return wrong == std::errc() && end == word.data() + word.size() ? value : otherwise;
}

std::int64_t number_at_end(std::string_view name) {
  const std::size_t other = name.find_last_not_of("0123456789");
  return number(other == std::string_view::npos ? name : name.substr(other + 1));
}

std::vector<int> list_of(std::string_view text) {
  std::vector<int> found;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = part.find('-');
    const std::int64_t first = number(part.substr(0, dash));
    const std::int64_t last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (first < 0 || last < first || last >= kMostListed || last - first + std::ssize(found) >= kMostListed) return {};
    for (std::int64_t n = first; n <= last; ++n) found.push_back(static_cast<int>(n));
  }
  return found;
}

}  // namespace mm::watch

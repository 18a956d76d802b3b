#include "sys/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "sys/words.hpp"

namespace mm {
namespace {

constexpr std::size_t kMaxText = 64u << 20;  // larger than any file of /proc or /sys; bounds the input of hostile trees

}  // namespace

int open_to_read(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); }

KernelFile::KernelFile(const std::string& path) : descriptor_(open_to_read(path)) {
  if (descriptor_ < 0) return;
  // A recorded tree may contain anything: skip what is not a regular file, without blocking.
  struct stat status{};
  if (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode))
    buffer_.resize(4096);
  else
    ::close(std::exchange(descriptor_, -1));
}

KernelFile::~KernelFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

KernelFile::KernelFile(KernelFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::move(other.buffer_)) {}

KernelFile& KernelFile::operator=(KernelFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

std::string_view KernelFile::text() {
  if (descriptor_ < 0) return {};
  std::size_t length = 0;
  while (true) {
    const ssize_t read =
        ::pread(descriptor_, buffer_.data() + length, buffer_.size() - length, static_cast<off_t>(length));
    if (read < 0) return {};
    length += static_cast<std::size_t>(read);
    if (read == 0 || length < buffer_.size()) {
      // A short read may end at a page, not at the end of the file: only an empty read with space left is conclusive.
      if (read == 0) return {buffer_.data(), length};
      continue;
    }
    if (buffer_.size() >= kMaxText) return {};
    buffer_.resize(2 * buffer_.size());
  }
}

std::string read_text(const std::string& path) {
  std::string text;
  const int file = open_to_read(path);
  if (file < 0) return text;
  std::size_t length = 0;
  ssize_t read = 0;
  do {
    length += static_cast<std::size_t>(read);
    if (text.size() - length < 4096) text.resize(text.size() + (text.empty() ? 4096 : text.size()));
    read = ::read(file, text.data() + length, text.size() - length);
  } while (read > 0);
  const int error = errno;
  ::close(file);
  errno = error;
  text.resize(read < 0 ? 0 : length);
  return text;
}

std::string beginning_of(const std::string& path) {
  std::string text(4096, '\0');
  const int file = open_to_read(path);
  if (file < 0) return "";
  const ssize_t length = ::read(file, text.data(), text.size());
  ::close(file);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

std::string first_line(const std::string& path) {
  const std::string text = read_text(path);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::size_t last = text.find_last_not_of(std::string_view(" \t\0", 3), end == 0 ? 0 : end - 1);
  return end == 0 || last == std::string::npos ? "" : text.substr(0, last + 1);
}

std::int64_t number_in(const std::string& path, std::int64_t missing) {
  return whole_number(first_line(path), missing);
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int> numbered_names(const std::string& folder, std::string_view prefix, std::int64_t limit) {
  std::vector<int> numbers;
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    const std::int64_t number = whole_number(name.substr(prefix.size()));
    if (number >= 0 && number < limit) numbers.push_back(static_cast<int>(number));
  }
  ::closedir(dir);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> numbers;
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = ::readdir(dir))
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
      numbers.push_back(static_cast<pid_t>(leading_number(entry->d_name)));
  ::closedir(dir);
  return numbers;
}

PolledFile& PolledFile::operator=(PolledFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void PolledFile::close() {
  if (file_ >= 0) ::close(file_), --open_;
  file_ = -1;
}

std::string_view PolledFile::text() {
  static std::array<char, 1024> buffer;
  const int file = file_ >= 0 ? file_ : open_to_read(path_);
  const ssize_t read = file < 0 ? -1 : ::pread(file, buffer.data(), buffer.size(), 0);
  if (file >= 0 && file != file_) {
    rlimit limit{};
    const std::size_t max_open =
        ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<std::size_t>(limit.rlim_cur) / 2 : 64;
    if (open_ < max_open)
      file_ = file, ++open_;
    else
      ::close(file);
  }
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(read, 0))};
}

}  // namespace mm

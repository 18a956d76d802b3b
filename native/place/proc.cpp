#include "proc.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "error.hpp"
#include "options.hpp"

namespace mm::place {

std::string slurp(const std::string& path) {
  std::string text;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  std::size_t have = 0;
  ssize_t got = 0;
  do {
    have += static_cast<std::size_t>(got);
    if (text.size() - have < 4096) text.resize(text.size() + (text.empty() ? 4096 : text.size()));
    got = ::read(file, text.data() + have, text.size() - have);
  } while (got > 0);
  const int why = errno;
  ::close(file);
  errno = why;
  text.resize(got < 0 ? 0 : have);
  return text;
}

std::vector<int> kernel_list(const std::string& text) {
  try {
    return parse_cpu_list("list", text.substr(0, text.find('\n')));
  } catch (const UsageError&) {
    return {};
  }
}

std::string value_of(const std::string& text, const std::string& key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, key.size(), key) == 0) {
      const std::size_t first = text.find_first_not_of(" \t", at + key.size());
      return first < end ? text.substr(first, end - first) : "";
    }
    at = end + 1;
  }
  return "";
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

Again& Again::operator=(Again&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void Again::close() {
  if (file_ >= 0) ::close(file_), --open_;
  file_ = -1;
}

std::string_view Again::text() {
  static std::array<char, 1024> buffer;
  const int file = file_ >= 0 ? file_ : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : ::pread(file, buffer.data(), buffer.size(), 0);
  if (file >= 0 && file != file_) {
    rlimit limit{};
    const std::size_t most =
        ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<std::size_t>(limit.rlim_cur) / 2 : 64;
    if (open_ < most)
      file_ = file, ++open_;
    else
      ::close(file);
  }
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

std::string task_folder(pid_t process, pid_t thread) {
  return "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/";
}

std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> found;
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) return found;
  while (const dirent* entry = ::readdir(dir))
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
      found.push_back(static_cast<pid_t>(number_of(entry->d_name)));
  ::closedir(dir);
  return found;
}

std::map<pid_t, std::vector<pid_t>> children_by_parent() {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const pid_t id : numbers_in("/proc"))
    if (const auto stat = parse_stat(slurp("/proc/" + std::to_string(id) + "/stat")))
      children[stat->parent].push_back(id);
  return children;
}

std::vector<pid_t> descendants(pid_t of) {
  std::map<pid_t, std::vector<pid_t>> children = children_by_parent();
  std::vector<pid_t> found = children[of];
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<pid_t>& next = children[found[i]];
    found.insert(found.end(), next.begin(), next.end());
  }
  return found;
}

}  // namespace mm::place

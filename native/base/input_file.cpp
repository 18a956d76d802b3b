#include "input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mm {
namespace {

std::string kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no regular file";
}

/// Units as people say limits.
std::string size(std::size_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes) + " B";
}

}  // namespace

Input read_input(const std::string& path, std::size_t most) {
  Input input;
  input.allowed = "a regular file of at most " + size(most);
  const auto refuse = [&](const std::string& why) {
    input.text.clear();
    input.wrong = why;
    return input;
  };
  // Asked before it is opened, since some devices do something then; and after, since names change hands.
  struct stat status{};
  if (stat(path.c_str(), &status) != 0)
    return refuse(errno == ENOENT ? "found no such file" : std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("found " + kind(status.st_mode));
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) return refuse(std::string("cannot be read: ") + std::strerror(errno));
  const auto close_and = [&](const std::string& why) {
    close(file);
    return refuse(why);
  };
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return close_and("found " + kind(status.st_mode));
  if (static_cast<std::size_t>(status.st_size) > most)
    return close_and("found " + std::to_string(status.st_size) + " B");
  // To its end, wherever that is by now: it may grow, but not beyond the limit.
  for (char part[1 << 16];;) {
    const ssize_t n = read(file, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return close_and(std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) break;
    if (input.text.size() + static_cast<std::size_t>(n) > most) return close_and("found more than " + size(most));
    input.text.append(part, static_cast<std::size_t>(n));
  }
  close(file);
  return input;
}

}  // namespace mm

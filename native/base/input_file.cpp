#include "base/input_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "sys/files.hpp"

namespace mm {
namespace {

std::string kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "not a regular file";
}

/// Formats a size in MiB if it is a multiple of 1 MiB, otherwise in B.
std::string size(std::size_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes) + " B";
}

}  // namespace

FileContent read_input(const std::string& path, std::size_t max) {
  FileContent input;
  input.allowed = "a regular file of at most " + size(max);
  const auto refuse = [&](const std::string& reason) {
    input.text.clear();
    input.wrong = reason;
    return input;
  };
  // Checked before open(), which has side effects on some devices, and again afterwards, in case the path was replaced.
  struct stat status{};
  if (stat(path.c_str(), &status) != 0)
    return refuse(errno == ENOENT ? "found no such file" : std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("found " + kind(status.st_mode));
  const int file = open_to_read(path);
  if (file < 0) return refuse(std::string("cannot be read: ") + std::strerror(errno));
  const auto close_and = [&](const std::string& reason) {
    close(file);
    return refuse(reason);
  };
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return close_and("found " + kind(status.st_mode));
  if (static_cast<std::size_t>(status.st_size) > max)
    return close_and("found " + std::to_string(status.st_size) + " B");
  // Read to the end: the file may grow, but not beyond the limit.
  for (char part[1 << 16];;) {
    const ssize_t n = read(file, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return close_and(std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) break;
    if (input.text.size() + static_cast<std::size_t>(n) > max) return close_and("found more than " + size(max));
    input.text.append(part, static_cast<std::size_t>(n));
  }
  close(file);
  return input;
}

std::string read_input_of(const std::string& field, const std::string& path) {
  FileContent input = read_input(path);
  if (!input.wrong.empty()) throw UsageError(field, shown_path(path) + ": " + input.wrong, input.allowed);
  return std::move(input.text);
}

}  // namespace mm

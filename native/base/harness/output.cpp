#include "base/harness/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.hpp"

namespace mm {
namespace {
bool silent = false;
int target = STDOUT_FILENO;
}  // namespace

void mute(bool be_silent) { silent = be_silent; }
bool muted() { return silent; }

void keep_output() {
  if (target != STDOUT_FILENO) return;
  const int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) throw Failure(std::string("cannot duplicate standard output: ") + std::strerror(errno));
  std::fflush(stdout);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  target = copy;
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(file, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void emit(const json& line) {
  if (silent) return;
  // Host names and paths may contain invalid UTF-8, which is replaced.
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  if (!write_all(target, text)) throw Failure(std::string("cannot write the results: ") + std::strerror(errno));
}

}  // namespace mm

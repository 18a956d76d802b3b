#include "output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "error.hpp"

namespace mm {
namespace {
bool silent = false;
}

void mute(bool be_silent) { silent = be_silent; }
bool muted() { return silent; }

void emit(const json& line) {
  if (silent) return;
  // Host names and paths may hold bytes that are no UTF-8; they are shown as such, never fatal.
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Failure(std::string("cannot write the results: ") + std::strerror(errno));
    at += static_cast<std::size_t>(n);
  }
}

}  // namespace mm

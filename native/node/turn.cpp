#include "node/turn.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string_view>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace mm::node {

// An abstract address is bound by one socket of a network name space, and is free again when the last process that has
// the socket ends, however it ends. Files would need a folder that all users can write and that is not shared.
Turn::Turn(const std::string& name, double limit_s) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0) return;  // the system lacks such sockets, so that no turn can be held
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  char* const text = address.sun_path + 1;  // after the zero that makes it abstract
  const int length =
      std::snprintf(text, sizeof address.sun_path - 1, "meshmark-node-%016zx", std::hash<std::string_view>{}(name));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  const double end_s = wall_s() + limit_s;
  // After any other error, no turn can be held either.
  while (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size) != 0 && errno == EADDRINUSE) {
    if (wall_s() > end_s) throw Failure("another meshmark-node still measures here as " + quote(name));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Turn::~Turn() {
  if (socket_ >= 0) ::close(socket_);
}

}  // namespace mm::node

#include "base/error.hpp"

#include <sys/resource.h>

#include <new>
#include <system_error>

namespace mm {

std::string address_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "; the address space is limited to " + std::to_string(limit.rlim_cur >> 10) + " KiB (ulimit -v)";
}

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "not enough memory" + address_limit();
  if (dynamic_cast<const std::length_error*>(&error) != nullptr) return "not enough memory" + address_limit();
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return "cannot start a thread: " + std::string(error.what()) + address_limit();
  if (system != nullptr && system->code() == std::errc::not_enough_memory)
    return std::string(error.what()) + address_limit();
  return error.what();
}

}  // namespace mm

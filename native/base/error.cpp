#include "error.hpp"

#include <sys/resource.h>

#include <new>
#include <system_error>

namespace mm {

std::string address_limit() {
  rlimit most{};
  if (getrlimit(RLIMIT_AS, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return "";
  return "; the address space is limited to " + std::to_string(most.rlim_cur >> 10) + " KiB (ulimit -v)";
}

std::string message_of(const std::exception& wrong) {
  if (dynamic_cast<const std::bad_alloc*>(&wrong) != nullptr) return "not enough memory" + address_limit();
  if (dynamic_cast<const std::length_error*>(&wrong) != nullptr) return "not enough memory" + address_limit();
  const auto* const system = dynamic_cast<const std::system_error*>(&wrong);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return "cannot start a thread: " + std::string(wrong.what()) + address_limit();
  if (system != nullptr && system->code() == std::errc::not_enough_memory)
    return std::string(wrong.what()) + address_limit();
  return wrong.what();
}

}  // namespace mm

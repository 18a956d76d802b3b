#include "entry.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "text.hpp"

namespace mm {
namespace {

std::string program = "meshmark";

int print_error(const std::string& text) {
  std::fprintf(stderr, "%s: error: %s\n", program.c_str(), shown_message(text).c_str());
  return 1;
}

bool closed(int descriptor) { return fcntl(descriptor, F_GETFD) < 0 && errno == EBADF; }

/// Opens /dev/null for what is closed. False where that is standard output: its reader shall not take this for success.
bool open_standard() {
  const bool heard = !closed(STDOUT_FILENO);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (!closed(descriptor)) continue;
    // The smallest descriptor that is free is this one: those below are open.
    if (open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY) != descriptor) return false;
  }
  return heard;
}

/// Whether all that was printed has arrived.
bool flushed() {
  errno = 0;
  std::cout.flush();
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
}

/// The last resort, of an exception on a thread that nobody waits for.
[[noreturn]] void give_up() {
  try {
    if (const std::exception_ptr wrong = std::current_exception()) std::rethrow_exception(wrong);
    print_error("ended in the middle");
  } catch (const std::exception& wrong) {
    print_error(in_words(wrong));
  } catch (...) {
    print_error("ended by an exception of an unknown kind");
  }
  _exit(1);
}

}  // namespace

std::string address_limit() {
  rlimit most{};
  if (getrlimit(RLIMIT_AS, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return "";
  return "; the address space is limited to " + std::to_string(most.rlim_cur >> 10) + " KiB (ulimit -v)";
}

std::string in_words(const std::exception& wrong) {
  if (dynamic_cast<const std::bad_alloc*>(&wrong) != nullptr) return "not enough memory" + address_limit();
  if (dynamic_cast<const std::length_error*>(&wrong) != nullptr) return "not enough memory" + address_limit();
  const auto* const system = dynamic_cast<const std::system_error*>(&wrong);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return "cannot start a thread: " + std::string(wrong.what()) + address_limit();
  if (system != nullptr && system->code() == std::errc::not_enough_memory)
    return std::string(wrong.what()) + address_limit();
  return wrong.what();
}

int enter(const std::string& name, const std::function<int()>& work) {
  program = name;
  if (!open_standard()) return print_error("standard output is closed");
  std::set_terminate(give_up);
  int status = 1;
  try {
    status = work();
  } catch (const std::exception& wrong) {
    status = print_error(in_words(wrong));
  }
  if (!flushed() && status == 0)
    status = print_error(std::string("cannot write to standard output: ") +
                         (errno != 0 ? std::strerror(errno) : "it was refused earlier"));
  return status;
}

}  // namespace mm

/// Functions and data of newer C libraries that g++'s libraries and headers use, for programs that also run with an old
/// one (MM_GLIBC). The linker finds everything else in the old version.
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <sys/random.h>

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the names are glibc's
extern "C" {
/// glibc 2.32: whether atomic reference counts can be avoided; never.
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;

/// glibc 2.35: finds unwind tables quickly. After a failure, libgcc searches for them as it did before 2.35.
[[gnu::visibility("hidden")]] int _dl_find_object(void* /*address*/, void* /*result*/) { return -1; }

/// glibc 2.36: a random number.
[[gnu::visibility("hidden")]] std::uint32_t arc4random() {
  std::uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
    if (errno != EINTR) {
      std::abort();
    }
  }
  return number;
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

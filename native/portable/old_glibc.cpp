/// Functions and data of newer C libraries that g++'s libraries and headers use, for programs that also run with an old
/// one (MM_GLIBC). The linker finds everything else in the old version.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

/// Returns 1, which ends the iteration, if the object contains the address.
int find_in(dl_phdr_info* object, std::size_t /*size*/, void* data) {
  // NOLINTBEGIN(performance-no-int-to-ptr): the loader describes an object by the difference of its addresses
  const Search& search = *static_cast<Search*>(data);
  bool contains = false;
  dl_find_object match{};
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
    if (part.p_type == PT_LOAD && begin <= search.address && search.address < end) {
      contains = true;
      match.dlfo_map_start = reinterpret_cast<void*>(begin);
      match.dlfo_map_end = reinterpret_cast<void*>(end);
    } else if (part.p_type == DLFO_EH_SEGMENT_TYPE) {
      match.dlfo_eh_frame = reinterpret_cast<void*>(begin);
    }
  }
  if (!contains || match.dlfo_eh_frame == nullptr) return 0;
  // NOLINTEND(performance-no-int-to-ptr)
  *search.result = match;
  return 1;
}

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the names are glibc's
extern "C" {
/// glibc 2.32: whether atomic reference counts can be avoided; never.
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;

/// glibc 2.35: finds the unwind table of the object that contains an address. libgcc needs it to pass on an exception.
[[gnu::visibility("hidden")]] int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(find_in, &search) == 1 ? 0 : -1;
}

/// glibc 2.36: a random number.
[[gnu::visibility("hidden")]] std::uint32_t arc4random() noexcept {
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

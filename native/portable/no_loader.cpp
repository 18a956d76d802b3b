/// For programs that are fully static: replaces functions of glibc that would load shared libraries of the system,
/// which may be of another version.
#include <dlfcn.h>
#include <pwd.h>

extern "C" {
void* dlopen(const char* /*file*/, int /*mode*/) noexcept { return nullptr; }
void* dlsym(void* /*handle*/, const char* /*name*/) noexcept { return nullptr; }
int dladdr(const void* /*address*/, Dl_info* /*info*/) noexcept { return 0; }
/// Names of users are read by plug-ins of glibc; callers print the number instead.
passwd* getpwuid(uid_t /*user*/) { return nullptr; }
}

#include "place/ledger/folder.hpp"

#include <dirent.h>
#include <sys/file.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "place/command.hpp"
#include "sys/files.hpp"

namespace mm::place::ledger {

namespace {

constexpr double kMutexPatience_s = 10;

/// Sets the file mode regardless of the umask, for files that others must read.
class NoUmask {
 public:
  NoUmask() : old_(umask(0)) {}
  ~NoUmask() { umask(old_); }
  NoUmask(const NoUmask&) = delete;
  NoUmask& operator=(const NoUmask&) = delete;

 private:
  mode_t old_;
};

}  // namespace

double now_s() { return static_cast<double>(kernel_ns(CLOCK_REALTIME)) * 1e-9; }

void warn(const std::string& text) { std::fprintf(stderr, "meshmark: ledger: %s\n", text.c_str()); }

Folder open_folder(const std::string& path, bool make) {
  for (;;) {
    Folder folder{path, Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))};
    if (folder || (errno == ENOENT && !make)) return folder;
    const NoUmask guard;
    // Everybody may add files, but only remove their own.
    if (errno != ENOENT || (mkdir(path.c_str(), 01777) != 0 && errno != EEXIST))
      throw Failure("ledger " + path + ": " + errno_text() + "; set MESHMARK_LEDGER to another folder");
  }
}

std::string read_bounded(int fd) {
  std::string text;
  char part[8192];
  for (ssize_t n = 0;
       text.size() <= kMaxBytes && (n = pread(fd, part, sizeof part, static_cast<off_t>(text.size()))) > 0;)
    text.append(part, static_cast<std::size_t>(n));
  return text;
}

void write_text(int fd, const std::string& text, const std::string& path) {
  if (!write_all(fd, text)) throw Failure("ledger " + path + ": cannot write: " + errno_text());
}

std::string random_name() {
  unsigned long long bits = 0;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) throw Failure("ledger: no random number: " + errno_text());
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", bits);
  return text;
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

std::string holder_of(int fd) {
  struct stat status{};
  fstat(fd, &status);
  std::ifstream in("/proc/locks");
  const std::string inode = ":" + std::to_string(status.st_ino) + " ";
  for (std::string line; std::getline(in, line);) {
    if (line.find(inode) == std::string::npos || line.find("->") != std::string::npos) continue;
    int pid = 0;
    if (std::sscanf(line.c_str(), "%*s FLOCK %*s %*s %d", &pid) != 1 || pid <= 0) continue;
    const std::string name = first_line("/proc/" + std::to_string(pid) + "/comm");
    return "process " + std::to_string(pid) + (name.empty() ? "" : " (" + name + ")");
  }
  return "a process that is not visible here";
}

Fd publish(const Folder& folder, const std::string& name, const std::string& text) {
  Fd fd(openat(folder.fd.get(), ".", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0644));
  if (!fd)
    throw Failure("ledger " + folder.path + ": cannot write: " + errno_text() + "; " +
                  (errno == EACCES ? "chmod 1777 " + folder.path + ", use --no-claim, or set "
                                   : "it must be on a local file system such as tmpfs; set ") +
                  "MESHMARK_LEDGER to another folder");
  fchmod(fd.get(), 0644);
  if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0)
    throw Failure("ledger " + folder.path + ": cannot lock: " + errno_text());
  write_text(fd.get(), text, folder.path);
  const std::string self = "/proc/self/fd/" + std::to_string(fd.get());
  if (linkat(AT_FDCWD, self.c_str(), folder.fd.get(), name.c_str(), AT_SYMLINK_FOLLOW) != 0)
    throw Failure("ledger " + folder.path + ": cannot add " + name + ": " + errno_text());
  return fd;
}

std::vector<std::string> names_in(const Folder& folder, const std::string& prefix) {
  std::vector<std::string> names;
  const int fd = openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const dir = fd < 0 ? nullptr : fdopendir(fd);
  if (dir == nullptr) throw Failure("ledger " + folder.path + ": cannot list: " + errno_text());
  while (const dirent* entry = readdir(dir))
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) names.emplace_back(entry->d_name);
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Mutex::Mutex(const Folder& folder) {
  const double deadline = wall_s() + kMutexPatience_s;
  for (useconds_t pause_us = 100;; pause_us = std::min<useconds_t>(2 * pause_us, 5000)) {
    if (!fd_) open_in(folder);
    if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat open_status{}, name_status{};
      fstat(fd_.get(), &open_status);
      if (fstatat(folder.fd.get(), "mutex", &name_status, AT_SYMLINK_NOFOLLOW) == 0 &&
          name_status.st_ino == open_status.st_ino)
        return;
      fd_ = Fd();  // the file was removed: a lock on a file without a name excludes nobody
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR)
      throw Failure("ledger " + folder.path + ": cannot lock: " + errno_text());
    if (wall_s() > deadline)
      throw Failure("ledger " + folder.path + ": locked for " + std::to_string(static_cast<int>(kMutexPatience_s)) +
                    " s by " + holder_of(fd_.get()) + "; end that process, or use --no-claim");
    usleep(pause_us);
  }
}

// Read-only access suffices for flock(2), so users need no write permission.
void Mutex::open_in(const Folder& folder) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  for (;;) {
    fd_ = Fd(openat(folder.fd.get(), "mutex", flags));
    if (fd_) break;
    const NoUmask guard;
    if (errno == ENOENT) fd_ = Fd(openat(folder.fd.get(), "mutex", flags | O_CREAT | O_EXCL, 0666));
    if (fd_) break;
    if (errno != EEXIST && errno != ENOENT)
      throw Failure("ledger " + folder.path + ": cannot open its mutex: " + errno_text() + "; chmod 1777 " +
                    folder.path + ", or set MESHMARK_LEDGER to another folder");
  }
  struct stat status{};
  if (fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Failure("ledger " + folder.file("mutex") + ": not a regular file; remove it");
}

std::optional<LedgerFile> open_entry(const Folder& folder, const std::string& name) {
  LedgerFile entry{Fd(openat(folder.fd.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)), {}};
  if (!entry.fd && errno == ENOENT) return std::nullopt;
  const int reason = errno;
  if (entry.fd && fstat(entry.fd.get(), &entry.status) == 0 && S_ISREG(entry.status.st_mode)) return entry;
  warn("ignored " + folder.file(name) + ": " + (entry.fd ? "not a regular file" : std::strerror(reason)) +
       "; remove it");
  return std::nullopt;
}

bool dead(const LedgerFile& entry) { return flock(entry.fd.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace mm::place::ledger

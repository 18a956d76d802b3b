#pragma once
/// The folder of the ledger and its files: written whole, locked by their holders, read from strangers with bounds.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mm::place::ledger {

inline constexpr std::size_t kMaxBytes = 1 << 20;  // of one file: anybody may write into the folder
inline constexpr std::size_t kMaxText = 4096;      // of a command or a key

double now_s();                      ///< since the epoch
void warn(const std::string& text);  ///< on standard error, about something that is not this command's fault

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct Folder {
  std::string path;
  Fd fd;
  explicit operator bool() const { return static_cast<bool>(fd); }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// None where there is no such folder and none shall be made.
Folder open_folder(const std::string& path, bool make);
std::string read_bounded(int fd);
void write_text(int fd, const std::string& text, const std::string& path);
std::string random_name();
std::string boot_id();
/// Who holds a lock on this file, by the kernel's table: "process 12 (name)", or what is known of it.
std::string holder_of(int fd);
/// A file that is whole and locked before it has a name, so that nobody ever meets half of one.
Fd publish(const Folder& folder, const std::string& name, const std::string& text);
std::vector<std::string> names_in(const Folder& folder, const std::string& prefix);

/// The folder's lock, held while this object lives.
class Mutex {
 public:
  explicit Mutex(const Folder& folder);

 private:
  void open_in(const Folder& folder);
  Fd fd_;
};

/// Opened for reading only: who looks must not wake those who wait for a writer to close (see Watch).
struct Entry {
  Fd fd;
  struct stat status{};
};
std::optional<Entry> open_entry(const Folder& folder, const std::string& name);

/// Nobody shares its lock any more. Keeps the lock, so that no second one buries it, until the entry is closed.
bool dead(const Entry& entry);

}  // namespace mm::place::ledger

#pragma once
/// The folder of the ledger and its files: written atomically, locked by their holders, and read with limits, since any
/// user may write them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "sys/descriptor.hpp"

namespace mm::place::ledger {

inline constexpr std::size_t kMaxBytes = 1 << 20;  // maximum size of a file: any user may write to the folder
inline constexpr std::size_t kMaxText = 4096;      // maximum size of a command or a key

double now_s();                      ///< seconds since the epoch
void warn(const std::string& text);  ///< prints a warning about something that this command did not cause

struct Folder {
  std::string path;
  Fd fd;
  explicit operator bool() const { return static_cast<bool>(fd); }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Opens the folder of the ledger. Returns an empty Folder if it does not exist and `make` is false.
Folder open_folder(const std::string& path, bool make);
std::string read_bounded(int fd);
void write_text(int fd, const std::string& text, const std::string& path);
std::string random_name();
std::string boot_id();
/// Returns the holder of a lock on this file according to the Linux kernel's table: "process 12 (name)", or what is
/// known.
std::string holder_of(int fd);
/// Adds a file that is complete and locked before it gets its name, so that nobody sees an incomplete one.
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

/// A file of the ledger. It is opened read-only: readers must not trigger the events on which waiting processes depend
/// (see Watch).
struct LedgerFile {
  Fd fd;
  struct stat status{};
};
std::optional<LedgerFile> open_entry(const Folder& folder, const std::string& name);

/// Returns whether nobody shares the entry's lock any more. Keeps the lock until the entry is closed, so that only one
/// process removes the file.
bool dead(const LedgerFile& entry);

}  // namespace mm::place::ledger

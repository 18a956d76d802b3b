#pragma once
/// Files of /proc and /sys, of this machine or of a recorded tree.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm {

/// A descriptor, -1 if the file cannot be opened (errno contains the reason). Never waits: a recorded tree may contain
/// FIFOs, and reading them must not wait for a writer.
int open_to_read(const std::string& path);
/// The whole text of a file; "" if it cannot be read (errno contains the reason).
std::string read_text(const std::string& path);
/// The first 4 KiB of a file; "" if it cannot be read. Of /proc/cpuinfo, this is the first CPU at least, and the Linux
/// kernel interrupts each CPU of which it is asked for the clock.
std::string beginning_of(const std::string& path);
/// The first line without trailing white space; "" if there is none.
std::string first_line(const std::string& path);
/// The number that a file contains; `missing` if it contains anything else.
std::int64_t number_in(const std::string& path, std::int64_t missing);
/// Names in a folder, sorted; empty if the folder is missing.
std::vector<std::string> names_in(const std::string& folder);
/// The numbers N, below `limit`, of the names `prefixN` in a folder, ascending; empty if the folder is missing.
std::vector<int> numbered_names(const std::string& folder, std::string_view prefix, std::int64_t limit);
/// Entries of a folder that begin with a digit, as in /proc and /proc/PID/task.
std::vector<pid_t> numbers_in(const std::string& folder);

/// A file that is read repeatedly; its buffer grows only during the first reads.
class KernelFile {
 public:
  KernelFile() = default;
  explicit KernelFile(const std::string& path);
  ~KernelFile();
  KernelFile(KernelFile&& other) noexcept;
  KernelFile& operator=(KernelFile&& other) noexcept;
  KernelFile(const KernelFile&) = delete;
  KernelFile& operator=(const KernelFile&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  /// The current text; empty if it cannot be read. Valid until the next call.
  std::string_view text();

 private:
  int descriptor_ = -1;
  std::string buffer_;
};

/// A file of /proc that is sampled for many tasks; stays open as long as descriptors are plentiful.
class PolledFile {
 public:
  explicit PolledFile(std::string path) : path_(std::move(path)) {}
  PolledFile(PolledFile&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  PolledFile& operator=(PolledFile&& other) noexcept;
  ~PolledFile() { close(); }
  void close();
  /// At most 1 KiB, which exceeds these files; "" if the thread has ended. Valid until the next call.
  std::string_view text();

 private:
  static inline std::size_t open_ = 0;
  std::string path_;
  int file_ = -1;
};

}  // namespace mm

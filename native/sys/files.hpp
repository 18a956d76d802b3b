#pragma once
/// Files of /proc and /sys, of this machine or of a recorded tree.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm {

/// Returns a descriptor, or -1 if the file cannot be opened (errno contains the reason). Never waits: a recorded tree
/// may contain FIFOs, and reading them must not wait for a writer.
int open_to_read(const std::string& path);
/// Returns the whole text of a file; "" if it cannot be read (errno contains the reason).
std::string read_text(const std::string& path);
/// Returns the first 4 KiB of a file; "" if it cannot be read. In /proc/cpuinfo, this covers at least the first CPU.
/// Reading that file in full would interrupt each CPU, because the Linux kernel determines the clock of each.
std::string beginning_of(const std::string& path);
/// Returns the first line of a file without trailing white space; "" if the file is empty or cannot be read.
std::string first_line(const std::string& path);
/// Returns the number that a file contains; `missing` if it contains anything else.
std::int64_t number_in(const std::string& path, std::int64_t missing);
/// Returns the names in a folder, sorted; empty if the folder is missing.
std::vector<std::string> names_in(const std::string& folder);
/// Returns the numbers N, below `limit`, of the names `prefixN` in a folder, ascending; empty if the folder is missing.
std::vector<int> numbered_names(const std::string& folder, std::string_view prefix, std::int64_t limit);
/// Returns the numbers of the entries of a folder that begin with a digit, as in /proc and /proc/PID/task.
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
  /// Returns the current text; empty if it cannot be read. The text is valid until the next call.
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
  /// Returns at most 1 KiB, which is more than these files contain; "" if the thread has ended. The text is valid until
  /// the next call.
  std::string_view text();

 private:
  static inline std::size_t open_ = 0;
  std::string path_;
  int file_ = -1;
};

}  // namespace mm

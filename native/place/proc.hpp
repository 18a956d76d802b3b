#pragma once
/// Texts of /proc and /sys, and which process started which.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/procfs.hpp"

namespace mm::place {

/// The whole text of a file; "" where it cannot be read (errno says why).
std::string slurp(const std::string& path);
/// A list of the kernel's (`0-3,8`); none where it is no such list.
std::vector<int> kernel_list(const std::string& text);
/// What follows `key` in the lines of a text such as /proc/PID/status, without white space round it; "" where it is not
/// there.
std::string value_of(const std::string& text, const std::string& key);
/// The digits that a text begins with, as a number; 0 where it begins with none.
std::uint64_t number_of(std::string_view text);

/// A file of /proc that is read at every look: kept open where there are descriptors to spare.
class Again {
 public:
  explicit Again(std::string path) : path_(std::move(path)) {}
  Again(Again&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  Again& operator=(Again&& other) noexcept;
  ~Again() { close(); }
  void close();
  /// At most 1 KiB, which is more than these files have, until the next look; "" where the thread has ended.
  std::string_view text();

 private:
  static inline std::size_t open_ = 0;
  std::string path_;
  int file_ = -1;
};

std::string task_folder(pid_t process, pid_t thread);  ///< /proc/PID/task/TID/

using Stat = TaskStat;

/// Entries of a folder that begin with a digit, as in /proc and /proc/PID/task.
std::vector<pid_t> numbers_in(const std::string& folder);
/// All processes by their parent, by one look at /proc.
std::map<pid_t, std::vector<pid_t>> children_by_parent();
/// All that descend from a process, each after its parent.
std::vector<pid_t> descendants(pid_t of);

}  // namespace mm::place

#pragma once
/// Parsers of texts in /proc.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mm {

/// A process or thread in /proc/PID/stat or /proc/PID/task/TID/stat.
struct TaskStat {
  std::string command;
  char state = '?';
  pid_t parent = 0;
  std::uint64_t user = 0, system = 0;  ///< CPU time, clock ticks
  std::uint64_t threads = 0;           ///< of its process
  std::uint64_t started = 0;           ///< clock ticks after boot; distinguishes tasks that reuse an identifier
  int cpu = -1;                        ///< on which it ran last
};
/// None if the text is truncated or a field is not a number.
std::optional<TaskStat> parse_stat(std::string_view text);

}  // namespace mm

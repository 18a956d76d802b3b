#pragma once
/// Processes and threads in /proc.
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm {

/// A process or thread in /proc/PID/stat or /proc/PID/task/TID/stat.
struct TaskStat {
  std::string command;
  char state = '?';
  pid_t parent = 0;
  std::uint64_t user = 0, system = 0;  ///< CPU time, clock ticks
  std::uint64_t threads = 0;           ///< number of threads of its process
  std::uint64_t started = 0;           ///< clock ticks after boot; distinguishes tasks that reuse an identifier
  int cpu = -1;                        ///< CPU on which it last ran
};
/// Returns nothing if the text is truncated or a field is not a number.
std::optional<TaskStat> parse_stat(std::string_view text);
/// Returns what /proc/PID/stat says about a process; nothing if it has ended.
std::optional<TaskStat> process_stat(pid_t process);

std::string task_folder(pid_t process, pid_t thread);  ///< /proc/PID/task/TID/

/// Returns the affinity mask of a thread as the Linux kernel stores it, one bit for each CPU; "" if the thread has
/// ended. The bytes are valid until the next call in the same thread.
std::string_view affinity_bytes(pid_t thread);
std::vector<int> cpus_of_mask(std::string_view bytes);  ///< the CPUs whose bits are set, ascending

/// Returns all processes by parent, from one pass over /proc.
std::map<pid_t, std::vector<pid_t>> children_by_parent();
/// Returns all descendants of a process, each after its parent.
std::vector<pid_t> descendants(pid_t of);

}  // namespace mm

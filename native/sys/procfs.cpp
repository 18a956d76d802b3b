#include "sys/procfs.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>

#include "sys/files.hpp"

namespace mm {
namespace {

template <class T>
bool parse_number(const char* begin, const char* end, T& number) {
  return std::from_chars(begin, end, number).ec == std::errc();
}

}  // namespace

std::optional<TaskStat> parse_stat(std::string_view text) {
  // The command may contain spaces and parentheses, so the last parenthesis ends it.
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open || close + 2 >= text.size())
    return {};
  TaskStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  stat.state = text[close + 2];
  const char* at = text.data() + close + 3;
  const char* const end = text.data() + text.size();
  for (int field = 4; field <= 39; ++field) {
    while (at != end && *at == ' ') ++at;
    // Field numbers of proc_pid_stat(5). The others are skipped: samplers parse this text for every thread.
    bool parsed = true;
    if (field == 4) parsed = parse_number(at, end, stat.parent);
    if (field == 14) parsed = parse_number(at, end, stat.user);
    if (field == 15) parsed = parse_number(at, end, stat.system);
    if (field == 20) parsed = parse_number(at, end, stat.threads);
    if (field == 22) parsed = parse_number(at, end, stat.started);
    if (field == 39) parsed = parse_number(at, end, stat.cpu);
    if (!parsed) return {};
    while (at != end && *at != ' ') ++at;
  }
  return stat;
}

std::optional<TaskStat> process_stat(pid_t process) {
  return parse_stat(read_text("/proc/" + std::to_string(process) + "/stat"));
}

std::string task_folder(pid_t process, pid_t thread) {
  return "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/";
}

std::string_view affinity_bytes(pid_t thread) {
  constexpr std::size_t kMaskBytes = 1024;  // 8192 CPUs
  static thread_local std::string mask(kMaskBytes, '\0');
  const long size = ::syscall(SYS_sched_getaffinity, thread, kMaskBytes, mask.data());
  return std::string_view(mask).substr(0, size > 0 ? static_cast<std::size_t>(size) : 0);
}

std::vector<int> cpus_of_mask(std::string_view bytes) {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < 8 * bytes.size(); ++cpu)
    if ((static_cast<unsigned char>(bytes[cpu / 8]) >> (cpu % 8) & 1) != 0) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

std::map<pid_t, std::vector<pid_t>> children_by_parent() {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const pid_t id : numbers_in("/proc"))
    if (const auto stat = process_stat(id)) children[stat->parent].push_back(id);
  return children;
}

std::vector<pid_t> descendants(pid_t of) {
  std::map<pid_t, std::vector<pid_t>> children = children_by_parent();
  std::vector<pid_t> processes = children[of];
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const std::vector<pid_t>& next = children[processes[i]];
    processes.insert(processes.end(), next.begin(), next.end());
  }
  return processes;
}

}  // namespace mm

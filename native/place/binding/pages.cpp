#include "place/binding/pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "base/options/options.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::place {
namespace {

std::string_view cut(std::string_view& text, char by) {
  const std::size_t at = text.find(by);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return head;
}

}  // namespace

std::uint64_t kib(std::string_view text, std::string_view key) { return leading_number(value_of(text, key)) << 10; }

bool is_file(std::string_view path) {
  for (const std::string_view memory : {"/memfd:", "/SYSV", "/dev/shm/", "/dev/zero", "/anon_hugepage"})
    if (path.starts_with(memory)) return false;
  return true;
}

PageCount parse_numa_maps(std::string_view text) {
  PageCount count;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    cut(line, ' ');  // the address
    std::string policy(cut(line, ' '));
    if (line.starts_with("(many)") || line.starts_with("interleave"))  // `prefer (many):0`, `weighted interleave:0-1`
      policy += ' ' + std::string(cut(line, ' '));
    std::map<int, std::uint64_t> pages;
    std::uint64_t page_bytes = 4096, anonymous = 0, all = 0;
    bool file = false, huge = false;
    while (!line.empty()) {
      const std::string_view word = cut(line, ' ');
      const std::size_t equals = word.find('=');
      const std::string_view key = word.substr(0, equals),
                             value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
      if (key == "file") file = is_file(value);
      if (key == "huge") huge = true;
      if (key == "anon") anonymous = leading_number(value);
      if (key == "kernelpagesize_kB") page_bytes = leading_number(value) << 10;
      if (key.size() > 1 && key[0] == 'N' && key.find_first_not_of("0123456789", 1) == std::string_view::npos)
        all += pages[static_cast<int>(leading_number(key.substr(1)))] = leading_number(value);
    }
    // Written pages in a private mapping of a file belong to the process: its data segments.
    const bool of_process = !file || huge || (all > 0 && anonymous >= all);
    for (const auto& [node, n] : pages) {
      (of_process ? count.own : count.files)[node] += n * page_bytes;
      if (of_process) count.by_policy[{node, policy}] += n * page_bytes;
      if (of_process && huge) count.huge_bytes += n * page_bytes;
    }
  }
  return count;
}

std::uint64_t transparent_huge_bytes(pid_t process) {
  const std::string rollup = read_text("/proc/" + std::to_string(process) + "/smaps_rollup");
  return kib(rollup, "AnonHugePages:") + kib(rollup, "ShmemPmdMapped:");
}

void refuse_pages_of_others(pid_t process) {
  throw Absent("the pages of process " + std::to_string(process) + " belong to another user",
               "run as that user, or with CAP_SYS_PTRACE");
}

PageCount count_pages(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  errno = 0;
  const std::string text = read_text(folder + "/numa_maps");
  if (text.empty() && (errno == EACCES || errno == EPERM)) refuse_pages_of_others(process);
  if (text.empty() && errno == ENOENT && ::access(folder.c_str(), F_OK) == 0 &&
      ::access("/proc/self/numa_maps", F_OK) != 0)
    throw Absent("this Linux kernel does not report the nodes of pages (/proc/PID/numa_maps)",
                 "a kernel with CONFIG_NUMA");
  PageCount count = parse_numa_maps(text);
  count.huge_bytes += transparent_huge_bytes(process);
  return count;
}

std::map<int, NodeLevel> node_levels(const std::string& root) {
  std::map<int, NodeLevel> levels;
  const std::string folder = root + "/sys/devices/system/node/";
  for (const int node : ids_of(read_text(folder + "online"))) {
    const std::string at = folder + "node" + std::to_string(node), text = read_text(at + "/meminfo");
    const std::string begin = "Node " + std::to_string(node) + " ";
    levels[node] = {kib(text, begin + "MemTotal:"), kib(text, begin + "MemFree:"), 0,
                    leading_number(value_of(read_text(at + "/numastat"), "numa_foreign"))};
  }
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::string zones = read_text(root + "/proc/zoneinfo");
  std::string_view text = zones;
  int node = -1;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    if (line.starts_with("Node ")) node = static_cast<int>(leading_number(line.substr(5)));
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (!line.starts_with("high ") || !levels.contains(node)) continue;
    line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    levels[node].reserve += leading_number(line) * page;
  }
  return levels;
}

}  // namespace mm::place

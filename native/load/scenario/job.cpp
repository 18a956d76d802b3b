#include "load/scenario/job.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "load/scenario/run_clock.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {
namespace {

constexpr std::size_t kMaxLine = 1 << 20;

}  // namespace

bool Job::read_status() {
  std::array<char, 4096> data;
  const ssize_t n = ::read(child.status, data.data(), data.size());
  if (n > 0) status_text.append(data.data(), static_cast<std::size_t>(n));
  if (n < 0 && errno == EAGAIN) return false;
  if (n > 0 || (n < 0 && errno == EINTR)) return true;
  close_if_open(child.status);  // the command was executed, or its failure reported
  return false;
}

void Job::read_lines(const std::function<void(std::string_view)>& handle) {
  std::array<char, 1 << 16> data;
  const ssize_t n = ::read(child.out, data.data(), data.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    close_if_open(child.out);
    return;
  }
  unfinished_line_.append(data.data(), static_cast<std::size_t>(n));
  std::size_t at = 0;
  for (std::size_t end; (end = unfinished_line_.find('\n', at)) != std::string::npos; at = end + 1)
    handle(std::string_view(unfinished_line_).substr(at, end - at));
  unfinished_line_.erase(0, at);
  if (unfinished_line_.size() > kMaxLine) unfinished_line_.clear();  // longer than any line of a synthetic program
}

void Job::drain(const std::function<void(std::string_view)>& handle) {
  while (child.out >= 0) {
    pollfd p{child.out, POLLIN, 0};
    if (::poll(&p, 1, 0) <= 0) return;
    read_lines(handle);
  }
}

void Job::close_pipes() { close_if_open(child.gate), close_if_open(child.out), close_if_open(child.status); }

bool Job::open_gate() {
  const ssize_t n = ::write(child.gate, "go\n", 3);
  close_if_open(child.gate);
  return n == 3;
}

bool Job::is_runnable() const {
  const auto stat = process_stat(child.pid);
  return stat && stat->state == 'R';
}

void Job::set_base() {
  timespec cpu{};
  clockid_t clock = 0;
  if (::clock_getcpuclockid(child.pid, &clock) == 0 && ::clock_gettime(clock, &cpu) == 0)
    base_cpu_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
  if (const auto stat = process_stat(child.pid)) base_system_s = static_cast<double>(stat->system) / ticks_per_second();
}

json Job::total(const JobUse& seen_use) const {
  json line{{"type", "total"}, {"program", start->name}, {"copy", start->copy}, {"pid", child.pid}};
  if (phase != Phase::ended) {
    line["how"] = "failed";
    return line;
  }
  line["how"] = timed_out                       ? "timeout"
                : killed                        ? "stopped"
                : WIFSIGNALED(wait_status)      ? "signal"
                : WEXITSTATUS(wait_status) != 0 ? "status"
                                                : "ok";
  if (WIFSIGNALED(wait_status))
    line["signal"] = WTERMSIG(wait_status);
  else
    line["status"] = WEXITSTATUS(wait_status);
  const double system_s = std::max(0.0, seconds(use.ru_stime) - base_system_s) + orphans_system_s;
  const double cpu_s =
      std::max(0.0, seconds(use.ru_utime) + seconds(use.ru_stime) - base_cpu_s) + orphans_user_s + orphans_system_s;
  json pages = json::object();
  for (const auto& [node, n] : seen_use.bytes) pages[std::to_string(node)] = n;
  line.update({{"setup_s", rounded(ready_s - started_s)},
               {"released_s", rounded(released_s)},
               {"ended_s", rounded(ended_s)},
               {"wall_s", rounded(ended_s - released_s)},
               {"user_s", rounded(std::max(0.0, cpu_s - system_s))},
               {"system_s", rounded(std::min(cpu_s, system_s))},
               {"waiting_s", rounded(seen_use.waiting_s)},
               {"sleeping_s", rounded(seen_use.sleeping_s)},
               {"unseen_s", rounded(std::max(0.0, cpu_s - seen_use.ran_s))},
               {"threads", seen_use.threads},
               {"processes", seen_use.processes},
               {"migrations", seen_use.migrations},
               {"minor_faults", use.ru_minflt},
               {"major_faults", use.ru_majflt},
               {"switches_voluntary", use.ru_nvcsw},
               {"switches_involuntary", use.ru_nivcsw},
               {"largest_bytes", use.ru_maxrss << 10},
               {"pages", pages}});
  return line;
}

std::string ending(int wait_status) {
  return WIFSIGNALED(wait_status) ? "was ended by signal " + std::to_string(WTERMSIG(wait_status))
                                  : "ended with status " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace mm::load

#include "load/scenario/processes/signals.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {

sigset_t run_signals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR2}) sigaddset(&blocked, signal);
  return blocked;
}

sigset_t block_signals() {
  std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, the operating system reaps the programs itself
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is reported like a full disk
  const sigset_t blocked = run_signals();
  sigset_t previous_mask;
  ::sigprocmask(SIG_BLOCK, &blocked, &previous_mask);
  return previous_mask;
}

int notify_descriptor() {
  const char* value = std::getenv("MESHMARK_NOTIFY");
  if (value == nullptr) return -1;
  const std::string text = value;
  ::unsetenv("MESHMARK_NOTIFY");
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc() || end != text.data() + text.size() || fd <= STDERR_FILENO)
    throw Failure("MESHMARK_NOTIFY: found " + quote(text) + "; allowed: the number of a descriptor, 3 or more");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd, F_SETFL, O_NONBLOCK | O_WRONLY) != 0)
    throw Failure("MESHMARK_NOTIFY: descriptor " + text + ": " + std::strerror(errno));
  return fd;
}

void kill_descendants() {
  while (true) {
    const std::vector<pid_t> remaining = descendants(::getpid());
    for (const pid_t pid : remaining) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    if (remaining.empty()) return;
    ::usleep(2000);
  }
}

int wait_for_runner(pid_t runner) {
  const sigset_t blocked = run_signals();
  while (true) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&blocked, &info);
    if (number < 0) continue;
    if (number != SIGCHLD) {
      ::kill(runner, number == SIGHUP ? SIGTERM : number);
      continue;
    }
    int status = 0;
    for (pid_t ended_pid; (ended_pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended_pid != runner) continue;
      kill_descendants();
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      throw Failure("the sampler was ended by signal " + std::to_string(WTERMSIG(status)) +
                    "; all programs were terminated");
    }
  }
}

}  // namespace mm::load

#include "load/scenario/signals.hpp"

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

#include "error.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {

sigset_t run_signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR2}) sigaddset(&taken, signal);
  return taken;
}

sigset_t take_over_signals() {
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, the operating system reaps the programs itself
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a journal that may not grow is reported like a full disk
  const sigset_t taken = run_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &taken, &before);
  return before;
}

int notify_descriptor() {
  const char* value = std::getenv("MESHMARK_NOTIFY");
  if (value == nullptr) return -1;
  const std::string text = value;
  ::unsetenv("MESHMARK_NOTIFY");
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc() || end != text.data() + text.size() || fd <= STDERR_FILENO)
    throw Failure("MESHMARK_NOTIFY: found " + quote(text) + "; allowed is the number of a descriptor from 3");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd, F_SETFL, O_NONBLOCK | O_WRONLY) != 0)
    throw Failure("MESHMARK_NOTIFY: descriptor " + text + ": " + std::strerror(errno));
  return fd;
}

void end_descendants() {
  while (true) {
    const std::vector<pid_t> left = descendants(::getpid());
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    if (left.empty()) return;
    ::usleep(2000);
  }
}

int stand_by(pid_t runner) {
  const sigset_t taken = run_signals();
  while (true) {
    siginfo_t info{};
    const int got = ::sigwaitinfo(&taken, &info);
    if (got < 0) continue;
    if (got != SIGCHLD) {
      ::kill(runner, got == SIGHUP ? SIGTERM : got);
      continue;
    }
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != runner) continue;
      end_descendants();
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      throw Failure("the sampler was ended by signal " + std::to_string(WTERMSIG(status)) +
                    "; the programs were ended");
    }
  }
}

}  // namespace mm::load

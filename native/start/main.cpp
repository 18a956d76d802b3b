/// meshmark-start: sets the limits, the CPUs and the scheduling class of this process, and then executes a program.
///
/// Python cannot do this itself between fork and exec: a forked copy of an interpreter whose libraries run threads may
/// wait forever for a lock that one of these threads held (`preexec_fn` of subprocess.Popen). `meshmark.process`
/// starts all child processes that need such a preparation through this program, and is its only user.
///
///     meshmark-start REPORT PARENT SIGNAL [STEP=VALUE…] -- PROGRAM [ARGUMENT…]
///
/// REPORT is the descriptor of a pipe that closes when the program is executed. If a step fails, its name and the errno
/// are written there, such as "cpus 22", and the exit status is 127. PARENT is the process that must still be the
/// parent; SIGNAL is the signal that this process receives when the parent dies.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace {

[[noreturn]] void fail(int report, std::string_view step, int error) {
  char text[96];
  const int length = std::snprintf(text, sizeof text, "%.*s %d\n", static_cast<int>(step.size()), step.data(), error);
  [[maybe_unused]] const ssize_t written = ::write(report, text, static_cast<std::size_t>(length));
  std::_Exit(127);
}

/// Returns the number at the front of `text`, and advances `text` past it and one separator. Python writes well-formed
/// numbers.
unsigned long long next_number(const char*& text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  text = *end == '\0' ? end : end + 1;
  return number;
}

/// Requests the signal for the death of the parent, and raises it if the parent died before the request.
void end_with_parent(pid_t parent, int number) {
  ::signal(number, SIG_DFL);  // the program would inherit an ignored signal
  ::prctl(PR_SET_PDEATHSIG, number);
  if (::getppid() != parent) {
    ::raise(number);
    std::_Exit(127);
  }
}

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

/// Restricts this process to a comma-separated list of CPUs, the highest of which comes first. Returns the errno.
int set_cpus(const char* text) {
  const std::size_t count = static_cast<std::size_t>(next_number(text)) + 1;
  const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(count));
  if (set == nullptr) return ENOMEM;
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(count - 1, bytes, set.get());
  while (*text != '\0') CPU_SET_S(static_cast<std::size_t>(next_number(text)), bytes, set.get());
  return ::sched_setaffinity(0, bytes, set.get()) == 0 ? 0 : errno;
}

/// Sets the scheduling class and priority given as "CLASS:PRIORITY". Returns the errno.
int set_scheduler(const char* text) {
  const int kind = static_cast<int>(next_number(text));
  sched_param parameters{};
  parameters.sched_priority = static_cast<int>(next_number(text));
  return ::sched_setscheduler(0, kind, &parameters) == 0 ? 0 : errno;
}

/// Sets a resource limit given as "RESOURCE:SOFT:HARD". Returns the errno.
int set_limit(const char* text) {
  const int resource = static_cast<int>(next_number(text));
  rlimit limit{};
  limit.rlim_cur = next_number(text);
  limit.rlim_max = next_number(text);
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 ? 0 : errno;
}

/// Writes the id of this process into a file such as `tasks` of resctrl or `cgroup.procs`. Returns the errno.
int join_group(const char* path) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);  // simulated groups have no files yet
  if (file < 0) return errno;
  char text[32];
  const int length = std::snprintf(text, sizeof text, "%d\n", static_cast<int>(::getpid()));
  const ssize_t written = ::write(file, text, static_cast<std::size_t>(length));
  const int error = written == length ? 0 : errno;
  ::close(file);
  return error;
}

/// Lets the program receive the signals for which the process that started it waits, and which are blocked there.
void unblock_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Performs one step, and does not return if it fails.
void take(int report, const char* argument) {
  const char* value = std::strchr(argument, '=');
  if (value == nullptr) fail(report, "step", EINVAL);
  const std::string_view step(argument, static_cast<std::size_t>(value - argument));
  ++value;
  int error = EINVAL;
  if (step == "cpus") error = set_cpus(value);
  if (step == "scheduler") error = set_scheduler(value);
  if (step == "limit") error = set_limit(value);
  if (step == "join") error = join_group(value);
  if (error != 0) fail(report, step, error);
}

/// Executes the program, searching PATH if its name has no slash, and returns the errno if that fails. Unlike execvp,
/// it does not pass a file of unknown format to a shell.
int execute(char** words) {
  const std::string_view program = words[0];
  if (program.find('/') != std::string_view::npos) {
    ::execv(words[0], words);
    return errno;
  }
  const char* variable = std::getenv("PATH");
  std::string_view path = variable == nullptr ? "/bin:/usr/bin" : variable;
  int error = ENOENT;
  while (true) {
    const std::size_t colon = path.find(':');
    std::string file(path.substr(0, colon));
    if (!file.empty()) file += '/';
    file += program;
    ::execv(file.c_str(), words);
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (colon == std::string_view::npos) return error;
    path.remove_prefix(colon + 1);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 6) {
    std::fputs("meshmark-start: this program is started by meshmark\n", stderr);
    return 2;
  }
  const int report = std::atoi(words[1]);
  ::fcntl(report, F_SETFD, FD_CLOEXEC);
  unblock_signals();
  end_with_parent(static_cast<pid_t>(std::atol(words[2])), std::atoi(words[3]));
  int word = 4;
  for (; word < count && std::strcmp(words[word], "--") != 0; ++word) take(report, words[word]);
  if (word + 1 >= count) fail(report, "step", EINVAL);
  fail(report, "exec", execute(words + word + 1));
}

#include "node/run/process.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/clock.hpp"
#include "base/resources/child.hpp"
#include "sys/procfs.hpp"

namespace mm::node {
namespace {

constexpr double kLook_s = 0.5;    // seconds between checks of the size of the output
constexpr double kTerm_s = 2.0;    // seconds that programs have to end by themselves
constexpr double kPause_s = 0.01;  // seconds between checks of processes that were killed
constexpr std::uint64_t kMoreThanRunner = std::uint64_t{1}
                                          << 20;  // bytes of memory: Linux counts pages with some delay

// Prefixes of the environment variables of the batch system and of MPI in a job. With these variables, a launcher would
// start its ranks on other nodes of the job, and an MPI program without a launcher would join the step of the runner.
constexpr std::array<std::string_view, 8> kOfTheJob{"SLURM_", "PMI",   "OMPI_",     "PBS_",
                                                    "LSB_",   "FLUX_", "MPI_LOCAL", "HYDRA_"};

/// Status that the child sends before `exec`, and again if `exec` fails.
struct Told {
  double begin_s = 0;
  int error = 0;
  bool prepared = false;     ///< its folder and the files for its output were opened
  bool installed = true;     ///< an executable file of its name exists
  std::uint64_t before = 0;  ///< bytes of its peak memory so far, which is the peak of a copy of this process
};

sigset_t child_ended() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

void limit(int resource, std::uint64_t most) {
  rlimit limits{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limits);
  limits.rlim_cur = limits.rlim_max = std::min<rlim_t>(limits.rlim_max, most);
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limits);
}

bool redirect(const std::string& path, int flags, int to) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  return file >= 0 && ::dup2(file, to) >= 0;
}

/// Removes the variables from which programs conclude that they are part of the runner's job.
void forget_job() {
  std::vector<std::string> names;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry(*at);
    if (std::any_of(kOfTheJob.begin(), kOfTheJob.end(), [&](const auto& begin) { return entry.starts_with(begin); }))
      names.emplace_back(entry.substr(0, entry.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

/// Returns whether execvp finds an executable file of this name. The start may still fail for other reasons: the
/// interpreter of a script may be missing.
bool is_installed(const std::string& program) {
  const auto is_executable = [](const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* const variable = std::getenv("PATH");
  std::stringstream folders(variable != nullptr ? variable : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_executable((folder.empty() ? "." : folder) + "/" + program)) return true;
  return false;
}

/// In the child: becomes the command, or reports why it cannot.
[[noreturn]] void become(const Command& command, int report, const sigset_t& mask) {
  ::setsid();
  std::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  const std::vector<char*> argv = argument_vector(command.argv);
  forget_job();
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  constexpr int kOut = O_WRONLY | O_CREAT | O_APPEND;
  Told status;
  // Linux keeps the peak memory of a process when it executes another program.
  if (rusage use{}; ::getrusage(RUSAGE_SELF, &use) == 0)
    status.before = static_cast<std::uint64_t>(use.ru_maxrss) << 10;
  if (redirect("/dev/null", O_RDONLY, STDIN_FILENO) && redirect(command.out, kOut, STDOUT_FILENO) &&
      redirect(command.err, kOut, STDERR_FILENO) && ::chdir(command.folder.c_str()) == 0) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, command.output);
    if (command.memory > 0) limit(RLIMIT_DATA, command.memory);
    status.begin_s = wall_s();
    status.prepared = true;
    if (::write(report, &status, sizeof status) == sizeof status) ::execvp(argv[0], argv.data());
  }
  status.error = errno;
  status.installed = is_installed(command.argv[0]);
  if (::write(report, &status, sizeof status) < 0) ::_exit(126);
  ::_exit(127);
}

void add(Ended& ended, const rusage& use) {
  ended.user_s += seconds(use.ru_utime);
  ended.system_s += seconds(use.ru_stime);
  ended.peak_bytes = std::max(ended.peak_bytes, static_cast<std::uint64_t>(use.ru_maxrss) << 10);
  ended.minor_faults += static_cast<std::uint64_t>(use.ru_minflt);
  ended.major_faults += static_cast<std::uint64_t>(use.ru_majflt);
  ended.switches_involuntary += static_cast<std::uint64_t>(use.ru_nivcsw);
}

/// Reaps all children that have ended. Returns whether `child` is one of them.
bool reap(pid_t child, Ended& ended) {
  bool has_ended = false;
  int status = 0;
  rusage use{};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &use)) > 0;) {
    add(ended, use);
    if (pid != child) continue;
    has_ended = true;
    ended.how = WIFSIGNALED(status) ? "signal" : "status";
    ended.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  return has_ended;
}

/// Waits until a child ends, but no longer than `most_s`.
void wait_some(double most_s) {
  const double pause_s = std::clamp(most_s, 0.0, kLook_s);
  const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
  const sigset_t set = child_ended();
  ::sigtimedwait(&set, nullptr, &pause);
}

std::uint64_t written_bytes(const std::string& folder) {
  namespace fs = std::filesystem;
  std::uint64_t total = 0;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
  while (!error && at != end) {
    struct stat status{};
    if (::lstat(at->path().c_str(), &status) == 0) total += static_cast<std::uint64_t>(status.st_blocks) * 512;
    at.increment(error);
  }
  return total;
}

/// Waits for the command. Returns why it must be stopped, or "" if it has ended.
const char* wait_for(const Command& command, pid_t child, double begin_s, Ended& ended) {
  const double end_s = begin_s + command.timeout_s;
  double next_check_s = begin_s + kLook_s;
  while (!reap(child, ended)) {
    const double now = wall_s();
    if (now >= end_s) return "time";
    if (now >= next_check_s) {
      if (!command.watched.empty() && written_bytes(command.watched) > command.output) return "output";
      next_check_s = wall_s() + kLook_s;
    }
    wait_some(std::min(end_s, next_check_s) - wall_s());
  }
  return "";
}

/// Ends the command and its descendants. SIGTERM comes first, so that they can tidy up.
void stop(pid_t child, Ended& ended) {
  ::kill(-child, SIGTERM);
  for (const pid_t pid : descendants(::getpid())) ::kill(pid, SIGTERM);
  const double end_s = wall_s() + kTerm_s;
  Ended ignored;
  while (!reap(child, ignored) && wall_s() < end_s) wait_some(end_s - wall_s());
  ended.stuck = end_descendants().stuck;
}

}  // namespace

Rest end_descendants(double most_s) {
  std::set<pid_t> killed;
  Rest rest;
  for (const double end_s = wall_s() + most_s;;) {
    const auto all = children_by_parent();
    const auto own_children = all.find(::getpid());
    if (own_children == all.end()) break;
    rest.stuck = 0;
    for (const pid_t pid : own_children->second) {
      if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;  // it has ended, or is no longer a child
      killed.insert(pid);
      ++rest.stuck;
      ::kill(pid, SIGKILL);
    }
    if (wall_s() >= end_s) break;
    if (rest.stuck > 0) std::this_thread::sleep_for(std::chrono::duration<double>(kPause_s));
  }
  rest.left = static_cast<int>(killed.size());
  return rest;
}

Ended run_to_end(const Command& command) {
  Pipe status_pipe;
  std::signal(SIGCHLD, SIG_DFL);
  const sigset_t set = child_ended();
  sigset_t previous_mask;
  ::sigprocmask(SIG_BLOCK, &set, &previous_mask);
  Ended ended;
  const pid_t child = start_child();  // without its parent, nobody would end the command
  if (child == 0) become(command, status_pipe.writer.get(), previous_mask);
  status_pipe.writer.close();
  Told status{wall_s(), 0};
  // The descriptor closes when the child becomes the command.
  for (ssize_t n = 1; n != 0;) {
    Told message;
    n = ::read(status_pipe.reader.get(), &message, sizeof message);
    if (n == sizeof message) status = message;
    if (n < 0 && errno != EINTR) break;
  }
  status_pipe.reader.close();
  const std::string stop_reason = wait_for(command, child, status.begin_s, ended);
  ended.elapsed_s = wall_s() - status.begin_s;
  if (!stop_reason.empty()) {
    stop(child, ended);
    ended.how = stop_reason;
    ended.code = 0;
  } else {
    const Rest rest = end_descendants();
    ended.left = rest.left;
    ended.stuck = rest.stuck;
    // A short run may end before the first check.
    if (ended.good() && !command.watched.empty() && written_bytes(command.watched) > command.output)
      ended.how = "output";
  }
  if (ended.peak_bytes <= status.before + kMoreThanRunner) ended.peak_bytes = 0;
  if (status.error != 0) ended = {status.prepared ? status.installed ? "start" : "missing" : "folder", status.error};
  ::sigprocmask(SIG_SETMASK, &previous_mask, nullptr);
  return ended;
}

}  // namespace mm::node

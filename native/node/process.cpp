#include "node/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
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

#include "clock.hpp"
#include "error.hpp"
#include "sys/procfs.hpp"

namespace mm::node {
namespace {

constexpr double kLook_s = 0.5;                                    // between looks at the size of what it writes
constexpr double kTerm_s = 2.0;                                    // for programs to end by themselves
constexpr double kPause_s = 0.01;                                  // between looks at processes that were killed
constexpr std::uint64_t kMoreThanRunner = std::uint64_t{1} << 20;  // of memory: Linux counts pages with some delay

// Of the batch system and of MPI in the environment of a job, each the beginning of a name. With them, a launcher would
// start its ranks on other nodes of the job, and an MPI program without one would join the step of the runner.
constexpr std::array<std::string_view, 8> kOfTheJob{"SLURM_", "PMI",   "OMPI_",     "PBS_",
                                                    "LSB_",   "FLUX_", "MPI_LOCAL", "HYDRA_"};

/// What a child tells before it becomes the command, and once more if it cannot.
struct Told {
  double begin_s = 0;
  int error = 0;
  bool prepared = false;     ///< its folder and the files of its output were opened
  bool found = true;         ///< there is an executable file of its name
  std::uint64_t before = 0;  ///< bytes of its largest memory so far, that of a copy of this process
};

sigset_t child_ended() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

void limit(int resource, std::uint64_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &now);
  now.rlim_cur = now.rlim_max = std::min<rlim_t>(now.rlim_max, most);
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
}

bool redirect(const std::string& path, int flags, int to) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  return file >= 0 && ::dup2(file, to) >= 0;
}

/// Removes what tells programs of the job that this runner is part of.
void forget_job() {
  std::vector<std::string> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view one(*at);
    if (std::any_of(kOfTheJob.begin(), kOfTheJob.end(), [&](const auto& begin) { return one.starts_with(begin); }))
      found.emplace_back(one.substr(0, one.find('=')));
  }
  for (const std::string& name : found) ::unsetenv(name.c_str());
}

/// Whether execvp finds an executable file of this name. It cannot be started for other reasons, too: the interpreter
/// of a script may be missing.
bool is_installed(const std::string& program) {
  const auto is_executable = [](const std::string& path) {
    struct stat about{};
    return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && ::access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* const variable = std::getenv("PATH");
  std::stringstream folders(variable != nullptr ? variable : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_executable((folder.empty() ? "." : folder) + "/" + program)) return true;
  return false;
}

/// In the child: becomes the command, or tells why it cannot.
[[noreturn]] void become(const Command& command, pid_t parent, int told, const sigset_t& mask) {
  // Without its parent, nobody would end the command.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setsid();
  std::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::vector<char*> argv;
  for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  forget_job();
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  constexpr int kOut = O_WRONLY | O_CREAT | O_APPEND;
  Told text;
  // Linux keeps the largest memory of a process when it becomes another program.
  if (rusage use{}; ::getrusage(RUSAGE_SELF, &use) == 0) text.before = static_cast<std::uint64_t>(use.ru_maxrss) << 10;
  if (redirect("/dev/null", O_RDONLY, STDIN_FILENO) && redirect(command.out, kOut, STDOUT_FILENO) &&
      redirect(command.err, kOut, STDERR_FILENO) && ::chdir(command.folder.c_str()) == 0) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, command.output);
    if (command.memory > 0) limit(RLIMIT_DATA, command.memory);
    text.begin_s = wall_s();
    text.prepared = true;
    if (::write(told, &text, sizeof text) == sizeof text) ::execvp(argv[0], argv.data());
  }
  text.error = errno;
  text.found = is_installed(command.argv[0]);
  if (::write(told, &text, sizeof text) < 0) ::_exit(126);
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

/// Takes note of all children that have ended. Returns whether `child` is one of them.
bool reap(pid_t child, Ended& ended) {
  bool over = false;
  int status = 0;
  rusage use{};
  for (pid_t pid; (pid = ::wait4(-1, &status, WNOHANG, &use)) > 0;) {
    add(ended, use);
    if (pid != child) continue;
    over = true;
    ended.how = WIFSIGNALED(status) ? "signal" : "status";
    ended.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  return over;
}

/// Waits until a child ends, for at most so long.
void wait_some(double most_s) {
  const double pause_s = std::clamp(most_s, 0.0, kLook_s);
  const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
  const sigset_t set = child_ended();
  ::sigtimedwait(&set, nullptr, &pause);
}

std::uint64_t written_bytes(const std::string& folder) {
  namespace fs = std::filesystem;
  std::uint64_t total = 0;
  std::error_code wrong;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, wrong), end;
  while (!wrong && at != end) {
    struct stat about{};
    if (::lstat(at->path().c_str(), &about) == 0) total += static_cast<std::uint64_t>(about.st_blocks) * 512;
    at.increment(wrong);
  }
  return total;
}

/// Waits for the command. Returns why it must be stopped, "" if it has ended.
const char* wait_for(const Command& command, pid_t child, double begin_s, Ended& ended) {
  const double end_s = begin_s + command.timeout_s;
  double look_s = begin_s + kLook_s;
  while (!reap(child, ended)) {
    const double now = wall_s();
    if (now >= end_s) return "time";
    if (now >= look_s) {
      if (!command.watched.empty() && written_bytes(command.watched) > command.output) return "output";
      look_s = wall_s() + kLook_s;
    }
    wait_some(std::min(end_s, look_s) - wall_s());
  }
  return "";
}

/// Ends the command and its descendants, first so that they can tidy up.
void stop(pid_t child, Ended& ended) {
  ::kill(-child, SIGTERM);
  for (const pid_t pid : descendants(::getpid())) ::kill(pid, SIGTERM);
  const double end_s = wall_s() + kTerm_s;
  Ended ignored;
  while (!reap(child, ignored) && wall_s() < end_s) wait_some(end_s - wall_s());
  ended.stuck = end_descendants().stuck;
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

Rest end_descendants(double most_s) {
  std::set<pid_t> met;
  Rest rest;
  for (const double end_s = wall_s() + most_s;;) {
    const auto all = children_by_parent();
    const auto own = all.find(::getpid());
    if (own == all.end()) break;
    rest.stuck = 0;
    for (const pid_t pid : own->second) {
      if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;  // it had ended, or is no child any more
      met.insert(pid);
      ++rest.stuck;
      ::kill(pid, SIGKILL);
    }
    if (wall_s() >= end_s) break;
    if (rest.stuck > 0) std::this_thread::sleep_for(std::chrono::duration<double>(kPause_s));
  }
  rest.left = static_cast<int>(met.size());
  return rest;
}

Ended run_to_end(const Command& command) {
  std::array<int, 2> told{};
  if (::pipe2(told.data(), O_CLOEXEC) != 0) throw Failure(std::string("cannot create a pipe: ") + std::strerror(errno));
  std::signal(SIGCHLD, SIG_DFL);
  const sigset_t set = child_ended();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &set, &before);
  Ended ended;
  const pid_t self = ::getpid(), child = ::fork();
  if (child == 0) become(command, self, told[1], before);
  ::close(told[1]);
  if (child < 0) {
    ::close(told[0]);
    throw Failure(std::string("cannot start a process: ") + std::strerror(errno));
  }
  Told text{wall_s(), 0};
  // The descriptor closes when the child becomes the command.
  for (ssize_t n = 1; n != 0;) {
    Told part;
    n = ::read(told[0], &part, sizeof part);
    if (n == sizeof part) text = part;
    if (n < 0 && errno != EINTR) break;
  }
  ::close(told[0]);
  const std::string stopped = wait_for(command, child, text.begin_s, ended);
  ended.elapsed_s = wall_s() - text.begin_s;
  if (!stopped.empty()) {
    stop(child, ended);
    ended.how = stopped;
    ended.code = 0;
  } else {
    const Rest rest = end_descendants();
    ended.left = rest.left;
    ended.stuck = rest.stuck;
    // A short run may end before the first look.
    if (ended.good() && !command.watched.empty() && written_bytes(command.watched) > command.output)
      ended.how = "output";
  }
  if (ended.peak_bytes <= text.before + kMoreThanRunner) ended.peak_bytes = 0;
  if (text.error != 0) ended = {text.prepared ? text.found ? "start" : "missing" : "folder", text.error};
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return ended;
}

}  // namespace mm::node

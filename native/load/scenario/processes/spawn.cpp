#include "load/scenario/processes/spawn.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/resources/child.hpp"
#include "place/binding/bind.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {
namespace {

// ---------------------------------------------------------------- in the child, before exec

[[noreturn]] void fail_start(int status, const std::string& reason) {
  if (::write(status, reason.data(), reason.size()) < 0) ::_exit(126);
  ::_exit(127);
}

[[noreturn]] void fail_with_errno(int status, const std::string& what) {
  fail_start(status, what + ": " + std::strerror(errno));
}

void duplicate_to(int fd, int target, int status) {
  if (fd < 0 || ::dup2(fd, target) < 0) fail_with_errno(status, "descriptor " + std::to_string(target));
}

int opened(const std::string& path, int flags, int status) {
  const int fd = ::open(path.empty() ? "/dev/null" : path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) fail_with_errno(status, path);
  return fd;
}

void join_cgroup(const std::string& folder, int status) {
  const int fd = ::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  const std::string pid = std::to_string(::getpid());
  if (fd < 0 || ::write(fd, pid.data(), pid.size()) < 0) fail_with_errno(status, "cgroup " + folder);
  ::close(fd);
}

void restore(const Inherited& before) {
  for (int n = 1; n < NSIG; ++n)
    if (n != SIGKILL && n != SIGSTOP) std::signal(n, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before.mask, nullptr);
  ::setrlimit(RLIMIT_NOFILE, &before.files);
}

void apply_placement(const Start& s, const Inherited& before, int status) {
  ::sched_setaffinity(0, sizeof before.cpus, &before.cpus);
  try {
    if (!s.cpus.empty()) place::set_affinity(s.cpus);
    if (!s.memory.empty()) place::set_memory(machine_of("host"), place::parse_memory(s.memory), s.cpus);
  } catch (const std::exception& reason) {
    fail_start(status, reason.what());
  }
}

void set_priority(const Start& s, const Inherited& before, int status) {
  const int policy = scheduling_policy(s.priority);
  sched_param parameter{};
  parameter.sched_priority = policy == SCHED_FIFO ? 1 : 0;
  if (::sched_setscheduler(0, policy, &parameter) != 0) fail_with_errno(status, "priority " + s.priority);
  if (const int nice = std::clamp(before.nice + s.nice, -20, 19); ::setpriority(PRIO_PROCESS, 0, nice) != 0)
    fail_with_errno(status, "nice " + std::to_string(s.nice));
}

/// Reports ready and waits for the release.
void wait_at_gate(int gate, int status) {
  char go = 0;
  if (::write(status, "\n", 1) != 1) ::_exit(126);
  while (::read(gate, &go, 1) < 0 && errno == EINTR) {}
  if (go == 0) ::_exit(126);
}

/// Executes the program. `gate`, `status` and `out` are the child's ends of the pipes.
[[noreturn]] void execute(const Start& s, const Inherited& before, int gate, int status, int out) {
  ::setpgid(0, 0);
  restore(before);
  if (!s.cgroup.empty()) join_cgroup(s.cgroup, status);
  apply_placement(s, before, status);
  set_priority(s, before, status);
  if (!s.cwd.empty() && ::chdir(s.cwd.c_str()) != 0) fail_with_errno(status, "cwd " + s.cwd);
  for (const auto& [name, value] : s.environment) ::setenv(name.c_str(), value.c_str(), 1);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  duplicate_to(s.synthesised ? gate : opened("", O_RDONLY, status), STDIN_FILENO, status);
  duplicate_to(s.synthesised ? out : opened(s.out, flags, status), STDOUT_FILENO, status);
  duplicate_to(opened(s.error, flags, status), STDERR_FILENO, status);
  if (!s.synthesised) wait_at_gate(gate, status);  // synthetic programs wait after their own set-up
  const std::vector<char*> argv = argument_vector(s.argv);
  ::execvp(argv[0], argv.data());
  fail_with_errno(status, quote(s.argv[0]) + " cannot be executed");
}

// ---------------------------------------------------------------- in the runner

/// A new cgroup of version 1 has no CPUs and no nodes, and accepts no process until they are set.
void fill_cpuset(const std::string& folder) {
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    const std::string current = read_text(folder + file);
    if (!current.empty() && current != "\n") continue;
    const std::string parent = read_text(folder.substr(0, folder.rfind('/')) + file);
    if (parent.empty()) continue;
    const int fd = ::open((folder + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    [[maybe_unused]] const ssize_t n = ::write(fd, parent.data(), parent.size());
    ::close(fd);
  }
}

}  // namespace

void close_if_open(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

Child spawn(const Start& start, const Inherited& inherited) {
  Pipe gate, status;
  std::optional<Pipe> out;
  if (start.synthesised) out.emplace();
  Child child;
  child.pid = start_child(SIGKILL, inherited.parent);
  if (child.pid == 0) {
    gate.writer.close();  // otherwise, the child would never see the gate close without being opened
    execute(start, inherited, gate.reader.get(), status.writer.get(), out ? out->writer.get() : -1);
  }
  ::setpgid(child.pid, child.pid);  // in parent and child, so that it is set before either continues
  child.gate = gate.writer.release(), child.status = status.reader.release();
  if (out) child.out = out->reader.release();
  for (const int fd : {child.gate, child.status, child.out})
    if (fd >= 0) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return child;
}

ControlGroups::~ControlGroups() {
  for (const std::string& folder : made_) ::rmdir(folder.c_str());
}

void ControlGroups::make(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0) return;
  made_.push_back(folder);
  fill_cpuset(folder);
}

}  // namespace mm::load

#include "node/run/step.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/resources/child.hpp"
#include "node/program.hpp"
#include "node/run/process.hpp"
#include "program/instruments.hpp"

namespace mm::node {
namespace {

constexpr std::size_t kMaxLine = std::size_t{16} << 20;

sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) ::sigaddset(&set, signal);
  return set;
}

int run_program_of(const PlanStep& step, const UserProgram& program) {
  try {
    return run_program(step, program, [](const json& line) { emit(line); });
  } catch (const std::exception& error) {
    emit({{"type", "error"}, {"field", nullptr}, {"message", message_of(error)}, {"allowed", nullptr}});
    return 2;
  }
}

/// In the child: runs the step, which writes its lines to `out`.
[[noreturn]] void measure(const PlanStep& step, int out, const Interrupts& interrupts) {
  ::setpgid(0, 0);
  interrupts.restore();
  if (::dup2(out, STDOUT_FILENO) < 0) ::_exit(1);
  if (step.program) {
    adopt_orphans();
    ::_exit(run_program_of(step, *step.program));
  }
  std::vector<std::string> words{step.front};
  words.insert(words.end(), step.argv.begin(), step.argv.end());
  words.insert(words.end(), {"--machine", step.machine});
  std::vector<char*> argv = argument_vector(words);
  const int status = answer(static_cast<int>(words.size()), argv.data(), {.name = step.front, .summary = ""});
  ::_exit(status);  // without destructors of the parent's objects
}

/// Waits for a child that was killed, but no longer than kKilled_s: it may be waiting for a file system that does not
/// answer. Returns whether it has ended.
bool wait_for_killed(pid_t child, int& status) {
  for (const double end_s = wall_s() + kKilled_s;;) {
    const pid_t pid = ::waitpid(child, &status, WNOHANG);
    if (pid != 0 && !(pid < 0 && errno == EINTR)) return true;
    if (wall_s() >= end_s) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Calls `take` with each complete line, and keeps the rest. Drops lines that are longer than `kMaxLine`.
void pass_lines(std::string& pending, const std::function<void(std::string_view)>& take) {
  std::size_t begin = 0;
  for (std::size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
    take(std::string_view(pending).substr(begin, end - begin));
  pending.erase(0, begin);
  if (pending.size() > kMaxLine) pending.clear();
}

StepEnd end_of(int wait_status, const std::optional<UserProgram>& program) {
  if (WIFSIGNALED(wait_status)) return {"failed", std::string("it was ended by: ") + strsignal(WTERMSIG(wait_status))};
  switch (const int status = WEXITSTATUS(wait_status)) {
    case 0:
      return {"ok", ""};
    case kNotInstalled:
      return {"absent", program ? "its program is not installed" : "nothing could be measured"};
    case kFailed:
      if (program) return {"failed", std::to_string(program->failures) + " of its runs failed"};
      [[fallthrough]];
    default:
      return {"failed", "it ended with status " + std::to_string(status)};
  }
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t set = ending_signals();
  ::sigprocmask(SIG_BLOCK, &set, &before_);
  descriptor_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw Failure(std::string("cannot create a signalfd: ") + std::strerror(errno));
}

Interrupts::~Interrupts() {
  ::close(descriptor_);
  restore();
}

bool Interrupts::arrived() {
  signalfd_siginfo info{};
  if (::read(descriptor_, &info, sizeof info) == sizeof info) arrived_ = true;
  return arrived_;
}

void Interrupts::restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

StepEnd run_step(const PlanStep& step, double end_s, Interrupts& interrupts,
                 const std::function<void(std::string_view)>& take) {
  const double begin_s = wall_s();
  Pipe pipe;
  if (step.program) adopt_orphans();  // orphans of the child, if it is killed
  const pid_t child = start_child();
  if (child == 0) measure(step, pipe.writer.get(), interrupts);
  pipe.writer.close();
  ::setpgid(child, child);  // in both processes, so that it is set before either continues
  std::string pending;
  const char* stop_status = nullptr;
  for (;;) {
    const double left_s = end_s - wall_s();
    if (interrupts.arrived()) stop_status = "interrupted";
    if (left_s <= 0 && stop_status == nullptr) stop_status = "timed out";
    if (stop_status != nullptr) break;
    std::array<pollfd, 2> wait{{{pipe.reader.get(), POLLIN, 0}, {interrupts.descriptor(), POLLIN, 0}}};
    if (::poll(wait.data(), wait.size(), static_cast<int>(std::min(left_s * 1000 + 1, 1e6))) <= 0) continue;
    if (wait[0].revents == 0) continue;
    std::array<char, 65536> buffer;
    const ssize_t n = ::read(pipe.reader.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buffer.data(), static_cast<std::size_t>(n));
    pass_lines(pending, take);
  }
  pipe.reader.close();
  int wait_status = 0;
  bool has_ended = true;
  if (stop_status != nullptr) {
    ::kill(-child, SIGKILL);
    has_ended = wait_for_killed(child, wait_status);
  } else {
    wait_status = wait_for_child(child);
  }
  ::kill(-child, SIGKILL);  // processes that it left behind
  if (step.program) end_descendants();
  StepEnd end = end_of(wait_status, step.program);
  if (stop_status != nullptr)
    end = {stop_status,
           stop_status == std::string("timed out") ? "its time limit was reached" : "a signal was received"};
  if (!has_ended) end.reason += "; its process was killed and does not end";
  end.elapsed_s = wall_s() - begin_s;
  return end;
}

}  // namespace mm::node

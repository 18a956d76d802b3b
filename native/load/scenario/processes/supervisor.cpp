#include "load/scenario/processes/supervisor.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "load/scenario/processes/signals.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {
namespace {

constexpr double kGrace_s = 2;        // seconds between SIGTERM and SIGKILL
constexpr double kCanaryEvery_s = 1;  // seconds, while programs run

Jobs jobs_of(const RunPlan& plan) {
  Jobs jobs;
  for (const Start& start : plan.programs) jobs.all.emplace_back(start);
  return jobs;
}

void report(const Start& program, const std::string& reason) {
  std::fprintf(stderr, "meshmark: program %s, copy %d: %s\n", program.name.c_str(), program.copy, reason.c_str());
}

}  // namespace

void SampleGrid::advance(double now_s) { next_s_ += every_s_ * std::max(1.0, std::ceil((now_s - next_s_) / every_s_)); }

Supervisor::Supervisor(const RunPlan& plan, const Inherited& inherited, int signals, int notify)
    : plan_(plan),
      inherited_(inherited),
      signals_(signals),
      journal_(clock_, notify),
      jobs_(jobs_of(plan)),
      processes_(clock_, journal_, jobs_),
      canary_(clock_) {}

Supervisor::~Supervisor() { kill_all(); }

int Supervisor::run() {
  journal_.header(plan_, inherited_);
  if (plan_.canary_before_s > 0 || plan_.canary_after_s > 0 || plan_.canary_during) canary_.prepare();
  canary_for("before", plan_.canary_before_s);
  if (stopped_by_ == 0) set_up();
  start_s_ = clock_.now();
  journal_.event("start", nullptr);
  const double cost_from_s = own_cpu_s();
  canary_.cost_s = 0;
  const CpuTimes times_before = read_cpu_times();
  supervise();
  const double cost_s = own_cpu_s() - cost_from_s - canary_.cost_s, elapsed_s = clock_.now() - start_s_;
  const CpuTimes times_after = read_cpu_times();
  kill_all();
  if (stopped_by_ == 0) canary_for("after", plan_.canary_after_s);
  processes_.finish_all();
  for (std::size_t j = 0; j < jobs_.all.size(); ++j) emit(jobs_.all[j].total(processes_.use_of(j)));
  write_end(cost_s, elapsed_s, machine_use(times_before, times_after));
  if (stopped_by_ != 0) return 128 + stopped_by_;
  const bool ok = std::all_of(jobs_.all.begin(), jobs_.all.end(),
                              [](const Job& j) { return j.phase == Phase::ended && j.wait_status == 0; });
  return ok ? 0 : 1;
}

void Supervisor::write_end(double cost_s, double elapsed_s, const json& machine) const {
  json line{{"type", "end"},
            {"t_s", rounded(clock_.now())},
            {"status", stopped_by_ != 0 ? "stopped"
                       : timed_out_     ? "timeout"
                                        : "ok"},
            {"bench_s", rounded(elapsed_s)},
            {"samples", processes_.samples()},
            {"sampling",
             {{"cpu_s", rounded(cost_s)},
              {"share", elapsed_s > 0 ? rounded(cost_s / elapsed_s) : 0.0},
              {"late_s", rounded(max_late_s_)}}},
            {"machine", machine}};
  if (stopped_by_ != 0) line["signal"] = stopped_by_;
  emit(line);
}

void Supervisor::canary_for(const char* when, double duration_s) {
  if (!canary_.ready() || duration_s <= 0) return;
  for (const double end_s = clock_.now() + duration_s; clock_.now() < end_s && stopped_by_ == 0;) {
    canary_.sample(when);
    pollfd fd{signals_, POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(std::clamp(100 * duration_s, 1.0, 50.0)));
    if (fd.revents != 0) handle_signals();
  }
}

// ---------------------------------------------------------------- starts

void Supervisor::fail(Job& job, const std::string& reason) {
  if (job.phase == Phase::failed || job.phase == Phase::ended) return;
  job.phase = Phase::failed;
  journal_.event("failed", job.start, {{"reason", reason}});
  report(*job.start, reason);
}

void Supervisor::start(std::size_t job) {
  Job& j = jobs_.all[job];
  if (!j.start->cgroup.empty()) groups_.make(j.start->cgroup);
  j.started_s = clock_.now();
  try {
    j.child = spawn(*j.start, inherited_);
    jobs_.by_pid[j.child.pid] = job;
  } catch (const Failure& reason) {
    fail(j, reason.what());
  }
}

void Supervisor::set_up() {
  for (std::size_t j = 0; j < jobs_.all.size(); ++j) start(j);
  const double deadline_s = clock_.now() + plan_.setup_s;
  const auto setting_up = [](const Job& j) { return j.phase == Phase::setting_up; };
  while (stopped_by_ == 0 && std::any_of(jobs_.all.begin(), jobs_.all.end(), setting_up)) {
    if (clock_.now() >= deadline_s) {
      for (Job& job : jobs_.all)
        if (setting_up(job)) {
          fail(job, "not ready after " + json(plan_.setup_s).dump() + " s");
          ::kill(job.child.pid, SIGKILL);
        }
      break;
    }
    wait_until(deadline_s);
  }
  wait_for_gates();
}

/// Waits, at most a second, until the jobs that are ready block at their gates. The kernel adds the time that a process
/// waited for a CPU only when it gets one; a job that is released before would count time from before its release.
void Supervisor::wait_for_gates() {
  const double deadline_s = clock_.now() + 1;
  for (const Job& job : jobs_.all)
    while (job.phase == Phase::ready && job.is_runnable() && clock_.now() < deadline_s) ::usleep(500);
}

void Supervisor::set_ready(Job& job, json more) {
  job.phase = Phase::ready;
  job.ready_s = clock_.now();
  more.update({{"pid", job.child.pid}, {"setup_s", rounded(job.ready_s - job.started_s)}});
  journal_.event("ready", job.start, more);
}

void Supervisor::release(std::size_t job) {
  Job& j = jobs_.all[job];
  j.set_base();
  j.released_s = processes_.set_base(job);
  j.phase = Phase::released;
  const bool gate_opened = j.open_gate();
  journal_.event("released", j.start, {{"late_s", rounded(j.released_s - start_s_ - j.start->start_s)}});
  if (!gate_opened) fail(j, "died before its release");
}

double Supervisor::release_due(double now_s) {
  double next_s = kNever_s;
  for (std::size_t j = 0; j < jobs_.all.size(); ++j) {
    if (jobs_.all[j].phase != Phase::ready) continue;
    const double due_s = start_s_ + jobs_.all[j].start->start_s;
    if (now_s >= due_s)
      release(j);
    else
      next_s = std::min(next_s, due_s);
  }
  return next_s;
}

// ---------------------------------------------------------------- the run

void Supervisor::supervise() {
  SampleGrid grid(start_s_, plan_.sample_s);
  double next_canary_s = plan_.canary_during ? start_s_ + kCanaryEvery_s : kNever_s;
  double end_s = plan_.timeout_s > 0 ? start_s_ + plan_.timeout_s : kNever_s;
  while (true) {
    if (stopped_by_ != 0 && !stopping_) {
      stopping_ = true;
      journal_.event("stopped", nullptr, {{"signal", stopped_by_}});
      terminate_all();
      end_s = stopped_by_ == SIGKILL ? clock_.now() : clock_.now() + kGrace_s;
    }
    if (std::none_of(jobs_.all.begin(), jobs_.all.end(),
                     [](const Job& j) { return j.phase == Phase::ready || j.phase == Phase::released; }))
      return;
    const double next_release_s = stopping_ ? kNever_s : release_due(clock_.now());
    const double next_s = std::min(end_s, next_release_s);
    if (clock_.now() >= end_s) {
      if (stopping_) return;
      timed_out_ = stopping_ = true;
      journal_.event("timeout", nullptr, {{"after_s", plan_.timeout_s}});
      for (Job& job : jobs_.all) job.timed_out = job.phase == Phase::released;
      terminate_all();
      end_s = clock_.now() + kGrace_s;
    }
    if (const double now_s = clock_.now(); grid.due(now_s)) {
      max_late_s_ = std::max(max_late_s_, now_s - grid.next_s());
      processes_.sample();
      grid.advance(clock_.now());
    }
    if (clock_.now() >= next_canary_s) {
      canary_.sample("during");
      next_canary_s = clock_.now() + kCanaryEvery_s;
    }
    wait_until(std::min(next_s, grid.next_s()));
  }
}

/// Waits for a signal or for output of a program, at most until this time, and handles it.
void Supervisor::wait_until(double until_s) {
  enum class From { signals, status, out };
  std::vector<pollfd> fds = {{signals_, POLLIN, 0}};
  std::vector<std::pair<From, Job*>> sources = {{From::signals, nullptr}};
  for (Job& job : jobs_.all) {
    if (job.child.status >= 0) fds.push_back({job.child.status, POLLIN, 0}), sources.emplace_back(From::status, &job);
    if (job.child.out >= 0) fds.push_back({job.child.out, POLLIN, 0}), sources.emplace_back(From::out, &job);
  }
  const double pause_s = std::clamp(until_s - clock_.now(), 0.0, 3600.0);
  const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
  if (::ppoll(fds.data(), fds.size(), &pause, nullptr) <= 0) return;
  for (std::size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    Job& job = *sources[i].second;
    if (sources[i].first == From::out)
      job.read_lines([&](std::string_view line) { handle_line(job, line); });
    else
      handle_status(job);
  }
  if (fds[0].revents != 0) handle_signals();
}

/// Reads the status of a job once. Returns false if nothing can be read for now.
bool Supervisor::handle_status(Job& job) {
  const bool has_more = job.read_status();
  if (job.status_text == "\n" && job.phase == Phase::setting_up) {
    job.status_text.clear();
    set_ready(job);
  }
  if (job.child.status < 0 && !job.status_text.empty()) fail(job, job.status_text);
  return has_more;
}

void Supervisor::handle_line(Job& job, std::string_view text) {
  if (is_window(text)) return journal_.window(*job.start, text);
  const json line = parse_json(text);
  if (!line.is_object()) return;
  const json type = line.value("type", json());
  if (type == "ready" && job.phase == Phase::setting_up) {
    set_ready(job, {{"memory_bytes", line.value("memory_bytes", json())}});
  } else if (type == "variant") {
    journal_.of_program("variant", *job.start, line);
  } else if (type == "end") {
    processes_.sample();  // its threads still exist and can be read
    journal_.of_program("done", *job.start, line);
  }
}

// ---------------------------------------------------------------- signals and termination

void Supervisor::handle_signals() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == sizeof info) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    // SIGUSR2 means that the parent process is gone, and with it the reader.
    if (stopped_by_ == 0) stopped_by_ = number == SIGUSR2 ? SIGKILL : number;
  }
  reap();
}

void Supervisor::reap() {
  for (siginfo_t child_info{};
       ::waitid(P_ALL, 0, &child_info, WEXITED | WNOHANG | WNOWAIT) == 0 && child_info.si_pid != 0;
       child_info.si_pid = 0) {
    const pid_t pid = child_info.si_pid;
    const double at_s = clock_.now();
    processes_.sample_last(pid, at_s);
    int status = 0;
    rusage use{};
    ::wait4(pid, &status, 0, &use);
    if (const auto entry = jobs_.by_pid.find(pid); entry != jobs_.by_pid.end()) {
      handle_exit(jobs_.all[entry->second], status, use, at_s);
    } else if (const auto job = processes_.job_of(pid)) {
      jobs_.all[*job].orphans_user_s += seconds(use.ru_utime);
      jobs_.all[*job].orphans_system_s += seconds(use.ru_stime);
    }
  }
}

void Supervisor::handle_exit(Job& job, int wait_status, const rusage& use, double at_s) {
  job.wait_status = wait_status;
  job.use = use;
  job.ended_s = at_s;
  job.drain([&](std::string_view line) { handle_line(job, line); });
  // Read until the pipe is empty: the exit may arrive before the last text was read, and another program in set-up may
  // hold the same pipe open.
  while (job.child.status >= 0 && handle_status(job)) {}
  if (!job.status_text.empty()) fail(job, job.status_text);
  job.close_pipes();
  if (job.waits()) return fail(job, ending(wait_status) + " before its release");
  if (job.phase == Phase::failed) return;
  job.phase = Phase::ended;
  json details{{"pid", job.child.pid}};
  if (WIFSIGNALED(wait_status))
    details["signal"] = WTERMSIG(wait_status);
  else
    details["status"] = WEXITSTATUS(wait_status);
  journal_.event("exit", job.start, details);
  if (wait_status != 0 && !stopping_) report(*job.start, ending(wait_status));
}

void Supervisor::terminate_all() {
  for (const pid_t pid : descendants(::getpid())) {
    ::kill(pid, SIGTERM);
    ::kill(pid, SIGCONT);  // a stopped process handles no other signal
  }
  for (Job& job : jobs_.all) {
    job.killed = job.phase == Phase::released;
    if (!job.waits()) continue;
    fail(job, "the run ended before its release");
    if (job.child.pid > 0) ::kill(job.child.pid, SIGKILL);  // it would wait at its gate forever
  }
}

/// Kills all descendants. Repeats this until no descendant is left, since a process may start another meanwhile.
void Supervisor::kill_all() noexcept {
  try {
    for (bool first = true;; first = false) {
      const std::vector<pid_t> remaining = descendants(::getpid());
      for (const pid_t pid : remaining) ::kill(pid, SIGKILL);
      reap();
      if (remaining.empty()) break;
      if (!first) ::usleep(2000);
    }
  } catch (const std::exception&) {  // nothing can be written
    try {
      kill_descendants();
    } catch (const std::exception&) {  // /proc cannot be read: the parent process kills the rest
      for (const Job& job : jobs_.all)
        if (job.child.pid > 0 && job.phase != Phase::ended) ::kill(-job.child.pid, SIGKILL);
    }
  }
}

}  // namespace mm::load

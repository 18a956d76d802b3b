#include "scenario.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "arguments.hpp"
#include "clock.hpp"
#include "error.hpp"
#include "fields.hpp"
#include "host.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "options.hpp"
#include "output.hpp"
#include "place/bind.hpp"
#include "place/command.hpp"
#include "place/pages.hpp"
#include "place/proc.hpp"
#include "provenance.hpp"
#include "watch/canary.hpp"

namespace mm::load {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kGrace_s = 2;          // between asking a program to end and ending it
constexpr double kMigrationsEvery = 1;  // s, and later more seldom; the file that tells them is dear
constexpr double kPagesDuty = 0.001;    // share of the time that counting pages may take
constexpr double kPagesEvery = 1;       // s, and later more seldom
constexpr double kSearchDuty = 0.001;   // share of the time that looking for new processes may take
constexpr double kCanaryEvery = 1;      // s, while programs run
constexpr std::size_t kMostPrograms = 4096, kLongestLine = 1 << 20;

std::string said(int error) { return std::strerror(error); }

double boot_s() { return static_cast<double>(kernel_ns(CLOCK_BOOTTIME)) * 1e-9; }
double own_cpu_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }
double rounded(double s) { return std::round(s * 1e9) / 1e9; }

/// Nobody of ours is left afterwards: who starts another while being ended is found in the next round.
void end_descendants() {
  while (true) {
    const std::vector<pid_t> left = place::descendants(::getpid());
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {}
    if (left.empty()) return;
    ::usleep(2000);
  }
}

/// Nodes on which a program's memory was asked to be; none where it was not, or where that cannot be told.
std::vector<int> nodes_asked(const Start& s, std::optional<place::Machine>& machine) {
  if (s.memory.empty()) return {};
  try {
    if (!machine) machine = place::machine_of("host");
    return place::nodes_meant(*machine, place::parse_memory(s.memory), s.cpus);
  } catch (const std::exception&) {
    return {};  // what is wrong with it the program's own start says
  }
}

// ---------------------------------------------------------------- the plan

const std::map<std::string, int>& priorities() {
  static const std::map<std::string, int> known = {
      {"other", SCHED_OTHER}, {"batch", SCHED_BATCH}, {"idle", SCHED_IDLE}, {"fifo", SCHED_FIFO}};
  return known;
}

Start read_start(const json& raw, const std::string& where) {
  if (!raw.is_object()) throw Failure(where + ": is no object");
  const Fields f{raw, where};
  Start s;
  s.name = f.text("name", "");
  if (s.name.empty()) throw Failure(where + ": has no name");
  s.copy = f.whole("copy", 0, 0, 1 << 20);
  const json argv = raw.value("argv", json());
  if (!argv.is_array() || argv.empty()) f.refuse("argv", argv, "a list of texts, the command first");
  for (const json& word : argv) {
    if (!word.is_string() || word.get<std::string>().find('\0') != std::string::npos) f.refuse("argv", word, "a text");
    s.argv.push_back(word.get<std::string>());
  }
  s.synthesised = f.truth("synthesised");
  s.start_s = f.real("start_s", 0, 0, 1e6);
  s.cpus = f.cpus("cpus");
  s.nice = f.whole("nice", 0, -40, 39);
  s.priority = f.text("priority", "other");
  if (!priorities().contains(s.priority)) f.refuse("priority", raw["priority"], "other, batch, idle, fifo");
  s.memory = f.text("memory", "");
  if (f.has("env")) {
    if (!raw["env"].is_object()) f.refuse("env", raw["env"], "an object of texts");
    const Fields variables{raw["env"], where + ".env"};
    for (const auto& [key, value] : raw["env"].items()) s.environment[key] = variables.text(key, "");
  }
  s.cgroup = f.text("cgroup", "");
  s.cwd = f.text("cwd", "");
  s.out = f.text("stdout", "");
  s.error = f.text("stderr", "");
  return s;
}

// ---------------------------------------------------------------- what the kernel tells of a thread

/// Of /proc/PID/task/TID/stat what is looked at every time, without a copy.
struct ThreadStat {
  std::string_view command;
  char state = '?';
  std::uint64_t user_ticks = 0, system_ticks = 0, threads = 0, started = 0;
  int cpu = -1;
};

std::optional<ThreadStat> parse_thread_stat(std::string_view text) {
  const std::size_t open = text.find('('), close = text.rfind(')');  // a name may hold both
  if (open == std::string_view::npos || close == std::string_view::npos || close + 2 >= text.size()) return {};
  ThreadStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  stat.state = text[close + 2];
  const char* at = text.data() + close + 3;
  const char* const end = text.data() + text.size();
  for (int field = 4; field <= 39; ++field) {
    while (at != end && *at == ' ') ++at;
    std::uint64_t n = 0;
    if (field == 14 || field == 15 || field == 20 || field == 22 || field == 39)
      if (std::from_chars(at, end, n).ec != std::errc()) return {};
    if (field == 14) stat.user_ticks = n;
    if (field == 15) stat.system_ticks = n;
    if (field == 20) stat.threads = n;
    if (field == 22) stat.started = n;
    if (field == 39) stat.cpu = static_cast<int>(n);
    while (at != end && *at != ' ') ++at;
  }
  return stat;
}

/// What a thread did, at one time; times are of the kernel's since its birth.
struct Look {
  double at_s = 0;
  std::uint64_t ran_ns = 0, waited_ns = 0, user_ticks = 0, system_ticks = 0;
  char state = '?';
  int cpu = -1;
};

struct Task {
  Task(std::size_t number_, std::size_t job_, pid_t process_, pid_t id_)
      : number(number_),
        job(job_),
        process(process_),
        id(id_),
        stat(place::task_folder(process_, id_) + "stat"),
        schedstat(place::task_folder(process_, id_) + "schedstat") {}
  std::size_t number, job;
  pid_t process, id;
  place::Again stat, schedstat;
  std::string command;
  std::uint64_t started = 0;  ///< ticks since boot; tells a reused number
  Look base, last;            ///< at the release or its birth; at the last look
  Look told;                  ///< what the last line about it came to
  long long moves = 0, base_migrations = -1, migrations = -1;
  double next_migrations_s = 0;
  std::uint64_t siblings = 0;  ///< threads of its process, itself too
  std::set<int> ran_on;
  bool ended = false;
};

struct Process {
  std::size_t job = 0;
  std::vector<Task> tasks;
  bool ended = false;
  double looked_s = 0;  ///< what was not there then is younger
  double since_s = 0, next_pages_s = 0;
  std::map<int, std::uint64_t> bytes;  ///< node → B, when last counted
};

enum class Phase { setting_up, ready, released, ended, failed };

struct Job {
  const Start* start = nullptr;
  pid_t pid = -1;
  int gate = -1, status = -1, out = -1;
  std::string heard, status_text;  ///< of its lines what has no end yet
  Phase phase = Phase::setting_up;
  double released_s = 0, ended_s = 0;
  double base_cpu_s = 0, base_system_s = 0;
  int wait_status = 0;
  rusage use{};
  double others_user_s = 0, others_system_s = 0;  ///< of orphans of its that came to us
  bool timed_out = false, killed = false;
  std::size_t processes = 0;
};

void close_it(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void put(std::string& to, std::int64_t n) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), n).ptr;
  to.append(digits.data(), end);
}

void put(std::string& to, std::uint64_t n) { put(to, static_cast<std::int64_t>(n)); }

void put_s(std::string& to, double s) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), s, std::chars_format::fixed, 6).ptr;
  to.append(digits.data(), end);
}

void write_out(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text)) throw Failure("cannot write the results: " + said(errno));
}

// ---------------------------------------------------------------- a child before it is the program

struct Inherited {
  sigset_t mask{};
  cpu_set_t cpus{};
  rlimit files{};
  int nice = 0;
  pid_t parent = 0;
};

[[noreturn]] void give_up(int status, const std::string& why) {
  if (::write(status, why.data(), why.size()) < 0) ::_exit(126);
  ::_exit(127);
}

void onto(int fd, int target, int status) {
  if (fd < 0 || ::dup2(fd, target) < 0) give_up(status, "descriptor " + std::to_string(target) + ": " + said(errno));
}

int opened(const std::string& path, int flags, int status) {
  const int fd = ::open(path.empty() ? "/dev/null" : path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) give_up(status, path + ": " + said(errno));
  return fd;
}

/// A new group of version 1 has no CPUs and no nodes, and takes nobody until it has.
void fill_cpuset(const std::string& folder) {
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    const std::string now = place::slurp(folder + file);
    if (!now.empty() && now != "\n") continue;
    const std::string above = place::slurp(folder.substr(0, folder.rfind('/')) + file);
    if (above.empty()) continue;
    const int fd = ::open((folder + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) continue;
    [[maybe_unused]] const ssize_t n = ::write(fd, above.data(), above.size());
    ::close(fd);
  }
}

void join_cgroup(const std::string& folder, int status) {
  const int fd = ::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  const std::string me = std::to_string(::getpid());
  if (fd < 0 || ::write(fd, me.data(), me.size()) < 0) give_up(status, "cgroup " + folder + ": " + said(errno));
  ::close(fd);
}

/// Becomes the program. `gate` and `out` are its ends of the pipes.
[[noreturn]] void become(const Start& s, const Inherited& before, int gate, int status, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != before.parent) ::_exit(126);
  ::setpgid(0, 0);
  for (int n = 1; n < NSIG; ++n)
    if (n != SIGKILL && n != SIGSTOP) std::signal(n, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before.mask, nullptr);
  ::setrlimit(RLIMIT_NOFILE, &before.files);
  if (!s.cgroup.empty()) join_cgroup(s.cgroup, status);
  ::sched_setaffinity(0, sizeof before.cpus, &before.cpus);
  try {
    if (!s.cpus.empty()) place::set_affinity(s.cpus);
    if (!s.memory.empty()) place::set_memory(place::machine_of("host"), place::parse_memory(s.memory), s.cpus);
  } catch (const std::exception& why) {
    give_up(status, why.what());
  }
  const int policy = priorities().at(s.priority);
  sched_param parameter{};
  parameter.sched_priority = policy == SCHED_FIFO ? 1 : 0;
  if (::sched_setscheduler(0, policy, &parameter) != 0) give_up(status, "priority " + s.priority + ": " + said(errno));
  if (const int nice = std::clamp(before.nice + s.nice, -20, 19); ::setpriority(PRIO_PROCESS, 0, nice) != 0)
    give_up(status, "nice " + std::to_string(s.nice) + ": " + said(errno));
  if (!s.cwd.empty() && ::chdir(s.cwd.c_str()) != 0) give_up(status, "cwd " + s.cwd + ": " + said(errno));
  for (const auto& [name, value] : s.environment) ::setenv(name.c_str(), value.c_str(), 1);
  const int writing = O_WRONLY | O_CREAT | O_TRUNC;
  onto(s.synthesised ? gate : opened("", O_RDONLY, status), STDIN_FILENO, status);
  onto(s.synthesised ? out : opened(s.out, writing, status), STDOUT_FILENO, status);
  onto(opened(s.error, writing, status), STDERR_FILENO, status);
  if (!s.synthesised) {
    char go = 0;
    if (::write(status, "\n", 1) != 1) ::_exit(126);  // an empty line: ready
    while (::read(gate, &go, 1) < 0 && errno == EINTR) {}
    if (go == 0) ::_exit(126);
  }
  std::vector<char*> words;
  for (const std::string& word : s.argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  give_up(status, quote(s.argv[0]) + " cannot be executed: " + said(errno));
}

// ---------------------------------------------------------------- the run

class Runner {
 public:
  /// `notify`: descriptor that gets a byte with every event, so that nobody has to look again and again; -1: none.
  Runner(const RunPlan& plan, const Inherited& inherited, int signals, int notify)
      : plan_(plan), inherited_(inherited), signals_(signals), notify_(notify), begin_s_(wall_s()) {
    boot_offset_s_ = boot_s() - begin_s_;
    for (const Start& start : plan_.programs) {
      jobs_.emplace_back();
      jobs_.back().start = &start;
    }
    sums_.resize(jobs_.size());
    counts_.resize(jobs_.size());
    numa_ = place::kernel_list(place::slurp("/sys/devices/system/node/online")).size() > 1;
    all_nodes_ = place::kernel_list(place::slurp("/sys/devices/system/node/online"));
  }

  ~Runner() {
    end_everyone();
    for (const std::string& folder : made_groups_) ::rmdir(folder.c_str());
  }

  /// Exit status.
  int run() {
    header();
    if (plan_.canary_before_s > 0 || plan_.canary_after_s > 0 || plan_.canary_during) make_canary();
    canary_for("before", plan_.canary_before_s);
    if (stopped_by_ == 0) set_up();
    start_s_ = now();
    started_ = true;
    event("start", nullptr);
    cost_from_s_ = own_cpu_s();
    canary_cost_s_ = 0;
    const CpuTimes before = read_cpu_times();
    main_loop();
    const double cost_s = own_cpu_s() - cost_from_s_ - canary_cost_s_, elapsed_s = now() - start_s_;
    const CpuTimes after = read_cpu_times();
    end_everyone();
    if (stopped_by_ == 0) canary_for("after", plan_.canary_after_s);
    totals();
    json last{{"type", "end"},
              {"t_s", rounded(now())},
              {"status", stopped_by_ != 0 ? "stopped"
                         : timed_out_     ? "timeout"
                                          : "ok"},
              {"bench_s", rounded(elapsed_s)},
              {"samples", samples_},
              {"sampling",
               {{"cpu_s", rounded(cost_s)},
                {"share", elapsed_s > 0 ? rounded(cost_s / elapsed_s) : 0.0},
                {"late_s", rounded(worst_late_s_)}}},
              {"machine", machine_use(before, after)}};
    if (stopped_by_ != 0) last["signal"] = stopped_by_;
    emit(last);
    for (const Job& job : jobs_)
      if (job.phase != Phase::ended || job.wait_status != 0) wrong_ = true;
    if (stopped_by_ != 0) return 128 + stopped_by_;
    return wrong_ ? 1 : 0;
  }

 private:
  double now() const { return wall_s() - begin_s_; }

  static json machine_use(const CpuTimes& before, const CpuTimes& after) {
    const double tick_s = 1 / ticks_per_second();
    json busy = json::array(), steal = json::array();
    for (std::size_t cpu = 0; cpu < std::min(before.busy.size(), after.busy.size()); ++cpu) {
      busy.push_back(rounded(static_cast<double>(after.busy[cpu] - before.busy[cpu]) * tick_s));
      steal.push_back(rounded(static_cast<double>(after.steal[cpu] - before.steal[cpu]) * tick_s));
    }
    return {{"busy_s", busy}, {"steal_s", steal}};
  }

  void header() {
    json programs = json::array();
    std::optional<place::Machine> machine;
    for (const Start& s : plan_.programs)
      programs.push_back({{"program", s.name},
                          {"copy", s.copy},
                          {"command", s.argv},
                          {"synthesised", s.synthesised},
                          {"start_s", s.start_s},
                          {"cpus", cpu_list(s.cpus)},
                          {"nice", s.nice},
                          {"priority", s.priority},
                          {"memory", s.memory},
                          {"nodes", cpu_list(nodes_asked(s, machine))}});
    json conditions = host_conditions();
    std::vector<int> allowed;  // of the programs: the sampler may have moved out of their way
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(static_cast<std::size_t>(cpu), &inherited_.cpus)) allowed.push_back(cpu);
    conditions["cpus_allowed"] = cpu_list(allowed);
    emit({{"type", "header"},
          {"schema", 1},
          {"instrument", "load"},
          {"machine", host_name()},
          {"scenario", plan_.scenario},
          {"start", utc_now()},
          {"sample_s", plan_.sample_s},
          {"build", kBuild},
          {"compiler", kCompiler},
          {"conditions", conditions},
          {"tick_s", 1 / ticks_per_second()},
          {"sample_columns", {"thread", "state", "cpu", "ran_ns", "waited_ns", "user_ticks", "system_ticks"}},
          {"programs", programs}});
  }

  void event(const char* what, const Job* job, const json& more = json::object()) {
    json line{{"type", "event"}, {"event", what}, {"t_s", rounded(now())}};
    if (job != nullptr) line["program"] = job->start->name, line["copy"] = job->start->copy;
    line.update(more);
    emit(line);
    if (notify_ >= 0 && ::write(notify_, "\n", 1) < 0 && errno != EAGAIN) close_it(notify_);  // nobody listens any more
  }

  // --- the canary

  void make_canary() {
    if (!watch::Walker::possible()) return;
    try {
      walker_ = std::make_unique<watch::Walker>(0, false, 1);
    } catch (const std::exception&) {  // without it the run says nothing of the memory's latency, and is a run
    }
  }

  void canary(const char* when) {
    if (!walker_) return;
    const double before_s = own_cpu_s();
    const double load_s = walker_->walk();
    const Ticks begin = ticks();
    [[maybe_unused]] const volatile std::uint64_t kept = dependent_adds(20'000);
    const double adds_s = seconds(ticks() - begin);
    emit({{"type", "canary"}, {"t_s", rounded(now())}, {"when", when}, {"load_latency_s", load_s}, {"adds_s", adds_s}});
    canary_cost_s_ += own_cpu_s() - before_s;
  }

  void canary_for(const char* when, double duration_s) {
    if (!walker_ || duration_s <= 0) return;
    for (const double end_s = now() + duration_s; now() < end_s && stopped_by_ == 0;) {
      canary(when);
      pollfd fd{signals_, POLLIN, 0};
      ::poll(&fd, 1, static_cast<int>(std::clamp(100 * duration_s, 1.0, 50.0)));
      if (fd.revents != 0) take_signals();
    }
  }

  // --- setting up

  void fail(Job& job, const std::string& why) {
    if (job.phase == Phase::failed || job.phase == Phase::ended) return;
    job.phase = Phase::failed;
    event("failed", &job, {{"reason", why}});
    std::fprintf(stderr, "meshmark: program %s, copy %d: %s\n", job.start->name.c_str(), job.start->copy, why.c_str());
  }

  void make_group(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0755) == 0) {
      made_groups_.push_back(folder);
      fill_cpuset(folder);
    }
  }

  void start_one(Job& job) {
    int gate[2], status[2], out[2] = {-1, -1};
    if (::pipe2(gate, O_CLOEXEC) != 0) return fail(job, "cannot make a pipe: " + said(errno));
    if (::pipe2(status, O_CLOEXEC) != 0) {
      ::close(gate[0]), ::close(gate[1]);
      return fail(job, "cannot make a pipe: " + said(errno));
    }
    if (job.start->synthesised && ::pipe2(out, O_CLOEXEC) != 0) {
      ::close(gate[0]), ::close(gate[1]), ::close(status[0]), ::close(status[1]);
      return fail(job, "cannot make a pipe: " + said(errno));
    }
    if (!job.start->cgroup.empty()) make_group(job.start->cgroup);
    const pid_t child = ::fork();
    if (child == 0) become(*job.start, inherited_, gate[0], status[1], out[1]);
    ::close(gate[0]);
    ::close(status[1]);
    if (out[1] >= 0) ::close(out[1]);
    job.gate = gate[1], job.status = status[0], job.out = out[0];
    if (child < 0) {
      fail(job, "cannot start a process: " + said(errno));
      close_it(job.gate), close_it(job.status), close_it(job.out);
      return;
    }
    ::setpgid(child, child);  // by both, so that it holds whoever comes first
    for (const int fd : {job.gate, job.status, job.out})
      if (fd >= 0) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    job.pid = child;
    job_of_[child] = static_cast<std::size_t>(&job - jobs_.data());
  }

  void set_up() {
    for (Job& job : jobs_) start_one(job);
    const double give_up_s = now() + plan_.setup_s;
    const auto open_ones = [&] {
      return std::any_of(jobs_.begin(), jobs_.end(), [](const Job& j) { return j.phase == Phase::setting_up; });
    };
    while (open_ones() && stopped_by_ == 0) {
      if (now() >= give_up_s) {
        for (Job& job : jobs_)
          if (job.phase == Phase::setting_up) {
            fail(job, "was not ready after " + json(plan_.setup_s).dump() + " s");
            ::kill(job.pid, SIGKILL);
          }
        break;
      }
      wait_until(give_up_s);
    }
  }

  // --- the clock

  void main_loop() {
    double next_sample_s = start_s_ + plan_.sample_s, next_canary_s = start_s_ + kCanaryEvery;
    double end_s = plan_.timeout_s > 0 ? start_s_ + plan_.timeout_s : kForever;
    while (true) {
      if (stopped_by_ != 0 && !stopping_) {
        stopping_ = true;
        event("stopped", nullptr, {{"signal", stopped_by_}});
        ask_all_to_end();
        end_s = stopped_by_ == SIGKILL ? now() : now() + kGrace_s;
      }
      const bool left = std::any_of(jobs_.begin(), jobs_.end(),
                                    [](const Job& j) { return j.phase == Phase::ready || j.phase == Phase::released; });
      if (!left) break;
      double next_s = std::min(next_sample_s, end_s);
      if (!stopping_)
        for (Job& job : jobs_) {
          if (job.phase != Phase::ready) continue;
          const double due_s = start_s_ + job.start->start_s;
          if (now() >= due_s)
            release(job);
          else
            next_s = std::min(next_s, due_s);
        }
      if (now() >= end_s) {
        if (stopping_) break;
        timed_out_ = stopping_ = true;
        event("timeout", nullptr, {{"after_s", plan_.timeout_s}});
        for (Job& job : jobs_) job.timed_out = job.phase == Phase::released;
        ask_all_to_end();
        end_s = now() + kGrace_s;
      }
      if (now() >= next_sample_s) {
        worst_late_s_ = std::max(worst_late_s_, now() - next_sample_s);
        sample();
        // On the grid of the first: a late look makes no other one late.
        next_sample_s += plan_.sample_s * std::max(1.0, std::ceil((now() - next_sample_s) / plan_.sample_s));
      }
      if (plan_.canary_during && now() >= next_canary_s) {
        canary("during");
        next_canary_s = now() + kCanaryEvery;
      }
      wait_until(std::min(next_s, next_sample_s));
    }
  }

  /// Waits for news or until a time, and takes the news.
  void wait_until(double until_s) {
    std::vector<pollfd> fds = {{signals_, POLLIN, 0}};
    std::vector<std::pair<std::size_t, bool>> whose = {{0, false}};
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (jobs_[j].status >= 0) fds.push_back({jobs_[j].status, POLLIN, 0}), whose.emplace_back(j, false);
      if (jobs_[j].out >= 0) fds.push_back({jobs_[j].out, POLLIN, 0}), whose.emplace_back(j, true);
    }
    const double pause_s = std::clamp(until_s - now(), 0.0, 3600.0);
    const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
    if (::ppoll(fds.data(), fds.size(), &pause, nullptr) <= 0) return;
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      Job& job = jobs_[whose[i].first];
      if (whose[i].second)
        hear(job);
      else
        hear_status(job);
    }
    if (fds[0].revents != 0) take_signals();
  }

  /// Whether there may be more to hear at once.
  bool hear_status(Job& job) {
    std::array<char, 4096> data;
    const ssize_t n = ::read(job.status, data.data(), data.size());
    if (n > 0) job.status_text.append(data.data(), static_cast<std::size_t>(n));
    if (job.status_text == "\n" && job.phase == Phase::setting_up) {
      job.phase = Phase::ready;
      job.status_text.clear();
      event("ready", &job, {{"pid", job.pid}});
    }
    if (n < 0 && errno == EAGAIN) return false;
    if (n > 0 || (n < 0 && errno == EINTR)) return true;
    // It became the program, or said why it could not.
    close_it(job.status);
    if (!job.status_text.empty()) fail(job, job.status_text);
    return false;
  }

  void hear(Job& job) {
    std::array<char, 1 << 16> data;
    const ssize_t n = ::read(job.out, data.data(), data.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      close_it(job.out);
      return;
    }
    job.heard.append(data.data(), static_cast<std::size_t>(n));
    std::size_t at = 0;
    for (std::size_t end; (end = job.heard.find('\n', at)) != std::string::npos; at = end + 1)
      take_line(job, std::string_view(job.heard).substr(at, end - at));
    job.heard.erase(0, at);
    if (job.heard.size() > kLongestLine) job.heard.clear();  // no program of ours writes such a line
  }

  /// A line of a program, passed on with whose it is. Of windows, which are many, only the beginning is looked at.
  void take_line(Job& job, std::string_view line) {
    std::string begin = R"(","t_s":)";
    put_s(begin, now());
    begin += R"(,"program":)" + json(job.start->name).dump(-1, ' ', false, json::error_handler_t::replace);
    begin += R"(,"copy":)" + std::to_string(job.start->copy);
    if (constexpr std::string_view kWindow = R"({"type":"window",)"; line.starts_with(kWindow)) {
      write_out(R"({"type":"window)" + begin + "," + std::string(line.substr(kWindow.size())) + "\n");
      return;
    }
    json told = parse_json(line);
    if (!told.is_object()) return;
    const json type = told.value("type", json());
    if (type == "ready" && job.phase == Phase::setting_up) {
      job.phase = Phase::ready;
      event("ready", &job, {{"pid", job.pid}, {"memory_bytes", told.value("memory_bytes", json())}});
      return;
    }
    if (type != "variant" && type != "end") return;
    // Now its threads are still there, and what they did and waited for can be read to the end.
    if (type == "end") sample();
    // Its own name is in the file, ours in the scenario.
    told.erase("type"), told.erase("program");
    const std::string rest = told.dump(-1, ' ', false, json::error_handler_t::replace);
    write_out((type == "end" ? R"({"type":"done)" : R"({"type":"variant)") + begin + "," + rest.substr(1) + "\n");
  }

  void release(Job& job) {
    const std::size_t number = job_of_[job.pid];
    if (!processes_.contains(job.pid)) enter(job.pid, number);
    find_threads(job.pid, processes_[job.pid]);
    timespec cpu{};
    clockid_t clock = 0;
    if (::clock_getcpuclockid(job.pid, &clock) == 0 && ::clock_gettime(clock, &cpu) == 0)
      job.base_cpu_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
    if (const auto stat = place::parse_stat(place::slurp("/proc/" + std::to_string(job.pid) + "/stat")))
      job.base_system_s = static_cast<double>(stat->system) / ticks_per_second();
    for (Task& task : processes_[job.pid].tasks) {
      look(task);
      task.migrations = task.base_migrations = migrations_of(task);
      task.next_migrations_s = now() + kMigrationsEvery;
      task.base = task.last;
    }
    job.released_s = now();
    for (Task& task : processes_[job.pid].tasks) {
      task.base.at_s = task.last.at_s = job.released_s;
      task.told = task.last;
    }
    job.phase = Phase::released;
    const ssize_t n = ::write(job.gate, "go\n", 3);
    close_it(job.gate);
    event("released", &job, {{"late_s", rounded(job.released_s - start_s_ - job.start->start_s)}});
    if (n != 3) fail(job, "died before it was released");
  }

  // --- signals and deaths

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      const auto number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      // SIGUSR2 comes when whoever started us is gone: nobody reads any more.
      if (stopped_by_ == 0) stopped_by_ = number == SIGUSR2 ? SIGKILL : number;
    }
    reap();
  }

  void reap() {
    for (siginfo_t ended{}; ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
         ended.si_pid = 0) {
      const pid_t pid = ended.si_pid;
      const auto mine = job_of_.find(pid);
      const double ended_s = now();
      last_look(pid, ended_s);
      int status = 0;
      rusage use{};
      ::wait4(pid, &status, 0, &use);
      if (mine == job_of_.end()) {
        if (const auto process = processes_.find(pid); process != processes_.end()) {
          jobs_[process->second.job].others_user_s += seconds(use.ru_utime);
          jobs_[process->second.job].others_system_s += seconds(use.ru_stime);
        }
        continue;
      }
      Job& job = jobs_[mine->second];
      job.wait_status = status;
      job.use = use;
      job.ended_s = ended_s;
      if (job.out >= 0) drain(job);
      // To the end: its death may be told before its last words were read, and another that is being set up may
      // still hold the same pipe open.
      while (job.status >= 0 && hear_status(job)) {}
      if (!job.status_text.empty()) fail(job, job.status_text);
      close_it(job.gate), close_it(job.out), close_it(job.status);
      if (job.phase == Phase::setting_up || job.phase == Phase::ready) {
        fail(job, how(status) + " before it was released");
        continue;
      }
      if (job.phase == Phase::failed) continue;
      job.phase = Phase::ended;
      json more{{"pid", pid}};
      if (WIFSIGNALED(status))
        more["signal"] = WTERMSIG(status);
      else
        more["status"] = WEXITSTATUS(status);
      event("exit", &job, more);
      if (status != 0 && !stopping_)
        std::fprintf(stderr, "meshmark: program %s, copy %d: %s\n", job.start->name.c_str(), job.start->copy,
                     how(status).c_str());
    }
  }

  static std::string how(int status) {
    return WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                               : "ended with status " + std::to_string(WEXITSTATUS(status));
  }

  void drain(Job& job) {
    for (int fd = job.out; job.out >= 0;) {
      pollfd p{fd, POLLIN, 0};
      if (::poll(&p, 1, 0) <= 0) return;
      hear(job);
    }
  }

  void ask_all_to_end() {
    for (const pid_t pid : place::descendants(::getpid())) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);  // a stopped one would not hear
    }
    for (Job& job : jobs_) {
      job.killed = job.phase == Phase::released;
      // At its gate it would wait for ever.
      if (job.phase == Phase::ready || job.phase == Phase::setting_up) {
        fail(job, "the run ended before it was released");
        if (job.pid > 0) ::kill(job.pid, SIGKILL);
      }
    }
  }

  /// Nobody survives: who starts another while being ended is found in the next round.
  void end_everyone() noexcept {
    try {
      for (bool first = true;; first = false) {
        const std::vector<pid_t> left = place::descendants(::getpid());
        for (const pid_t pid : left) ::kill(pid, SIGKILL);
        reap();
        if (left.empty()) break;
        if (!first) ::usleep(2000);
      }
    } catch (const std::exception&) {  // nothing can be written any more
      try {
        end_descendants();
      } catch (const std::exception&) {  // nor be read: who stands by does it
        for (const Job& job : jobs_)
          if (job.pid > 0 && job.phase != Phase::ended) ::kill(-job.pid, SIGKILL);
      }
    }
  }

  // --- looking

  Process& enter(pid_t pid, std::size_t job) {
    Process& process = processes_[pid];
    process.job = job;
    process.since_s = now();
    process.looked_s = last_search_s_;
    process.next_pages_s = process.since_s + 0.3;
    ++jobs_[job].processes;
    find_threads(pid, process);
    return process;
  }

  void look(Task& task) {
    const auto sums = parse_schedstat(task.schedstat.text());
    const auto stat = sums ? parse_thread_stat(task.stat.text()) : std::nullopt;
    if (!stat || (task.started != 0 && stat->started != task.started)) {
      task.ended = true;
      return;
    }
    if (task.started == 0) task.started = stat->started;
    if (task.command != stat->command) task.command = stat->command;
    task.siblings = stat->threads;
    if (task.last.cpu >= 0 && stat->cpu != task.last.cpu) ++task.moves;
    // A processor on which it only waits is none it ran on.
    if (sums->first != task.last.ran_ns || task.ran_on.empty()) task.ran_on.insert(stat->cpu);
    task.last = {now(), sums->first, sums->second, stat->user_ticks, stat->system_ticks, stat->state, stat->cpu};
  }

  void count_migrations(Task& task) {
    if (const long long n = migrations_of(task); n >= 0) task.migrations = n;
    task.next_migrations_s = now() + std::max(kMigrationsEvery, (now() - task.base.at_s) / 8);
  }

  static long long migrations_of(const Task& task) {
    return parse_migrations(place::slurp(place::task_folder(task.process, task.id) + "sched"));
  }

  void find_threads(pid_t pid, Process& process) {
    for (const pid_t id : place::numbers_in("/proc/" + std::to_string(pid) + "/task")) {
      if (std::any_of(process.tasks.begin(), process.tasks.end(),
                      [&](const Task& t) { return t.id == id && !t.ended; }))
        continue;
      process.tasks.emplace_back(threads_++, process.job, pid, id);
      Task& task = process.tasks.back();
      look(task);
      if (task.ended) {
        process.tasks.pop_back();
        --threads_;
        continue;
      }
      // Its birth as the kernel has it, in ticks; it cannot be before its program was released nor after it was seen.
      const Job& job = jobs_[process.job];
      const double born_s = static_cast<double>(task.started) / ticks_per_second() - boot_offset_s_ - begin_s_;
      task.base = {};
      task.base.at_s = std::clamp(std::max(born_s, process.looked_s), job.released_s, task.last.at_s);
      task.base_migrations = 0;
      task.next_migrations_s = now() + kMigrationsEvery;
      json line{{"type", "thread"},
                {"t_s", rounded(task.base.at_s)},
                {"thread", task.number},
                {"program", job.start->name},
                {"copy", job.start->copy},
                {"pid", pid},
                {"tid", id},
                {"command", task.command}};
      emit(line);
    }
  }

  /// Number of the last process or thread that was made: while it stays, there is nobody new to look for.
  std::int64_t newest() {
    const std::string_view text = loadavg_.text();
    const std::size_t at = text.rfind(' ');
    return at == std::string_view::npos ? -1 : static_cast<std::int64_t>(place::number_of(text.substr(at + 1)));
  }

  void find_everyone() {
    const std::int64_t last = newest();
    if (last == newest_ && last >= 0) {
      last_search_s_ = now();
      return;
    }
    if (now() < next_search_s_) return;
    const double before_s = own_cpu_s(), at_s = now();
    newest_ = last;
    std::map<pid_t, pid_t> parents;
    std::set<pid_t> there;
    for (const pid_t pid : place::numbers_in("/proc")) {
      there.insert(pid);
      if (foreign_.contains(pid) || pid == ::getpid()) continue;
      if (const auto known = processes_.find(pid); known != processes_.end() && !known->second.ended) continue;
      if (const auto stat = place::parse_stat(place::slurp("/proc/" + std::to_string(pid) + "/stat")))
        parents[pid] = stat->parent;
    }
    // A child may have a smaller number than its parent, where numbers wrapped.
    for (bool more = true; more;) {
      more = false;
      for (auto at = parents.begin(); at != parents.end();) {
        const auto& [pid, parent] = *at;
        std::optional<std::size_t> job;
        if (const auto own = job_of_.find(pid); own != job_of_.end())
          job = own->second;
        else if (const auto above = processes_.find(parent); above != processes_.end())
          job = above->second.job;
        else if (parent == ::getpid())  // an orphan: its group is that of the program that started it
          if (const auto group = job_of_.find(::getpgid(pid)); group != job_of_.end()) job = group->second;
        if (job && jobs_[*job].phase == Phase::released) {
          processes_.erase(pid);  // the number of one that ended was given to a new one
          enter(pid, *job);
        }
        if (job) {
          at = parents.erase(at);
          more = true;
        } else {
          ++at;
        }
      }
    }
    for (const auto& [pid, parent] : parents) foreign_.insert(pid);
    std::erase_if(foreign_, [&](pid_t pid) { return !there.contains(pid); });
    last_search_s_ = at_s;
    next_search_s_ = at_s + std::min((own_cpu_s() - before_s) / kSearchDuty, 1.0);
  }

  /// What a thread came to, told once it has ended: of a run that is killed there is then as much as can be.
  void settle(const Task& task) {
    const Job& job = jobs_[task.job];
    const Sums s = sums_of(task);
    const double closes = s.wall_s() > 0 ? (s.user_s + s.system_s + s.waiting_s + s.sleeping_s) / s.wall_s() : 1;
    emit({{"type", "thread_total"},
          {"t_s", rounded(now())},
          {"thread", task.number},
          {"program", job.start->name},
          {"copy", job.start->copy},
          {"pid", task.process},
          {"tid", task.id},
          {"command", task.command},
          {"from_s", rounded(s.from_s)},
          {"to_s", rounded(s.to_s)},
          {"user_s", rounded(s.user_s)},
          {"system_s", rounded(s.system_s)},
          {"waiting_s", rounded(s.waiting_s)},
          {"sleeping_s", rounded(s.sleeping_s)},
          {"closes", rounded(closes)},
          {"migrations", s.migrations},
          {"migrations_counted", task.migrations >= 0},
          {"cpus", cpu_list({task.ran_on.begin(), task.ran_on.end()})}});
    Sums& sum = sums_[task.job];
    sum.ran_s += s.ran_s, sum.waiting_s += s.waiting_s, sum.sleeping_s += s.sleeping_s;
    sum.migrations += s.migrations;
    ++counts_[task.job];
  }

  void settle_ended(Process& process) {
    for (const Task& task : process.tasks)
      if (task.ended) settle(task);
    std::erase_if(process.tasks, [](const Task& task) { return task.ended; });
  }

  void sample() {
    find_everyone();
    const double at_s = now();
    std::string line = R"({"type":"sample","t_s":)";
    put_s(line, at_s);
    line += R"(,"threads":[)";
    const std::size_t empty = line.size();
    for (auto& [pid, process] : processes_) {
      if (process.ended) continue;
      std::size_t alive = 0, there = 0;
      const auto look_at = [&](Task& task) {
        look(task);
        if (task.ended) return;
        tell(line, task);
        if (task.last.state == 'Z' && task.siblings <= 1) {
          task.ended = true;  // what its parent does not reap runs no more
          count_migrations(task);
          return;
        }
        ++alive;
        there = task.siblings;
        if (at_s >= task.next_migrations_s) count_migrations(task);
      };
      for (Task& task : process.tasks) look_at(task);
      if (alive != there) {
        const std::size_t known = process.tasks.size();
        find_threads(pid, process);
        for (std::size_t i = known; i < process.tasks.size(); ++i) look_at(process.tasks[i]);
      }
      settle_ended(process);
      process.looked_s = at_s;
      if (process.tasks.empty())
        process.ended = true;
      else if (at_s >= process.next_pages_s)
        count_pages(pid, process, at_s);
    }
    ++samples_;
    if (line.size() == empty) return;
    line.back() = ']';
    write_out(line + "}\n");
  }

  /// What changed since it was told last; a thread that slept is left out.
  static void tell(std::string& line, Task& task) {
    const Look before = std::exchange(task.told, task.last);
    const Look& now = task.last;
    if (now.ran_ns == before.ran_ns && now.waited_ns == before.waited_ns && now.state == before.state &&
        now.cpu == before.cpu && now.state == 'S')
      return;
    line += '[';
    put(line, task.number);
    line += R"(,")";
    line += now.state;
    line += R"(",)";
    put(line, static_cast<std::int64_t>(now.cpu));
    for (const std::uint64_t n : {now.ran_ns - before.ran_ns, now.waited_ns - before.waited_ns,
                                  now.user_ticks - before.user_ticks, now.system_ticks - before.system_ticks}) {
      line += ',';
      put(line, n);
    }
    line += "],";
  }

  void count_pages(pid_t pid, Process& process, double at_s) {
    const double before_s = own_cpu_s();
    std::map<int, std::uint64_t> bytes;
    if (numa_) {
      try {
        bytes = place::count_pages(pid).own;
      } catch (const Absent&) {
        process.next_pages_s = kForever;
        return;
      }
    } else {
      const std::string text = place::slurp("/proc/" + std::to_string(pid) + "/statm");
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) return;
      const std::uint64_t pages = place::number_of(std::string_view(text).substr(space + 1));
      bytes[all_nodes_.empty() ? 0 : all_nodes_[0]] = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    }
    // One walk at a time over all processes, so that many of them do not cost more.
    const double cost_s = (own_cpu_s() - before_s) * static_cast<double>(std::max<std::size_t>(processes_.size(), 1));
    process.next_pages_s = at_s + std::max({kPagesEvery, (at_s - process.since_s) / 4, cost_s / kPagesDuty});
    if (bytes.empty() || bytes == process.bytes) return;
    process.bytes = bytes;
    json by_node = json::object();
    for (const auto& [node, n] : bytes) by_node[std::to_string(node)] = n;
    const Start& s = *jobs_[process.job].start;
    emit({{"type", "pages"},
          {"t_s", rounded(at_s)},
          {"program", s.name},
          {"copy", s.copy},
          {"pid", pid},
          {"bytes", by_node}});
  }

  /// Of a process that has ended and is still to be reaped: its first thread can be read to the end.
  void last_look(pid_t pid, double at_s) {
    const auto found = processes_.find(pid);
    if (found == processes_.end() || found->second.ended) return;
    std::string line = R"({"type":"sample","t_s":)";
    put_s(line, at_s);
    line += R"(,"threads":[)";
    bool any = false;
    for (Task& task : found->second.tasks) {
      if (task.ended) continue;
      if (task.id == pid) {
        look(task);
        if (!task.ended) {
          task.last.at_s = at_s;
          tell(line, task);
          any = true;
          count_migrations(task);
        }
      }
      task.ended = true;
    }
    found->second.ended = true;
    if (any && line.back() == ',') {
      line.back() = ']';
      write_out(line + "}\n");
    }
    settle_ended(found->second);
  }

  // --- what it came to

  struct Sums {
    double from_s = 0, to_s = 0, user_s = 0, system_s = 0, waiting_s = 0, sleeping_s = 0, ran_s = 0;
    long long migrations = 0;
    double wall_s() const { return to_s - from_s; }
  };

  static Sums sums_of(const Task& task) {
    Sums s;
    s.from_s = task.base.at_s;
    s.to_s = task.last.at_s;
    s.ran_s = 1e-9 * static_cast<double>(task.last.ran_ns - task.base.ran_ns);
    s.waiting_s = 1e-9 * static_cast<double>(task.last.waited_ns - task.base.waited_ns);
    const auto user = static_cast<double>(task.last.user_ticks - task.base.user_ticks);
    const auto system = static_cast<double>(task.last.system_ticks - task.base.system_ticks);
    // The kernel has CPU time in ns, and how it splits in ticks of 10 ms.
    s.system_s = user + system > 0 ? s.ran_s * system / (user + system) : 0;
    s.user_s = s.ran_s - s.system_s;
    s.sleeping_s = std::max(0.0, s.wall_s() - s.ran_s - s.waiting_s);
    const long long counted = task.migrations >= 0 ? task.migrations - std::max(0LL, task.base_migrations) : -1;
    s.migrations = std::max(counted, task.moves);
    return s;
  }

  void totals() {
    for (auto& [pid, process] : processes_) {
      for (Task& task : process.tasks) task.ended = true;
      settle_ended(process);
    }
    for (std::size_t j = 0; j < jobs_.size(); ++j) total(jobs_[j], sums_[j], counts_[j]);
  }

  void total(const Job& job, const Sums& sums, std::size_t threads) {
    json line{{"type", "total"}, {"program", job.start->name}, {"copy", job.start->copy}, {"pid", job.pid}};
    if (job.phase != Phase::ended) {
      line["how"] = "failed";
      emit(line);
      return;
    }
    line["how"] = job.timed_out                       ? "timeout"
                  : job.killed                        ? "stopped"
                  : WIFSIGNALED(job.wait_status)      ? "signal"
                  : WEXITSTATUS(job.wait_status) != 0 ? "status"
                                                      : "ok";
    if (WIFSIGNALED(job.wait_status))
      line["signal"] = WTERMSIG(job.wait_status);
    else
      line["status"] = WEXITSTATUS(job.wait_status);
    const double system_s = std::max(0.0, seconds(job.use.ru_stime) - job.base_system_s) + job.others_system_s;
    const double cpu_s = std::max(0.0, seconds(job.use.ru_utime) + seconds(job.use.ru_stime) - job.base_cpu_s) +
                         job.others_user_s + job.others_system_s;
    json pages = json::object();
    std::map<int, std::uint64_t> bytes;
    for (const auto& [pid, process] : processes_)
      if (&jobs_[process.job] == &job)
        for (const auto& [node, n] : process.bytes) bytes[node] += n;
    for (const auto& [node, n] : bytes) pages[std::to_string(node)] = n;
    line.update({{"released_s", rounded(job.released_s)},
                 {"ended_s", rounded(job.ended_s)},
                 {"wall_s", rounded(job.ended_s - job.released_s)},
                 {"user_s", rounded(std::max(0.0, cpu_s - system_s))},
                 {"system_s", rounded(std::min(cpu_s, system_s))},
                 {"waiting_s", rounded(sums.waiting_s)},
                 {"sleeping_s", rounded(sums.sleeping_s)},
                 {"unseen_s", rounded(std::max(0.0, cpu_s - sums.ran_s))},
                 {"threads", threads},
                 {"processes", job.processes},
                 {"migrations", sums.migrations},
                 {"minor_faults", job.use.ru_minflt},
                 {"major_faults", job.use.ru_majflt},
                 {"switches_voluntary", job.use.ru_nvcsw},
                 {"switches_involuntary", job.use.ru_nivcsw},
                 {"largest_bytes", job.use.ru_maxrss << 10},
                 {"pages", pages}});
    emit(line);
  }

  const RunPlan& plan_;
  const Inherited& inherited_;
  int signals_, notify_;
  double begin_s_, boot_offset_s_ = 0, start_s_ = 0, cost_from_s_ = 0, canary_cost_s_ = 0;
  double worst_late_s_ = 0, last_search_s_ = 0, next_search_s_ = 0;
  bool started_ = false, stopping_ = false, timed_out_ = false, wrong_ = false, numa_ = false;
  int stopped_by_ = 0;
  std::size_t samples_ = 0, threads_ = 0;
  std::vector<int> all_nodes_;
  std::vector<Job> jobs_;
  std::map<pid_t, std::size_t> job_of_;
  std::map<pid_t, Process> processes_;
  std::vector<Sums> sums_;
  std::vector<std::size_t> counts_;
  std::set<pid_t> foreign_;
  std::int64_t newest_ = -1;
  place::Again loadavg_{"/proc/loadavg"};
  std::vector<std::string> made_groups_;
  std::unique_ptr<watch::Walker> walker_;
};

/// The sampler keeps off the programs' CPUs where each program has its own and others are left.
void keep_off(const RunPlan& plan, const cpu_set_t& allowed) {
  cpu_set_t left = allowed;
  for (const Start& s : plan.programs) {
    if (s.cpus.empty()) return;
    for (const int cpu : s.cpus)
      if (cpu < CPU_SETSIZE) CPU_CLR(static_cast<std::size_t>(cpu), &left);
  }
  if (CPU_COUNT(&left) > 0) ::sched_setaffinity(0, sizeof left, &left);
}

int be_runner(const RunPlan& plan, Inherited inherited, pid_t above, const sigset_t& blocked, int notify) {
  ::setsid();  // what is sent to the group of whoever started us comes once, through it
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (::getppid() != above) return 128 + SIGKILL;
  inherited.parent = ::getpid();
  rlimit files = inherited.files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 1 << 16);
  ::setrlimit(RLIMIT_NOFILE, &files);
  keep_off(plan, inherited.cpus);
  // Where it may, so that it looks in time also where more programs than CPUs want to run.
  if (std::any_of(plan.programs.begin(), plan.programs.end(), [](const Start& s) { return s.priority == "fifo"; })) {
    sched_param above_all{};
    above_all.sched_priority = 2;
    ::sched_setscheduler(0, SCHED_FIFO, &above_all);
  } else {
    ::setpriority(PRIO_PROCESS, 0, std::max(-20, inherited.nice - 5));
  }
  const int signals = ::signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) throw Failure("cannot take signals: " + said(errno));
  return Runner(plan, inherited, signals, notify).run();
}

/// The descriptor of `MESHMARK_NOTIFY`, which programs do not see; -1: none.
int notified() {
  const char* said_so = std::getenv("MESHMARK_NOTIFY");
  if (said_so == nullptr) return -1;
  const std::string text = said_so;
  ::unsetenv("MESHMARK_NOTIFY");
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc() || end != text.data() + text.size() || fd <= STDERR_FILENO)
    throw Failure("MESHMARK_NOTIFY: found " + quote(text) + "; allowed is the number of a descriptor from 3");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd, F_SETFL, O_NONBLOCK | O_WRONLY) != 0)
    throw Failure("MESHMARK_NOTIFY: descriptor " + text + ": " + said(errno));
  return fd;
}

/// Stays above the runner, so that whichever of the two is killed, the other ends the programs.
int stand_by(pid_t runner, const sigset_t& blocked) {
  while (true) {
    siginfo_t info{};
    const int got = ::sigwaitinfo(&blocked, &info);
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

}  // namespace

std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_schedstat(std::string_view text) {
  std::uint64_t ran = 0, waited = 0;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto first = std::from_chars(begin, end, ran);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, waited);
  if (second.ec != std::errc()) return std::nullopt;
  return std::pair{ran, waited};
}

long long parse_migrations(std::string_view text) {
  const std::size_t at = text.find("se.nr_migrations");
  if (at == std::string_view::npos) return -1;
  std::size_t first = text.find(':', at);
  if (first == std::string_view::npos) return -1;
  first = text.find_first_not_of(" \t:", first);
  if (first == std::string_view::npos || text[first] < '0' || text[first] > '9') return -1;
  return static_cast<long long>(place::number_of(text.substr(first)));
}

RunPlan read_run_plan(const std::string& path) {
  const std::string named = shown_path(path);
  const Input input = read_input(path);
  if (!input.wrong.empty()) throw Failure(named + ": " + input.wrong + "; allowed is " + input.allowed);
  const json raw = parse_json(input.text);
  if (!raw.is_object()) throw Failure(named + ": is no JSON object");
  const Fields f{raw, named};
  if (f.text("format", "") != "meshmark load plan")
    f.refuse("format", raw.value("format", json()), "meshmark load plan");
  if (f.whole("version", 0, 0, 1 << 20) != 1) f.refuse("version", raw.value("version", json()), "1");
  RunPlan plan;
  plan.scenario = f.text("scenario", "scenario");
  plan.sample_s = f.real("sample_s", plan.sample_s, 1e-3, 60);
  plan.timeout_s = f.real("timeout_s", 0, 0, 1e6);
  plan.setup_s = f.real("setup_s", plan.setup_s, 1e-3, 1e5);
  const json& canary = raw.contains("canary") ? raw["canary"] : json::object();
  if (!canary.is_object()) f.refuse("canary", canary, "an object");
  const Fields c{canary, named + ": canary"};
  plan.canary_before_s = c.real("before_s", 0, 0, 3600);
  plan.canary_after_s = c.real("after_s", 0, 0, 3600);
  plan.canary_during = c.truth("during");
  const json& programs = raw.contains("programs") ? raw["programs"] : json();
  if (!programs.is_array() || programs.empty() || programs.size() > kMostPrograms)
    f.refuse("programs", programs, "1 to " + std::to_string(kMostPrograms) + " programs");
  for (std::size_t i = 0; i < programs.size(); ++i)
    plan.programs.push_back(read_start(programs[i], named + ": programs[" + std::to_string(i) + "]"));
  return plan;
}

int run_verb(int argc, char** argv) {
  Arguments app{
      "runs the programs of a plan at once and looks at every thread of theirs\n"
      "example: meshmark-load run plan.json"};
  std::string path;
  app.add("PLAN", path, "made by meshmark load run").required();
  if (!app.read(argc, argv, "run")) return 0;
  const RunPlan plan = read_run_plan(path);
  Inherited inherited;
  if (::sched_getaffinity(0, sizeof inherited.cpus, &inherited.cpus) != 0)
    throw Failure("cannot read the CPUs of this process: " + said(errno));
  ::getrlimit(RLIMIT_NOFILE, &inherited.files);
  inherited.nice = ::getpriority(PRIO_PROCESS, 0);
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR2}) sigaddset(&blocked, signal);
  std::signal(SIGCHLD, SIG_DFL);  // a parent that ignores it would have the kernel reap the programs
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a journal that may not grow is told like a full disk
  const int notify = notified();
  ::sigprocmask(SIG_BLOCK, &blocked, &inherited.mask);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = ::getpid(), runner = ::fork();
  if (runner < 0) throw Failure("cannot start a process: " + said(errno));
  if (runner == 0) return be_runner(plan, inherited, self, blocked, notify);
  return stand_by(runner, blocked);
}

}  // namespace mm::load

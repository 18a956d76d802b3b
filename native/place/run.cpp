#include "run.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "arguments.hpp"
#include "bind.hpp"
#include "clock.hpp"
#include "command.hpp"
#include "describe.hpp"
#include "error.hpp"
#include "host.hpp"
#include "json.hpp"
#include "ledger.hpp"
#include "observe.hpp"
#include "options.hpp"
#include "policy.hpp"
#include "proc.hpp"
#include "provenance.hpp"
#include "run_state.hpp"
#include "syntax.hpp"

namespace mm::place {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kGrace_s = 5;  // between asking the command to end and ending it, at --timeout
constexpr int kTimedOut = 124, kNotExecutable = 126, kNotFound = 127;  // as timeout(1), env(1) and shells answer

struct Options {
  std::optional<std::string> bind, slots, memory, pages;
  std::string within, matrix, sharing, profile, record, launcher;
  int n = 0;  // 0: not said
  double wait_s = 0, timeout_s = 0;
  bool each = false, openmp = false, hard = false, no_claim = false, say = false, verify = false, strict = false;
  std::vector<std::string> command;
};

/// The other launchers' ranks are their children here, and have what the launcher is bound to.
bool by_daemon(const std::string& launcher) { return launcher.starts_with("slurm") || launcher == "flux"; }

std::optional<Options> read_options(int argc, char** argv) {
  Options o;
  const auto dashes = std::find_if(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--") == 0; });
  if (dashes != argv + argc) o.command.assign(dashes + 1, argv + argc);

  Arguments app{
      "Places a command: on which CPUs it runs, where its pages go, and with --verify proof that both held.\n"
      "Without --bind, and where neither site, profile nor environment says a policy: balance with -n, else none.\n\n"
      "example: meshmark run --bind pack -n 2 --memory bind --verify -- ./a.out input",
      "meshmark run"};
  std::string wait, verify;
  bool soft = false;
  app.add("--bind", o.bind, "policy and modifiers (meshmark list policies), user, or LSF's affinity[…]");
  app.add("--slots", o.slots, "what counts as a slot: procs, cores, threads [cores]");
  app.add("-n", o.n, "slots [1; all of a list; with --each the ranks on this node]").from(1, 65536);
  app.flag("--each", o.each, "a slot a rank or thread, not one mask for all");
  app.flag("--openmp", o.openmp, "--each, and as many OpenMP threads as slots");
  app.add("--launcher", o.launcher, "start -n ranks of the command: openmpi, openmpi5, mpich, slurm, slurm-mask, flux");
  app.add("--memory", o.memory, "default, local, bind, preferred, interleave [=NODES], weighted=NODE:WEIGHT,…");
  app.add("--pages", o.pages, "default, 4KiB, thp, 2MiB, 1GiB");
  app.add("--within", o.within, "only these CPUs [all that are allowed]");
  app.add("--matrix", o.matrix, "file with measured distances between nodes, JSON");
  app.add("--sharing", o.sharing, "JSON file with the traffic and bandwidth demand of the parts, for --bind sharing");
  app.add("--profile", o.profile, "of this name in the configuration");
  app.flag("--hard", o.hard, "a cpuset, which the command cannot undo");
  app.flag("--soft", soft, "affinity, which it can [so]");
  const Arguments::Option waits = app.add("--wait", wait, "for CPUs that others hold [for ever]").may_be_bare();
  app.flag("--no-claim", o.no_claim, "neither look at nor add to the claims of this node");
  const Arguments::Option verifies =
      app.add("--verify", verify, "say whether it held; strict: exit status 3 if it did not").may_be_bare();
  app.add("--record", o.record, "add elapsed, user, system and waiting time to this file, JSON Lines");
  app.time("--timeout", o.timeout_s, "then it is ended, and the exit status is 124", 1e-9);
  app.flag("--say", o.say, "say where it went before it starts");
  if (!app.read(static_cast<int>(dashes - argv), argv, "run")) return std::nullopt;
  if (o.command.empty()) throw UsageError("command", "found none", "-- COMMAND [ARGUMENTS] after the options");
  if (waits.given()) o.wait_s = wait.empty() ? kForever : parse_time("wait", wait);
  o.verify = verifies.given();
  o.strict = verify == "strict";
  if (!verify.empty() && !o.strict) throw UsageError("verify", "found " + quote(verify), "nothing, or strict");
  if (o.hard && soft) throw UsageError("hard", "found together with --soft", "one of them");
  if (o.hard && o.no_claim)
    throw UsageError("hard", "found together with --no-claim: the claim is what removes the cpuset", "one of them");
  if (o.hard && by_daemon(o.launcher))
    throw UsageError("hard",
                     "found with --launcher " + o.launcher + ": a daemon starts its ranks, outside of the cpuset",
                     "in each rank: srun --cpu-bind=none … meshmark run --each --hard …");
  if (o.each && !o.launcher.empty())
    throw UsageError("each", "found together with --launcher, whose ranks have a slot each", "one of them");
  o.each = o.each || o.openmp;
  return o;
}

// ---------------------------------------------------------------- ranks

/// Which of the ranks on this node this process is.
struct Rank {
  int index = -1, size = 0;  ///< -1: of none; 0: the launcher does not say how many
  std::string job;           ///< what the ranks of one launch have in common
};

int whole(const char* name) {
  const long long n = parse_integer(name, variable(name));
  if (n < 0 || n > 1 << 16) throw UsageError(name, "found " + std::to_string(n), "0 to 65536");
  return static_cast<int>(n);
}

/// `4(x2),3`: ranks on each node of a Slurm step; those of this one.
int slurm_size() {
  const std::string name =
      variable("SLURM_STEP_TASKS_PER_NODE").empty() ? "SLURM_TASKS_PER_NODE" : "SLURM_STEP_TASKS_PER_NODE";
  if (variable(name.c_str()).empty()) return 0;
  int node = variable("SLURM_NODEID").empty() ? 0 : whole("SLURM_NODEID");
  for (const std::string& word : split(variable(name.c_str()), ',')) {
    int ranks = 0, times = 1;
    if (std::sscanf(word.c_str(), "%d(x%d)", &ranks, &times) < 1 || ranks < 1 || times < 1)
      throw UsageError(name, "found " + quote(variable(name.c_str())), "such as 4(x2),3");
    if (node < times) return ranks;
    node -= times;
  }
  return 0;
}

/// The process that started this one: the same for all ranks of a launch, and another for each launch.
std::string parent() {
  const std::string pid = std::to_string(getppid());
  const auto stat = parse_stat(slurp("/proc/" + pid + "/stat"));
  return "parent " + pid + " of " + (stat ? std::to_string(stat->started) : "");
}

Rank rank_of_environment() {
  const auto is = [](const char* name) { return !variable(name).empty(); };
  const auto key = [](const std::string& launcher, const std::string& name) {
    return launcher + " " + (name.empty() ? parent() : name);
  };
  if (is("MESHMARK_RANK"))
    return {whole("MESHMARK_RANK"), is("MESHMARK_RANKS") ? whole("MESHMARK_RANKS") : 0,
            key("meshmark", variable("MESHMARK_JOB"))};
  if (is("OMPI_COMM_WORLD_LOCAL_RANK") && is("OMPI_COMM_WORLD_LOCAL_SIZE"))
    return {whole("OMPI_COMM_WORLD_LOCAL_RANK"), whole("OMPI_COMM_WORLD_LOCAL_SIZE"),
            key("openmpi", variable("PMIX_NAMESPACE"))};
  if (is("MPI_LOCALRANKID") && is("MPI_LOCALNRANKS"))
    return {whole("MPI_LOCALRANKID"), whole("MPI_LOCALNRANKS"), key("hydra", "")};
  if (is("FLUX_TASK_LOCAL_ID") && is("FLUX_JOB_ID"))
    return {whole("FLUX_TASK_LOCAL_ID"),
            variable("FLUX_JOB_NNODES") == "1" && is("FLUX_JOB_SIZE") ? whole("FLUX_JOB_SIZE") : 0,
            key("flux", variable("FLUX_JOB_ID"))};
  if (is("SLURM_LOCALID") && is("SLURM_STEP_ID"))
    return {whole("SLURM_LOCALID"), slurm_size(),
            key("slurm", variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID"))};
  // Counts over all nodes: the local ranks are unknown where there are several, and then too many parts are refused.
  if (is("PMI_RANK") && is("PMI_SIZE")) return {whole("PMI_RANK"), whole("PMI_SIZE"), key("pmi", "")};
  return {};
}

// ---------------------------------------------------------------- the command

/// Exit status with which an exec of this would fail, and why; 0 where it would not.
std::pair<int, std::string> unfit(const std::string& program) {
  std::vector<std::string> places = {program};
  const bool named = program.find('/') != std::string::npos;
  if (!named) {
    places = split(std::getenv("PATH") == nullptr ? "/bin:/usr/bin" : variable("PATH"), ':');
    for (std::string& place : places) place = (place.empty() ? "." : place) + "/" + program;
  }
  bool seen = false;
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return {0, ""};
    seen = seen || access(place.c_str(), F_OK) == 0;
  }
  const std::string what = quote(program) + (named ? "" : " in PATH");
  if (seen) return {kNotExecutable, what + " cannot be executed: Permission denied"};
  return {kNotFound, "found no " + what};
}

int complain(const std::pair<int, std::string>& unfit_command) {
  std::fprintf(stderr, "meshmark: error: command: %s\n", unfit_command.second.c_str());
  return unfit_command.first;
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int status = errno == ENOENT ? kNotFound : kNotExecutable;
  std::fprintf(stderr, "meshmark: error: command: %s cannot be executed: %s\n", quote(words[0]).c_str(), why().c_str());
  _exit(status);
}

/// Launchers whose ranks a daemon starts: no descendants of this process, so nothing is seen of them.
bool starts_elsewhere(const std::string& program) {
  static const std::set<std::string> known = {"srun", "flux", "jsrun", "aprun", "prun", "bsub", "sbatch", "qsub"};
  return known.contains(program.substr(program.rfind('/') + 1));
}

/// Where several MPIs are installed, `mpirun` and `mpiexec` are one's, not always the one asked for; Debian has each of
/// them beside it under a name of its own. Only beside it: another folder's is another installation.
std::string of_its_kind(const std::string& program, const std::string& form) {
  const char* const kind = form == "mpich" ? ".mpich" : form.starts_with("openmpi") ? ".openmpi" : nullptr;
  if (kind == nullptr) return program;
  for (const std::string& folder : split(variable("PATH"), ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (access(path.c_str(), X_OK) == 0) return access((path + kind).c_str(), X_OK) == 0 ? path + kind : program;
  }
  return program;
}

/// How launchers start so many ranks without binding them.
std::vector<std::string> launcher_words(const std::string& form, int ranks) {
  const std::map<std::string, std::vector<std::string>> starts = {
      {"openmpi", {"mpirun", "-np"}}, {"openmpi5", {"mpirun", "-np"}}, {"mpich", {"mpiexec", "-n"}},
      {"slurm", {"srun", "-n"}},      {"slurm-mask", {"srun", "-n"}},  {"flux", {"flux", "run", "-n"}}};
  const auto start = starts.find(form);
  if (start == starts.end())
    throw UsageError("launcher", "found " + quote(form), "openmpi, openmpi5, mpich, slurm, slurm-mask, flux");
  std::vector<std::string> words = start->second;
  words.push_back(std::to_string(ranks));
  return words;
}

/// A form's words as they are run. Its files are memory that only this process and its children have: nothing is left
/// behind, however it ends.
std::vector<std::string> words_of(const Form& form) {
  std::vector<std::string> words = form.words;
  for (const auto& [name, text] : form.files) {
    const int fd = memfd_create(name.c_str(), 0);
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw Failure("cannot hold the launcher's " + name + ": " + why());
    lseek(fd, 0, SEEK_SET);
    const std::string mark = "{" + name + "}";
    for (std::string& word : words)
      if (const std::size_t at = word.find(mark); at != std::string::npos)
        word.replace(at, mark.size(), "/proc/self/fd/" + std::to_string(fd));
  }
  return words;
}

// ---------------------------------------------------------------- where it goes

/// What it was decided to be, before anything is done.
struct Plan {
  Machine machine;
  Request request;
  std::optional<Affinity> affinity;  ///< what LSF's string says in place of a policy
  Memory memory;
  Rank rank;
  Placement placement;
  std::vector<int> cpus;  ///< of this process: its part as a rank, else all; empty: not bound
  std::optional<Ledger::Held> held;
  std::string from;  ///< who wished it, where the command line did not
};

Plan wished(const Options& o) {
  Plan plan;
  Request& request = plan.request;
  if (o.each) plan.rank = rank_of_environment();
  const int slots = o.n > 0 ? o.n : plan.rank.size;  // 0: not said
  Wishes wishes = settle(o.profile, o.bind, o.slots);
  if (wishes.bind == "user") wishes.bind = wishes_of_environment(environment()).bind.value_or("none");
  if (wishes.bind && is_affinity(*wishes.bind)) {
    plan.affinity = parse_affinity(*wishes.bind, std::max(slots, 1));
    request = plan.affinity->request;
    plan.memory = plan.affinity->memory;
  } else {
    parse_bind(wishes.bind.value_or(o.n > 0 || o.each || !o.launcher.empty() ? "balance" : "none"), request);
    if (wishes.kind) request.kind = *wishes.kind;
    request.slots = slots > 0 ? slots : request.policy == "list" ? static_cast<int>(request.list.size()) : 1;
  }
  if (!o.within.empty()) request.within = parse_cpu_list("within", o.within);
  if (!o.sharing.empty()) request.sharing = read_sharing(o.sharing);
  if (o.memory || wishes.memory) plan.memory = parse_memory(o.memory ? *o.memory : *wishes.memory);
  plan.memory.pages = o.pages ? *o.pages : wishes.pages.value_or("default");
  if (!o.bind) plan.from = wishes.from;
  request.prove = false;  // the choice is that of `plan`; only its proof is not computed
  return plan;
}

Plan decide(const Options& o) {
  Plan plan = wished(o);
  plan.machine = machine_of("host");
  if (!o.matrix.empty()) use_matrix(plan.machine, o.matrix);
  const Request& request = plan.request;
  // A launcher that binds its ranks leaves each of them a part of the machine, in which the others' parts cannot be.
  if (plan.rank.index >= 0 && request.policy != "none")
    if (const auto most = slots_of(plan.machine, request.kind, plan.machine.allowed).size();
        most < static_cast<std::size_t>(request.slots))
      throw UsageError("bind",
                       "this rank may use CPUs " + cpu_list(plan.machine.allowed) + ", too few for " +
                           std::to_string(request.slots) + " " + name(request.kind),
                       "a launcher that does not bind: mpirun --bind-to none, srun --cpu-bind=none");
  const auto by_policy = [&](const Occupancy& taken) {
    return plan.affinity ? place(plan.machine, *plan.affinity, taken) : place(plan.machine, request, taken);
  };
  if (o.no_claim || request.policy == "none") {
    plan.placement = by_policy({});
  } else {
    Claim as;
    for (const std::string& word : o.command) as.command += (as.command.empty() ? "" : " ") + word;
    as.policy = request.policy;
    as.exclusive = request.exclude;
    if (plan.rank.index >= 0) as.job = plan.rank.job;
    plan.held = Ledger().claim(as, by_policy, o.wait_s);
    plan.placement = plan.held->placement;
  }
  const Layout& layout = plan.placement.layout;
  plan.cpus = layout.cpus();
  if (plan.rank.index >= 0 && !layout.parts.empty()) {
    if (plan.rank.index >= static_cast<int>(layout.parts.size()))
      throw UsageError("n",
                       "found local rank " + std::to_string(plan.rank.index) + " and " +
                           std::to_string(layout.parts.size()) + " parts",
                       "-n with the ranks on this node, the same for all of them");
    plan.cpus = layout.parts[static_cast<std::size_t>(plan.rank.index)];
  }
  if (plan.cpus.empty() && o.hard)
    throw UsageError("hard", "found with policy " + request.policy + ", which binds nothing", "a policy that binds");
  return plan;
}

std::string said(const Options& o, const Plan& plan) {
  const Machine& m = plan.machine;
  std::string text = plan.request.policy + ": ";
  if (plan.cpus.empty()) return text + "not bound";
  std::set<int> nodes;
  for (const int cpu : plan.cpus) nodes.insert(m.cpu(cpu).node);
  const std::size_t all = slots_of(m, plan.request.kind, m.allowed).size();
  if (plan.rank.index >= 0) text += "rank " + std::to_string(plan.rank.index) + " of ";
  text += std::to_string(plan.placement.layout.parts.size()) + " of " + std::to_string(all) + " " +
          name(plan.request.kind) + ": CPUs " + cpu_list(plan.cpus) + " (relative " +
          cpu_list(relative(plan.cpus, m.allowed)) + "), nodes " + cpu_list({nodes.begin(), nodes.end()}) +
          (o.hard ? ", hard" : ", soft");
  if (plan.memory.policy != "default") {
    text += ", memory " + plan.memory.policy;
    if (plan.memory.policy != "local") text += " on nodes " + cpu_list(nodes_meant(m, plan.memory, plan.cpus));
  }
  if (plan.memory.pages != "default") text += ", pages " + plan.memory.pages;
  if (plan.placement.oversubscribed) text += ", shared with others";
  if (!plan.from.empty()) text += " (" + plan.from + ")";
  return text;
}

/// This process becomes what the command shall be; everything is inherited by it and by all that it starts.
void bind_here(const Options& o, Plan& plan) {
  if (plan.held) setenv("MESHMARK_CLAIM", plan.held->claim.path.c_str(), 1);
  if (!plan.cpus.empty()) {
    if (o.hard && plan.held) {
      // One cpuset for all ranks of a claim, journalled before it is made, so that it goes with the claim.
      const std::string& path = plan.held->claim.path;
      const std::string name = "meshmark-" + path.substr(path.rfind('-') + 1);
      Ledger().set_cgroup(*plan.held, cpuset_folder(name));
      const auto nodes = plan.memory.policy == "bind"
                             ? nodes_meant(plan.machine, plan.memory, plan.placement.layout.cpus())
                             : std::vector<int>{};
      set_cpuset(name, plan.placement.layout.cpus(), nodes);
    }
    set_affinity(plan.cpus);
  }
  set_memory(plan.machine, plan.memory, plan.cpus);
  set_pages(plan.memory.pages);
}

/// Threads of an OpenMP program: the run time puts thread i on place i.
void place_threads(const Options& o, const Plan& plan) {
  Layout places = plan.placement.layout;
  if (plan.rank.index >= 0) places.parts = slots_of(plan.machine, SlotKind::cores, plan.cpus);
  if (places.parts.empty()) return;
  for (const auto& [name, value] : emit("omp-places", plan.machine, places, {}).environment)
    if (o.openmp || name != "OMP_NUM_THREADS") setenv(name.c_str(), value.c_str(), 1);
}

// ---------------------------------------------------------------- watching it

struct Outcome {
  int status = 0;  ///< of wait(2)
  bool timed_out = false;
  double elapsed_s = 0;
  std::string start;
  rusage use{};
  std::optional<Report> report;
};

void signal_all(int signal_number) {
  for (const pid_t pid : descendants(getpid())) {
    kill(pid, signal_number);
    kill(pid, SIGCONT);  // a stopped one would not hear
  }
}

/// Waits for the command, looks at it, passes signals on.
///
/// The command stays in this process's group, so the terminal's signals reach both: only what was sent to this process
/// by another one is passed on. (What somebody sends to the whole group reaches the command twice.) When the terminal
/// stops the command, this process stops too, so that the shell sees the job stopped.
Outcome supervise(const Options& o, const Plan& plan, pid_t child, int started, const Expectation& expected) {
  Outcome outcome;
  outcome.start = utc_now();
  double begin_s = wall_s(), told_s = 0;
  // Ends with the descriptor, which closes on exec: from then on it is the command.
  while (true) {
    const ssize_t n = read(started, &told_s, sizeof told_s);
    if (n == sizeof told_s) begin_s = told_s;
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  close(started);

  std::optional<Observer> observer;
  if (o.verify) observer.emplace(plan.machine, child, expected);
  double look_s = begin_s, end_s = o.timeout_s > 0 ? begin_s + o.timeout_s : kForever;
  sigset_t all;
  sigfillset(&all);
  for (bool running = true; running;) {
    if (observer && wall_s() >= look_s) {
      observer->sample();
      look_s = wall_s() + observer->next_s();
    }
    if (wall_s() >= end_s) {
      signal_all(outcome.timed_out ? SIGKILL : SIGTERM);
      end_s = wall_s() + (outcome.timed_out ? 0.1 : kGrace_s);
      outcome.timed_out = true;
    }
    const double pause_s = std::clamp(std::min(observer ? look_s : kForever, end_s) - wall_s(), 0.0, 3600.0);
    const timespec pause{static_cast<time_t>(pause_s), static_cast<long>(1e9 * (pause_s - std::floor(pause_s)))};
    siginfo_t info{};
    const int got = sigtimedwait(&all, &info, &pause);
    if (got < 0) continue;
    if (got != SIGCHLD) {
      if (info.si_code != SI_KERNEL && info.si_pid != getpid()) kill(child, got);
      continue;
    }
    // One signal may stand for several that ended, also orphans that came to this process.
    for (siginfo_t ended{}; waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
         ended.si_pid = 0) {
      if (ended.si_pid == child) {
        outcome.elapsed_s = wall_s() - begin_s;
        if (observer) observer->sample();  // before it is reaped: its last counts are still to be read
        running = false;
      }
      waitpid(ended.si_pid, ended.si_pid == child ? &outcome.status : nullptr, 0);
    }
    siginfo_t stopped{};
    if (running && waitid(P_PID, static_cast<id_t>(child), &stopped, WSTOPPED | WNOHANG) == 0 &&
        stopped.si_pid == child &&
        (stopped.si_status == SIGTSTP || stopped.si_status == SIGTTIN || stopped.si_status == SIGTTOU)) {
      raise(SIGSTOP);
      kill(child, SIGCONT);
    }
  }
  if (outcome.timed_out) signal_all(SIGKILL);
  getrusage(RUSAGE_CHILDREN, &outcome.use);
  if (observer) {
    outcome.report = observer->report();
    std::set<std::string> unseen;
    for (const ThreadVerdict& thread : outcome.report->threads)
      if (starts_elsewhere(thread.command)) unseen.insert(thread.command);
    for (const std::string& by : unseen)
      outcome.report->absent.push_back("the ranks of " + by +
                                       ", which a daemon starts out of sight from here; meshmark run --each --verify "
                                       "within each rank sees them");
  }
  return outcome;
}

// ---------------------------------------------------------------- what is written down

bool any_of(const Report& report, std::initializer_list<Violation> which) {
  for (const ThreadVerdict& t : report.threads)
    for (const Violation v : t.violations)
      if (std::find(which.begin(), which.end(), v) != which.end()) return true;
  return false;
}

/// Share of the bytes that are not on the nodes meant; null where nothing was meant or seen.
json remote_share(const Totals& seen, const std::vector<int>& nodes) {
  std::uint64_t all = 0, here = 0;
  for (const auto& [node, bytes] : seen.pages) {
    all += bytes;
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) here += bytes;
  }
  if (all == 0 || nodes.empty()) return nullptr;
  return 1 - static_cast<double>(here) / static_cast<double>(all);
}

/// The lines of one run, after the record protocol: a header, results (or an error where the command failed), a note
/// with the placement, an end.
std::string record_lines(const Options& o, const Plan& plan, const Outcome& outcome) {
  const auto& request = plan.request;
  const std::string program = o.command[0].substr(o.command[0].rfind('/') + 1), machine = host_name();
  std::string arguments;
  for (std::size_t i = 1; i < o.command.size(); ++i) arguments += (i > 1 ? " " : "") + o.command[i];
  const json provenance{{"build", kBuild},
                        {"compiler", kCompiler},
                        {"command", "run " + o.command[0] + " " + arguments},
                        {"kernel", kernel_release()},
                        {"start", outcome.start},
                        {"duration_s", outcome.elapsed_s}};
  const std::string threads = variable("OMP_NUM_THREADS");
  std::vector<int> nodes = nodes_meant(plan.machine, plan.memory, plan.cpus);
  json conditions{{"program", program},
                  {"arguments", arguments.substr(0, 4096)},
                  {"policy", request.policy},
                  {"slots", plan.placement.layout.parts.size()},
                  {"slot_kind", name(request.kind)},
                  {"cpus", cpu_list(plan.cpus)},
                  {"cpus_relative", cpu_list(relative(plan.cpus, plan.machine.allowed))},
                  {"each", o.each || !o.launcher.empty()},
                  {"binding", plan.cpus.empty() ? "none"
                              : o.hard          ? "hard"
                                                : "soft"},
                  {"memory", plan.memory.policy},
                  {"memory_nodes", cpu_list(nodes)},
                  {"pages", plan.memory.pages},
                  {"threads", threads.empty() ? json(nullptr) : json(threads)},
                  {"minor_faults", outcome.use.ru_minflt},
                  {"major_faults", outcome.use.ru_majflt},
                  {"switches_involuntary", outcome.use.ru_nivcsw},
                  {"largest_bytes", outcome.use.ru_maxrss << 10},
                  {"load_1min", load_1min()}};
  std::vector<std::string> flags;
  if (plan.placement.oversubscribed) flags.emplace_back("oversubscribed");
  std::optional<Totals> seen;
  if (outcome.report) {
    if (nodes.empty())
      for (const int cpu : plan.cpus) nodes.push_back(plan.machine.cpu(cpu).node);
    seen = totals(*outcome.report);
    conditions["held"] = outcome.report->held;
    conditions["migrations"] = seen->migrations;
    conditions["huge_bytes"] = seen->huge_bytes;
    conditions["remote_share"] = remote_share(*seen, nodes);
    if (any_of(*outcome.report, {Violation::mask_changed, Violation::ran_outside, Violation::doubled}))
      flags.emplace_back("migrated");
    if (any_of(*outcome.report, {Violation::wrong_node, Violation::spilled})) flags.emplace_back("misplaced");
  }
  std::vector<json> lines = {{{"type", "header"},
                              {"schema", 1},
                              {"instrument", "run"},
                              {"machine", machine},
                              {"provenance", provenance},
                              {"conditions", host_conditions()},
                              {"parameters", {{"command", o.command}}},
                              {"points", 1}}};
  const bool succeeded = WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0 && !outcome.timed_out;
  if (succeeded) {
    std::map<std::string, double> values = {{"elapsed", outcome.elapsed_s},
                                            {"user", seconds(outcome.use.ru_utime)},
                                            {"system", seconds(outcome.use.ru_stime)}};
    if (seen)
      values["waiting"] = seen->waiting_s;
    else
      lines.push_back({{"type", "absent"},
                       {"instrument", "run"},
                       {"metric", "waiting"},
                       {"conditions", json::object()},
                       {"reason", "only a look at every thread tells how long it waited for a CPU"},
                       {"enable", "--verify"}});
    // Runs of one file are told apart by their point: the same command twice is two results.
    const std::string point = outcome.start + " " + std::to_string(getpid());
    for (const Metric& metric : run_metrics()) {
      const auto found = values.find(metric.name);
      if (found == values.end()) continue;
      const double value = found->second;
      lines.push_back({{"type", "result"},
                       {"schema", 1},
                       {"source", "host"},
                       {"machine", machine},
                       {"instrument", "run"},
                       {"metric", metric.name},
                       {"unit", metric.unit},
                       {"better", better_name(metric.better)},
                       {"value", value},
                       {"interval", nullptr},
                       {"samples", {value}},
                       {"flags", flags},
                       {"conditions", conditions},
                       {"provenance", provenance},
                       {"point", point}});
    }
  } else {
    const std::string what = outcome.timed_out ? "was ended by --timeout"
                             : WIFSIGNALED(outcome.status)
                                 ? "was ended by signal " + std::to_string(WTERMSIG(outcome.status))
                                 : "ended with status " + std::to_string(WEXITSTATUS(outcome.status));
    lines.push_back({{"type", "error"}, {"field", nullptr}, {"message", "the command " + what}, {"allowed", nullptr}});
  }
  if (outcome.report)
    lines.push_back({{"type", "note"},
                     {"kind", "placement"},
                     {"conditions", conditions},
                     {"node_bytes", by_node(seen->pages)},
                     {"report", to_json(*outcome.report)}});
  lines.push_back({{"type", "end"},
                   {"status", succeeded ? "ok" : "error"},
                   {"elapsed_s", outcome.elapsed_s},
                   {"points", succeeded ? 1 : 0},
                   {"resumed", 0},
                   {"overhead", 0}});
  std::string text;
  for (const json& line : lines) text += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return text;
}

/// Dies as the command died.
int pass_on(int status) {
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const int fatal = WTERMSIG(status);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the command has dumped its own
  std::signal(fatal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, fatal);
  raise(fatal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  return 128 + fatal;
}

}  // namespace

int run_verb(int argc, char** argv) {
  const auto asked = read_options(argc, argv);
  if (!asked) return 0;
  const Options& o = *asked;
  if (const auto no = unfit(o.command[0]); no.first != 0) return complain(no);
  std::vector<std::string> launcher;
  if (!o.launcher.empty()) {
    launcher = launcher_words(o.launcher, o.n > 0 ? o.n : 1);
    if (const auto no = unfit(launcher[0]); no.first != 0) return complain(no);
  }
  if (const std::string& starter = launcher.empty() ? o.command[0] : launcher[0]; o.strict && starts_elsewhere(starter))
    throw UsageError("verify", "cannot be strict: a daemon starts the ranks of " + starter + ", out of sight from here",
                     "in each rank: srun --cpu-bind=none … meshmark run --each --verify=strict …");
  int record = -1;
  if (!o.record.empty()) record = open(o.record.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (!o.record.empty() && record < 0)
    throw UsageError("record", "cannot write " + quote(o.record) + ": " + why(), "a file that can be written");

  Plan plan = decide(o);
  std::vector<std::string> command = o.command;
  if (o.each) place_threads(o, plan);
  if (!o.launcher.empty()) {
    if (!plan.cpus.empty()) {
      // Where the ranks are its children, they inherit what it is bound to: it sees these CPUs alone, and the memory
      // policy is theirs. Other launchers have to be told.
      const bool bound = !by_daemon(o.launcher);
      Machine seen = plan.machine;
      if (bound) seen.allowed = plan.cpus;
      if (bound && o.hard) seen.origin = "cpuset";  // which it will be in: relative numbers count from there
      const Form form = emit(o.launcher, seen, plan.placement.layout, bound ? Memory{} : plan.memory);
      for (const auto& [name, value] : form.environment) setenv(name.c_str(), value.c_str(), 1);
      launcher = words_of(form);
      // The layout is of this node, and so must be the ranks, also where the job has more nodes.
      if (o.launcher.starts_with("slurm")) {
        const std::string own = variable("SLURMD_NODENAME"), host = host_name();
        const std::vector<std::string> here = {"-N", "1", "-w", own.empty() ? host.substr(0, host.find('.')) : own};
        launcher.insert(launcher.begin() + 1, here.begin(), here.end());
      }
    }
    launcher[0] = of_its_kind(launcher[0], o.launcher);
    command.insert(command.begin(), launcher.begin(), launcher.end());
  }
  if (o.say) std::fprintf(stderr, "meshmark: %s\n", said(o, plan).c_str());
  if (!o.verify && record < 0 && o.timeout_s == 0) {
    bind_here(o, plan);
    become(command);
  }

  int started[2];
  if (pipe2(started, O_CLOEXEC) != 0) throw Failure("cannot make a pipe: " + why());
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // who outlives its parent stays in sight, and is reaped
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  struct sigaction ordinary{}, inherited{};
  ordinary.sa_handler = SIG_DFL;  // a parent that ignores it would have the kernel reap the command
  sigaction(SIGCHLD, &ordinary, &inherited);
  const pid_t self = getpid(), child = fork();
  if (child < 0) throw Failure("cannot start a process: " + why());
  if (child == 0) {
    // Nobody would watch it any more; also a batch system that kills this process means the command.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(kNotExecutable);
    sigaction(SIGCHLD, &inherited, nullptr);
    bind_here(o, plan);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const double begin_s = wall_s();
    if (write(started[1], &begin_s, sizeof begin_s) < 0) _exit(kNotExecutable);
    become(command);
  }
  close(started[1]);
  Expectation expected;
  expected.cpus = plan.cpus;
  expected.each = (o.each && plan.rank.index < 0) || !o.launcher.empty();
  expected.layout = plan.placement.layout;
  expected.memory_nodes = nodes_meant(plan.machine, plan.memory, plan.cpus);
  expected.strict_memory = plan.memory.policy == "bind";
  const Outcome outcome = supervise(o, plan, child, started[0], expected);

  if (outcome.timed_out) std::fprintf(stderr, "meshmark: ended after %g s, as --timeout asked\n", o.timeout_s);
  if (outcome.report) std::fputs(to_text(*outcome.report).c_str(), stderr);
  if (record >= 0) {
    std::string text = record_lines(o, plan, outcome);
    char last = '\n';
    if (const off_t end = lseek(record, 0, SEEK_END); end > 0 && pread(record, &last, 1, end - 1) == 1 && last != '\n')
      text = "\n" + text;  // what was torn before stays alone
    if (write(record, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw Failure("record: cannot write " + quote(o.record) + ": " + why());
  }
  if (plan.held) {
    try {
      Ledger().release(*plan.held);
    } catch (const std::exception&) {  // whoever comes next does it
    }
  }
  if (outcome.timed_out) return kTimedOut;
  if (o.strict && outcome.report && !outcome.report->held && outcome.status == 0) return 3;
  return pass_on(outcome.status);
}

}  // namespace mm::place

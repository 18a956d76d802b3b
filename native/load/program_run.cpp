#include "load/program_run.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "load/executor.hpp"
#include "load/program.hpp"
#include "load/scenario/processes/threads.hpp"
#include "load/scenario/run_clock.hpp"
#include "sys/files.hpp"
#include "sys/procfs.hpp"
#include "sys/words.hpp"

namespace mm::load {
namespace {

using workloads::CountColumn, workloads::Counts;

/// Returns the time that all threads of this process waited for a CPU, s.
double waited_s() {
  double total = 0;
  for (const pid_t task : numbers_in("/proc/self/task"))
    if (const auto times = parse_schedstat(read_text(task_folder(getpid(), task) + "schedstat")))
      total += static_cast<double>(times->second) * 1e-9;
  return total;
}

/// Totals of completed work, by the metrics of programs.
struct Done {
  std::uint64_t calls = 0;
  Counts counts;
  double memory_read = 0, memory_write = 0, cache = 0;

  void add(const KernelVariant& part, const Counts& unit) {
    const auto n = static_cast<double>(part.window);
    ++calls;
    for (const CountColumn& c : workloads::kCountColumns) counts.*c.value += n * unit.*c.value;
    if (part.from_memory) memory_read += n * unit.line_read_bytes, memory_write += n * unit.line_write_bytes;
    if (part.from_cache) cache += n * (unit.line_read_bytes + unit.line_write_bytes);
  }
  json to_json() const {
    json all{{"calls", calls},
             {"memory_read_bytes", memory_read},
             {"memory_write_bytes", memory_write},
             {"cache_bytes", cache}};
    for (const CountColumn& c : workloads::kCountColumns) all[c.name] = counts.*c.value;
    return all;
  }
};

rusage resource_use() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return use;
}

/// Resource use of this process. The wall time is read last, so that it includes the other reads.
struct Account {
  rusage use = resource_use();
  double waited_s = load::waited_s(), wall_s = mm::wall_s();
};

/// Runs all calls of a program in order, and writes a line at the end of each time window.
class ProgramRun {
 public:
  ProgramRun(const SyntheticProgram& program, Executor& executor, double window_s)
      : program_(program), executor_(executor), window_s_(window_s), window_end_s_(before_.wall_s + window_s) {}

  void run() {
    for (Order calls(program_.parts); !calls.done();) {
      keep_schedule(calls.due());
      const std::size_t k = calls.next();
      executor_.call(k);
      Running& r = executor_.running()[k];
      done_.add(program_.parts[k], r.unit);
      const Ticks now = ticks();
      const double now_cpu_s = own_cpu_s();
      r.wall_s += seconds(now - last_);
      r.cpu_s += now_cpu_s - last_cpu_s_;
      last_ = now;
      last_cpu_s_ = now_cpu_s;
      if (const double now_s = wall_s(); now_s >= window_end_s_) end_window(now_s, now_cpu_s);
    }
    if (program_.pace > 0) late_s_ = std::max(0.0, seconds(last_ - begin_) - program_.run_time_s);
    keep_schedule(1);
  }

  /// Writes the last lines and returns the wrong results, one text per variant.
  std::vector<std::string> finish() {
    const double end_s = wall_s();
    end_window(end_s, own_cpu_s());
    const Account after;
    const std::vector<std::string> wrong_results = verify();
    json end = done_.to_json();
    end.update({{"type", "end"},
                {"program", program_.name},
                {"wall_s", end_s - before_.wall_s},
                {"user_s", seconds(after.use.ru_utime) - seconds(before_.use.ru_utime)},
                {"system_s", seconds(after.use.ru_stime) - seconds(before_.use.ru_stime)},
                {"waiting_s", after.waited_s - before_.waited_s},
                {"spun_s", spun_s_},
                {"late_s", late_s_},
                {"pace", program_.pace},
                {"wrong", wrong_results}});
    if (program_.planned_s > 0) end["planned_s"] = program_.planned_s;
    emit(end);
    return wrong_results;
  }

 private:
  /// Delays calls of a program with a pace until their planned time. `due`: 0 start, 1 end of the program.
  void keep_schedule(double due) {
    if (program_.pace == 0) return;
    const double due_s = due * program_.run_time_s;
    if (seconds(last_ - begin_) >= due_s) return;
    executor_.spin(begin_ + static_cast<Ticks>(due_s / clock_info().seconds_per_tick));
    const Ticks now = ticks();
    spun_s_ += seconds(now - last_);
    last_ = now;
    last_cpu_s_ = own_cpu_s();
  }

  void end_window(double now_s, double now_cpu_s) {
    json line{{"type", "window"},
              {"from_s", reported_s_ - before_.wall_s},
              {"to_s", now_s - before_.wall_s},
              {"cpu_s", now_cpu_s - reported_cpu_s_}};
    const json total = done_.to_json(), reported = reported_.to_json();
    for (const auto& [key, value] : total.items()) line[key] = value.get<double>() - reported[key].get<double>();
    emit(line);
    reported_ = done_;
    reported_s_ = now_s;
    reported_cpu_s_ = now_cpu_s;
    while (window_end_s_ <= now_s) window_end_s_ += window_s_;
  }

  std::vector<std::string> verify() {
    std::vector<std::string> wrong_results;
    for (std::size_t k = 0; k < program_.parts.size(); ++k) {
      const Running& r = executor_.running()[k];
      const KernelVariant& part = program_.parts[k];
      emit({{"type", "variant"}, {"name", part.name}, {"calls", part.calls}, {"wall_s", r.wall_s}, {"cpu_s", r.cpu_s}});
      if (const std::string error = r.kernel->verify(); !error.empty())
        wrong_results.push_back(part.name + ": " + error);
    }
    return wrong_results;
  }

  const SyntheticProgram& program_;
  Executor& executor_;
  const Account before_{};
  Done done_, reported_;
  double window_s_, window_end_s_, reported_s_ = before_.wall_s, reported_cpu_s_ = own_cpu_s();
  double spun_s_ = 0, late_s_ = 0, last_cpu_s_ = reported_cpu_s_;
  const Ticks begin_ = ticks();
  Ticks last_ = begin_;
};

}  // namespace

int program_verb(int argc, char** argv) {
  Arguments app{"Run a synthetic program.\n\nexample: meshmark-load program traffic.json", "meshmark-load program"};
  std::string path;
  double window_s = 0.1;
  bool wait = false, order = false;
  app.add("FILE", path, "made by meshmark load make").required();
  app.time("--window", window_s, "report the completed work at the end of each window of this length [100ms]", 1e-9);
  app.flag("--wait", wait, "set up, report ready, and start on a line from standard input");
  app.flag("--order", order, "print the order of the calls without running them");
  if (!app.read(argc, argv, "program")) return 0;
  const SyntheticProgram program = read_program(path);
  if (order) {
    for (Order calls(program.parts); !calls.done();) std::cout << program.parts[calls.next()].name << "\n";
    return 0;
  }
  Executor executor(program);
  clock_info();  // calibrates the clock before use
  emit({{"type", "ready"},
        {"program", program.name},
        {"pid", getpid()},
        {"threads", program.threads},
        {"memory_bytes", executor.memory_bytes()}});
  if (wait) {
    std::string line;
    if (!std::getline(std::cin, line)) return 0;  // the process that would release it has ended
  }
  ProgramRun run(program, executor, window_s);
  run.run();
  if (const std::vector<std::string> wrong_results = run.finish(); !wrong_results.empty())
    throw Failure("the result of a load kernel is wrong: " + wrong_results.front());
  return 0;
}

}  // namespace mm::load

#include "program.hpp"

#include <omp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>

#include "arguments.hpp"
#include "clock.hpp"
#include "error.hpp"
#include "fields.hpp"
#include "input_file.hpp"
#include "json.hpp"
#include "load/scenario/threads.hpp"
#include "options.hpp"
#include "output.hpp"
#include "place/command.hpp"
#include "place/proc.hpp"

namespace mm::load {
namespace {

using workloads::CountColumn, workloads::Counts, workloads::Kernel, workloads::Memory;

constexpr std::uint64_t kMostCalls = std::uint64_t{1} << 29;

/// What all threads of this process have waited for a CPU, s.
double waited_s() {
  double total = 0;
  for (const pid_t task : place::numbers_in("/proc/self/task"))
    if (const auto sums = parse_schedstat(place::slurp(place::task_folder(getpid(), task) + "schedstat")))
      total += static_cast<double>(sums->second) * 1e-9;
  return total;
}

double cpu_s() { return static_cast<double>(kernel_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9; }

/// Sums of what was done, as the metrics of programs have them.
struct Done {
  std::uint64_t calls = 0;
  Counts counts;
  double memory_read = 0, memory_write = 0, cache = 0;

  void add(const Part& part, const Counts& unit) {
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

/// A part with its memory, and where its walk stands.
struct Running {
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Kernel> kernel;
  Counts unit;
  std::size_t cursor = 0;
  double wall_s = 0, cpu_s = 0;
};

class Executor {
 public:
  explicit Executor(const Program& program) : program_(program) {
    for (std::size_t t = 0; t <= program.shares.size(); ++t)
      upto_.push_back(
          t == program.shares.size()
              ? 1.0
              : std::accumulate(program.shares.begin(), program.shares.begin() + static_cast<std::ptrdiff_t>(t), 0.0));
    const auto everyone = [this](const std::function<void(int)>& work) {
#pragma omp parallel num_threads(program_.threads)
      work(omp_get_thread_num());
    };
    for (const Part& part : program.parts) {
      Running r;
      r.memory = std::make_unique<Memory>(program.threads, everyone);
      try {
        r.kernel = workloads::make(*part.entry, part.shape, *r.memory);
      } catch (const Absent& why) {
        throw Absent(part.name + ": " + why.what(), why.enable);
      }
      r.unit = r.kernel->counts();
      for (const CountColumn& c : workloads::kCountColumns) {
        const double is = r.unit.*c.value * static_cast<double>(part.window), was = part.planned.*c.value;
        if (std::fabs(is - was) > 1e-9 * std::max(is, was))
          throw Failure(part.name + ": a call does " + json(is).dump() + " " + c.name + ", the file was made with " +
                        json(was).dump() + "; make it again with this version");
      }
      memory_bytes_ += r.memory->bytes();
      running_.push_back(std::move(r));
    }
  }

  std::size_t memory_bytes() const { return memory_bytes_; }
  std::vector<Running>& running() { return running_; }

  /// One call: its window of units, from where the last call of this part ended.
  void call(std::size_t k) {
    Running& r = running_[k];
    const Part& part = program_.parts[k];
    if (program_.threads == 1) {
      work(r, part, 0);
    } else {
#pragma omp parallel num_threads(program_.threads)
      work(r, part, omp_get_thread_num());
    }
    r.cursor = (r.cursor + part.window) % r.kernel->units();
  }

  /// All threads spin until then: they keep their CPUs busy and touch nothing.
  void spin(Ticks until) const {
#pragma omp parallel num_threads(program_.threads)
    while (ticks() < until) {}
  }

 private:
  /// A thread's share of a call. Units are independent; but where a walk begins anew and is divided otherwise, a unit
  /// could come to a second thread while the first is still at it, so the threads meet there.
  void work(const Running& r, const Part& part, int rank) const {
    Kernel* const kernel = r.kernel.get();
    const std::size_t all = kernel->units();
    std::size_t first = r.cursor;
    for (std::size_t left = part.window; left > 0; first = 0) {
      const std::size_t n = std::min(left, all - first);
      const auto at = [&](int t) {
        return first +
               static_cast<std::size_t>(std::llround(upto_[static_cast<std::size_t>(t)] * static_cast<double>(n)));
      };
      if (part.entry->info.team)
        kernel->run(first, first + n, rank);
      else if (at(rank) < at(rank + 1))
        kernel->run(at(rank), at(rank + 1), rank);
      left -= n;
      const bool whole = first == 0 && n == all;
      if (left > 0 && !(whole && left >= all)) {
#pragma omp barrier
      }
    }
  }

  const Program& program_;
  std::vector<double> upto_;
  std::vector<Running> running_;
  std::size_t memory_bytes_ = 0;
};

}  // namespace

Program read_program(const std::string& path) {
  const std::string named = shown_path(path);
  const Input input = read_input(path);
  if (!input.wrong.empty()) throw Failure(named + ": " + input.wrong + "; allowed is " + input.allowed);
  const json whole = parse_json(input.text);
  if (!whole.is_object()) throw Failure(named + ": is no JSON object");
  const Fields file{whole, named};
  if (file.text("format") != "meshmark load program") file.refuse("format", file.at("format"), "meshmark load program");
  if (file.whole("version", 0, 1 << 20) != 1) file.refuse("version", file.at("version"), "1");
  Program program;
  const json& wish = file.at("prescription");
  if (!wish.is_object()) file.refuse("prescription", wish, "an object");
  const Fields prescription{wish, named + ": prescription"};
  program.name = wish.contains("name") ? prescription.text("name") : "program";
  program.threads = prescription.whole("threads", 1, 1, 1 << 16);
  if (wish.contains("pace")) program.pace = prescription.real("pace", 0, 0.9);
  if (program.pace > 0) program.run_time_s = prescription.real("run_time_s", 1e-3, 1e6);
  const json& shares = file.at("shares");
  double sum = 0;
  if (!shares.is_array() || shares.size() != static_cast<std::size_t>(program.threads))
    file.refuse("shares", shares, std::to_string(program.threads) + " numbers, one a thread");
  for (const json& share : shares) {
    if (!share.is_number() || !(share.get<double>() >= 0 && share.get<double>() <= 1))
      file.refuse("shares", share, "a number from 0 to 1");
    program.shares.push_back(share.get<double>());
    sum += program.shares.back();
  }
  if (std::fabs(sum - 1) > 1e-6) file.refuse("shares", shares, "numbers whose sum is 1");
  const json& variants = file.at("variants");
  if (!variants.is_array() || variants.empty() || variants.size() > 10'000)
    file.refuse("variants", variants, "1 to 10000 variants");
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string where = named + ": variants[" + std::to_string(i) + "]";
    if (!variants[i].is_object()) throw Failure(where + ": is no object");
    const Fields f{variants[i], where};
    Part part;
    part.name = f.text("name");
    try {
      part.entry = &workloads::kernel(f.text("kernel"));
    } catch (const UsageError& why) {
      throw Failure(where + ".kernel: " + why.what() + "; this build has no such load kernel");
    }
    part.shape.volume_bytes = f.whole("volume_bytes", 0, std::uint64_t{1} << 50);
    part.shape.stride = f.whole("stride", 1, 1, 1 << 20);
    part.shape.threads = f.whole("threads", 1, 1, 1 << 16);
    if (part.shape.threads != program.threads)
      f.refuse("threads", variants[i].value("threads", json(1)),
               std::to_string(program.threads) + ", as the program has");
    part.window = f.has("window") ? f.whole("window", 1, std::uint64_t{1} << 50) : 1;
    part.calls = f.whole("calls", 1, kMostCalls);
    part.phase = f.real("phase", 0, 1);
    const std::string by = variants[i].contains("served_by") ? f.text("served_by") : "memory";
    part.from_memory = by == "memory";
    part.from_cache = by == "L2" || by == "L3";
    for (const CountColumn& c : workloads::kCountColumns)
      if (f.object.contains(c.name)) part.planned.*c.value = f.real(c.name, 0, 1e18);
    program.parts.push_back(part);
  }
  return program;
}

Order::Order(const std::vector<Part>& parts) : parts_(parts) {
  for (std::size_t k = 0; k < parts.size(); ++k)
    heap_.push_back({(0.0 + parts[k].phase) / static_cast<double>(parts[k].calls), k, 0});
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

std::size_t Order::next() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  Due due = heap_.back();
  heap_.pop_back();
  const Part& part = parts_[due.part];
  if (++due.call < part.calls) {
    due.time = (static_cast<double>(due.call) + part.phase) / static_cast<double>(part.calls);
    heap_.push_back(due);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  return due.part;
}

int program_verb(int argc, char** argv) {
  Arguments app{"run a synthesised program\nexample: meshmark-load program traffic.json"};
  std::string path;
  double window_s = 0.1;
  bool wait = false, order = false;
  app.add("FILE", path, "made by meshmark load make").required();
  app.time("--window", window_s, "a line of what was done at the end of each [100ms]", 1e-9);
  app.flag("--wait", wait, "set up, say so, and start at a line on standard input");
  app.flag("--order", order, "print the order of the calls and run none");
  if (!app.read(argc, argv, "program")) return 0;
  const Program program = read_program(path);
  if (order) {
    for (Order calls(program.parts); !calls.done();) std::cout << program.parts[calls.next()].name << "\n";
    return 0;
  }
  Executor executor(program);
  emit({{"type", "ready"},
        {"program", program.name},
        {"pid", getpid()},
        {"threads", program.threads},
        {"memory_bytes", executor.memory_bytes()}});
  if (wait) {
    std::string line;
    if (!std::getline(std::cin, line)) return 0;  // whoever was to start it is gone
  }
  clock_info();
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const double waited_before_s = waited_s(), begin_s = wall_s();
  Done done, told;
  double window_end_s = begin_s + window_s, told_s = begin_s, told_cpu_s = cpu_s(), last_cpu_s = told_cpu_s;
  Ticks last = ticks();
  const auto tell = [&](double now_s, double now_cpu_s) {
    json line{
        {"type", "window"}, {"from_s", told_s - begin_s}, {"to_s", now_s - begin_s}, {"cpu_s", now_cpu_s - told_cpu_s}};
    const json now = done.to_json(), then = told.to_json();
    for (const auto& [key, value] : now.items()) line[key] = value.get<double>() - then[key].get<double>();
    emit(line);
    told = done;
    told_s = now_s;
    told_cpu_s = now_cpu_s;
    while (window_end_s <= now_s) window_end_s += window_s;
  };
  const Ticks begin = last;
  double spun_s = 0;
  const auto keep_schedule = [&](double due) {
    if (program.pace == 0) return;
    const double due_s = due * program.run_time_s;
    if (seconds(last - begin) >= due_s) return;
    executor.spin(begin + static_cast<Ticks>(due_s / clock_info().seconds_per_tick));
    const Ticks now = ticks();
    spun_s += seconds(now - last);
    last = now;
    last_cpu_s = cpu_s();
  };
  for (Order calls(program.parts); !calls.done();) {
    keep_schedule(calls.due());
    const std::size_t k = calls.next();
    executor.call(k);
    Running& r = executor.running()[k];
    done.add(program.parts[k], r.unit);
    const Ticks now = ticks();
    const double now_cpu_s = cpu_s();
    r.wall_s += seconds(now - last);
    r.cpu_s += now_cpu_s - last_cpu_s;
    last = now;
    last_cpu_s = now_cpu_s;
    if (const double now_s = wall_s(); now_s >= window_end_s) tell(now_s, now_cpu_s);
  }
  const double late_s = program.pace > 0 ? std::max(0.0, seconds(last - begin) - program.run_time_s) : 0;
  keep_schedule(1);
  const double end_s = wall_s(), end_cpu_s = cpu_s();
  tell(end_s, end_cpu_s);
  getrusage(RUSAGE_SELF, &after);
  const double waiting_s = waited_s() - waited_before_s;
  std::vector<std::string> wrong;
  for (std::size_t k = 0; k < program.parts.size(); ++k) {
    const Running& r = executor.running()[k];
    emit({{"type", "variant"},
          {"name", program.parts[k].name},
          {"calls", program.parts[k].calls},
          {"wall_s", r.wall_s},
          {"cpu_s", r.cpu_s}});
    if (const std::string why = r.kernel->verify(); !why.empty()) wrong.push_back(program.parts[k].name + ": " + why);
  }
  json end = done.to_json();
  end.update({{"type", "end"},
              {"program", program.name},
              {"wall_s", end_s - begin_s},
              {"user_s", seconds(after.ru_utime) - seconds(before.ru_utime)},
              {"system_s", seconds(after.ru_stime) - seconds(before.ru_stime)},
              {"waiting_s", waiting_s},
              {"spun_s", spun_s},
              {"late_s", late_s},
              {"wrong", wrong}});
  emit(end);
  if (!wrong.empty()) throw Failure("the result of a load kernel is wrong: " + wrong.front());
  return 0;
}

}  // namespace mm::load

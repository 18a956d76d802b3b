#include "node/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/resources/host.hpp"
#include "node/run/process.hpp"
#include "node/run/scratch.hpp"

namespace mm::node {
namespace {

constexpr std::size_t kVerdictBytes = std::size_t{1} << 14;  // bytes that are kept of the output of a verification

struct HostCpuTime {
  double busy_s = 0, stolen_s = 0;
  std::size_t cpus = 0;
};

/// Returns the CPU time of all CPUs since boot.
HostCpuTime busy_now() {
  const CpuTimes times = read_cpu_times();
  const auto total_s = [](const std::vector<long long>& ticks) {
    return static_cast<double>(std::accumulate(ticks.begin(), ticks.end(), 0LL)) / ticks_per_second();
  };
  return {total_s(times.busy), total_s(times.steal), times.busy.size()};
}

/// Returns the end of a regular file, and whether more text precedes it. Reads no other kind of file: a pipe would
/// never end.
std::pair<std::string, bool> end_of_file(const std::string& path, std::size_t most) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status{};
  if (file < 0) return {"", false};
  std::string text;
  bool cut = false;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    const auto size = static_cast<std::size_t>(status.st_size);
    cut = size > most;
    text.resize(std::min(size, most));
    const ssize_t n = ::pread(file, text.data(), text.size(), static_cast<off_t>(size - text.size()));
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  ::close(file);
  return {text, cut};
}

void write_files(const UserProgram& program, const std::string& folder) {
  for (const auto& [name, text] : program.files) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.close();
    if (!out) throw Failure("cannot write " + shown_path(path.string()));
  }
}

json verdict(const PlanStep& step, const UserProgram& program, const std::string& folder) {
  const std::string out = step.scratch + "/verify";
  ::unlink(out.c_str());
  const Ended ended = run_to_end({.argv = program.verify,
                                  .folder = folder,
                                  .out = out,
                                  .err = out,
                                  .timeout_s = program.verify_timeout_s,
                                  .output = program.verify_output});
  return {{"how", ended.how}, {"code", ended.code}, {"out", end_of_file(out, kVerdictBytes).first}};
}

/// Runs the program once and returns the line of this run. `failed` receives whether it failed, as far as this node can
/// tell.
json run_once(const PlanStep& step, const UserProgram& program, int number, bool& failed) {
  const std::string folder = step.scratch + "/run/home", out = step.scratch + "/run/out",
                    err = step.scratch + "/run/err";
  empty_folder(step.scratch + "/run");
  std::filesystem::create_directories(folder);
  write_files(program, folder);
  const HostCpuTime before_run = busy_now();
  const double begin_s = wall_s();
  const Ended ended = run_to_end({.argv = step.argv,
                                  .folder = folder,
                                  .out = out,
                                  .err = err,
                                  .environment = program.environment,
                                  .timeout_s = program.timeout_s,
                                  .memory = program.memory,
                                  .output = program.output,
                                  .watched = step.scratch + "/run"});
  const double spent_s = wall_s() - begin_s;
  const HostCpuTime after_run = busy_now();
  const auto [output, cut] = end_of_file(out, program.tail_bytes);
  const auto [errors, errors_cut] = end_of_file(err, program.tail_bytes);
  failed = !ended.good();
  json line{{"type", "run"},
            {"number", number},
            {"how", ended.how},
            {"code", ended.code},
            {"left", ended.left},
            {"stuck", ended.stuck},
            {"elapsed_s", ended.elapsed_s},
            {"user_s", ended.user_s},
            {"system_s", ended.system_s},
            {"peak_bytes", ended.peak_bytes},
            {"minor_faults", ended.minor_faults},
            {"major_faults", ended.major_faults},
            {"switches_involuntary", ended.switches_involuntary},
            {"spent_s", spent_s},
            {"busy_s", after_run.busy_s - before_run.busy_s},
            {"stolen_s", after_run.stolen_s - before_run.stolen_s},
            {"cpus", after_run.cpus},
            {"out", output},
            {"err", errors},
            {"cut", cut || errors_cut}};
  if (!program.results.empty()) {
    const auto [text, text_cut] = end_of_file(folder + "/" + program.results, program.tail_bytes);
    line["file"] = text;
    line["cut"] = cut || errors_cut || text_cut;
  }
  if (!failed && !program.verify.empty()) {
    line["verify"] = verdict(step, program, folder);
    failed = line["verify"]["how"] != "status" || line["verify"]["code"] != 0;
  }
  return line;
}

}  // namespace

int run_program(const PlanStep& step, const UserProgram& program, const std::function<void(const json&)>& take) {
  int failures = 0;
  for (int number = 1 - program.warmup; number <= program.runs;) {
    bool failed = false;
    const json line = run_once(step, program, number, failed);
    take(line);
    if (line["how"] == "missing") return kNotInstalled;
    failures += failed;
    if (failures == program.failures) return kFailed;
    if (!failed) ++number;  // otherwise the run is repeated, since the machine may have caused the failure
  }
  return 0;
}

}  // namespace mm::node

#include "load/scenario/journal.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/harness/provenance.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "place/binding/bind.hpp"

namespace mm::load {
namespace {

constexpr std::string_view kWindow = R"({"type":"window",)";

template <class Integer>
void append(std::string& to, Integer n) {
  std::array<char, 24> digits;
  to.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), n).ptr);
}

void append_s(std::string& to, double s) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), s, std::chars_format::fixed, 6).ptr;
  to.append(digits.data(), end);
}

void write_out(std::string_view text) {
  if (!write_all(STDOUT_FILENO, text)) throw Failure(std::string("cannot write the results: ") + std::strerror(errno));
}

/// Returns the nodes that a program requests; empty if it requests no nodes or they are unknown.
std::vector<int> requested_nodes(const Start& s, std::optional<Machine>& machine) {
  if (s.memory.empty()) return {};
  try {
    if (!machine) machine = machine_of("host");
    return place::requested_nodes(*machine, place::parse_memory(s.memory), s.cpus);
  } catch (const std::exception&) {
    return {};  // starting the program reports the error
  }
}

}  // namespace

void Journal::header(const RunPlan& plan, const Inherited& inherited) const {
  json programs = json::array();
  std::optional<Machine> machine;
  for (const Start& s : plan.programs)
    programs.push_back({{"program", s.name},
                        {"copy", s.copy},
                        {"command", s.recorded},
                        {"synthesised", s.synthesised},
                        {"start_s", s.start_s},
                        {"cpus", cpu_list(s.cpus)},
                        {"nice", s.nice},
                        {"priority", s.priority},
                        {"memory", s.memory},
                        {"nodes", cpu_list(requested_nodes(s, machine))}});
  json conditions = host_conditions();
  std::vector<int> allowed;  // CPUs that the programs may use: the runner may have moved to other CPUs
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &inherited.cpus)) allowed.push_back(cpu);
  conditions["cpus_allowed"] = cpu_list(allowed);
  emit({{"type", "header"},
        {"schema", 1},
        {"instrument", "load"},
        {"machine", machine_id()},
        {"scenario", plan.scenario},
        {"start", utc_now()},
        {"sample_s", plan.sample_s},
        {"build", kBuild},
        {"compiler", kCompiler},
        {"conditions", conditions},
        {"tick_s", 1 / ticks_per_second()},
        {"sample_columns", {"thread", "state", "cpu", "ran_ns", "waited_ns", "user_ticks", "system_ticks"}},
        {"programs", programs}});
}

void Journal::event(const char* name, const Start* about, const json& more) {
  json line{{"type", "event"}, {"event", name}, {"t_s", rounded(clock_.now())}};
  if (about != nullptr) line["program"] = about->name, line["copy"] = about->copy;
  line.update(more);
  emit(line);
  // If the reader of notifications is gone, the run continues.
  if (notify_ >= 0 && ::write(notify_, "\n", 1) < 0 && errno != EAGAIN) close_if_open(notify_);
}

std::string Journal::prefix(const char* type, const Start& program) const {
  std::string text = R"({"type":")";
  text += type;
  text += R"(","t_s":)";
  append_s(text, clock_.now());
  text += R"(,"program":)" + json(program.name).dump(-1, ' ', false, json::error_handler_t::replace);
  return text + R"(,"copy":)" + std::to_string(program.copy) + ",";
}

bool is_window(std::string_view line) { return line.starts_with(kWindow); }

void Journal::window(const Start& program, std::string_view line) const {
  write_out(prefix("window", program) + std::string(line.substr(kWindow.size())) + "\n");
}

void Journal::of_program(const char* type, const Start& program, json line) const {
  line.erase("type"), line.erase("program");  // the journal uses the name in the scenario, not the program's own
  write_out(prefix(type, program) + line.dump(-1, ' ', false, json::error_handler_t::replace).substr(1) + "\n");
}

void Journal::thread_total(const Start& program, const Thread& thread, const Use& use) const {
  emit({{"type", "thread_total"},
        {"t_s", rounded(clock_.now())},
        {"thread", thread.number},
        {"program", program.name},
        {"copy", program.copy},
        {"pid", thread.process},
        {"tid", thread.id},
        {"command", thread.command},
        {"from_s", rounded(use.from_s)},
        {"to_s", rounded(use.to_s)},
        {"user_s", rounded(use.user_s)},
        {"system_s", rounded(use.system_s)},
        {"waiting_s", rounded(use.waiting_s)},
        {"sleeping_s", rounded(use.sleeping_s)},
        {"closes", rounded(use.accounted_share())},
        {"migrations", use.migrations},
        {"migrations_counted", thread.migrations >= 0},
        {"cpus", cpu_list({thread.ran_on.begin(), thread.ran_on.end()})}});
}

SampleLine::SampleLine(double at_s) : text_(R"({"type":"sample","t_s":)") {
  append_s(text_, at_s);
  text_ += R"(,"threads":[)";
  empty_ = text_.size();
}

void SampleLine::add(Thread& thread) {
  const ThreadSample previous = std::exchange(thread.reported, thread.last);
  const ThreadSample& current = thread.last;
  if (current.ran_ns == previous.ran_ns && current.waited_ns == previous.waited_ns && current.state == previous.state &&
      current.cpu == previous.cpu && current.state == 'S')
    return;
  text_ += '[';
  append(text_, thread.number);
  text_ += R"(,")";
  text_ += current.state;
  text_ += R"(",)";
  append(text_, current.cpu);
  for (const std::uint64_t n :
       {current.ran_ns - previous.ran_ns, current.waited_ns - previous.waited_ns,
        current.user_ticks - previous.user_ticks, current.system_ticks - previous.system_ticks}) {
    text_ += ',';
    append(text_, static_cast<std::int64_t>(n));
  }
  text_ += "],";
}

void SampleLine::write() {
  if (text_.size() == empty_) return;
  text_.back() = ']';
  write_out(text_ + "}\n");
}

json machine_use(const CpuTimes& before, const CpuTimes& after) {
  const double tick_s = 1 / ticks_per_second();
  json busy = json::array(), steal = json::array();
  for (std::size_t cpu = 0; cpu < std::min(before.busy.size(), after.busy.size()); ++cpu) {
    busy.push_back(rounded(static_cast<double>(after.busy[cpu] - before.busy[cpu]) * tick_s));
    steal.push_back(rounded(static_cast<double>(after.steal[cpu] - before.steal[cpu]) * tick_s));
  }
  return {{"busy_s", busy}, {"steal_s", steal}};
}

}  // namespace mm::load

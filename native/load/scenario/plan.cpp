#include "load/scenario/plan.hpp"

#include <sched.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/options/fields.hpp"
#include "base/secrets.hpp"

namespace mm::load {
namespace {

constexpr std::size_t kMaxPrograms = 4096;

const std::map<std::string, int>& policies_by_priority() {
  static const std::map<std::string, int> policies = {
      {"other", SCHED_OTHER}, {"batch", SCHED_BATCH}, {"idle", SCHED_IDLE}, {"fifo", SCHED_FIFO}};
  return policies;
}

/// Returns the command as the journal contains it: `recorded` of the plan, or else `argv` without secrets.
std::vector<std::string> recorded_words(const json& raw, const std::vector<std::string>& argv) {
  std::vector<std::string> words;
  const json recorded = raw.value("recorded", json());
  for (const json& word : recorded.is_array() ? recorded : json::array())
    words.push_back(word.is_string() ? word.get<std::string>() : "");
  return without_secrets(words.empty() ? argv : words);
}

Start read_start(const json& raw, const std::string& where) {
  if (!raw.is_object()) throw Failure(where + ": not an object");
  const Fields f{raw, where};
  Start s;
  s.name = f.text("name", "");
  if (s.name.empty()) throw Failure(where + ": has no name");
  s.copy = f.whole("copy", 0, 0, 1 << 20);
  const json argv = raw.value("argv", json());
  if (!argv.is_array() || argv.empty()) f.refuse("argv", argv, "a list of texts, the command first");
  for (const json& argument : argv) {
    if (!argument.is_string() || argument.get<std::string>().find('\0') != std::string::npos)
      f.refuse("argv", argument, "a text");
    s.argv.push_back(argument.get<std::string>());
  }
  s.recorded = recorded_words(raw, s.argv);
  s.synthesised = f.truth("synthesised");
  s.start_s = f.real("start_s", 0, 0, 1e6);
  s.cpus = f.cpus("cpus");
  s.nice = f.whole("nice", 0, -40, 39);
  s.priority = f.text("priority", "other");
  if (!policies_by_priority().contains(s.priority)) f.refuse("priority", raw["priority"], "other, batch, idle, fifo");
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

}  // namespace

int scheduling_policy(const std::string& priority) { return policies_by_priority().at(priority); }

RunPlan read_run_plan(const std::string& path) {
  const std::string shown = shown_path(path);
  const json raw = read_format(path, "meshmark load plan");
  const Fields f{raw, shown};
  RunPlan plan;
  plan.scenario = f.text("scenario", "scenario");
  plan.sample_s = f.real("sample_s", plan.sample_s, 1e-3, 60);
  plan.timeout_s = f.real("timeout_s", 0, 0, 1e6);
  plan.setup_s = f.real("setup_s", plan.setup_s, 1e-3, 1e5);
  const json& canary = raw.contains("canary") ? raw["canary"] : json::object();
  if (!canary.is_object()) f.refuse("canary", canary, "an object");
  const Fields c{canary, shown + ": canary"};
  plan.canary_before_s = c.real("before_s", 0, 0, 3600);
  plan.canary_after_s = c.real("after_s", 0, 0, 3600);
  plan.canary_during = c.truth("during");
  const json& programs = raw.contains("programs") ? raw["programs"] : json();
  if (!programs.is_array() || programs.empty() || programs.size() > kMaxPrograms)
    f.refuse("programs", programs, "1 to " + std::to_string(kMaxPrograms) + " programs");
  for (std::size_t i = 0; i < programs.size(); ++i)
    plan.programs.push_back(read_start(programs[i], shown + ": programs[" + std::to_string(i) + "]"));
  return plan;
}

}  // namespace mm::load
